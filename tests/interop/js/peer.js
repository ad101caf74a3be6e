// MQTT.js as a peer: one JSON command a line on standard input, one JSON answer a line on standard output.
// Messages are printed as they come. Bytes are base64. The end of the input is the end of the program.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const mqtt = require("mqtt");

const SCHEMES = { tcp: "mqtt", tls: "mqtts", ws: "ws", wss: "wss", unix: "mqtt+unix" };
let client = null;

function say(value) {
  process.stdout.write(JSON.stringify(value) + "\n");
}

function shown(properties) {
  const copy = { ...properties };
  if (copy.correlationData) copy.correlationData = copy.correlationData.toString("base64");
  return copy;
}

function given(properties) {
  if (!properties) return undefined;
  const copy = { ...properties };
  if (copy.correlationData) copy.correlationData = Buffer.from(copy.correlationData, "base64");
  return copy;
}

function urlOf(address) {
  const scheme = SCHEMES[address.transport];
  if (address.transport === "unix") return `${scheme}://${address.path}`;
  const path = address.transport.startsWith("ws") ? "/mqtt" : "";
  return `${scheme}://${address.host}:${address.port}${path}`;
}

const commands = {
  connect(c, done) {
    const options = {
      clientId: c.client_id,
      protocolVersion: c.version,
      clean: c.clean_start,
      reconnectPeriod: 0, // a lost connection is a fact the test wants to see
      resubscribe: false, // and what the broker remembers is what is tested
    };
    if (c.address.ca) options.ca = fs.readFileSync(c.address.ca);
    if (c.will) options.will = { ...c.will, payload: Buffer.from(c.will.payload, "base64") };
    if (c.version === 5) {
      options.properties = { sessionExpiryInterval: c.session_expiry };
      if (c.topic_alias_maximum) {
        options.properties.topicAliasMaximum = c.topic_alias_maximum;
        options.autoAssignTopicAlias = true;
      }
    }
    client = mqtt.connect(urlOf(c.address), options);
    client.on("message", (topic, payload, packet) => {
      const { qos, retain, properties } = packet;
      say({ message: { topic, payload: payload.toString("base64"), qos, retain, properties: shown(properties) } });
    });
    client.once("error", (error) => done(error));
    client.once("connect", (connack) => {
      client.removeAllListeners("error");
      client.on("error", (error) => process.stderr.write(`mqtt.js: ${error}\n`));
      done(null, { session_present: connack.sessionPresent });
    });
  },
  subscribe(c, done) {
    client.subscribe(c.topic_filter, { qos: c.qos }, (error, granted) => done(error, { granted: granted?.[0]?.qos }));
  },
  unsubscribe(c, done) {
    client.unsubscribe(c.topic_filter, (error) => done(error));
  },
  publish(c, done) {
    const { qos, retain } = c;
    const properties = given(c.properties);
    const options = properties ? { qos, retain, properties } : { qos, retain };
    client.publish(c.topic, Buffer.from(c.payload, "base64"), options, (error) => done(error));
  },
  disconnect(c, done) {
    client.end(false, {}, () => done(null));
  },
};

readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const command = JSON.parse(line);
    const { number } = command;
    commands[command.command](command, (error, answer) =>
      say(error ? { number, error: String(error) } : { number, ...answer }),
    );
  })
  .on("close", () => {
    if (client && client.connected) client.end(false, {}, () => process.exit(0));
    else process.exit(0);
  });
