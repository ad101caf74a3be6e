// What is happening, and why: the numbers of now, a quarter of an hour behind them, and words for what stands out.

import { poll } from "../api.js";
import { Chart } from "../chart.js";
import { amount, bytes, clock, count, duration, fill, h, milliseconds, panel, percent } from "../dom.js";
import { pace, verdict } from "../publisher.js";

const KEPT = 900;

const TILES = [
  ["in", "Messages in", "/s"],
  ["out", "Messages out", "/s"],
  ["latency", "Latency", ""],
  ["lag", "Loop lag", ""],
  ["connections", "Connections", ""],
  ["memory", "Memory", ""],
  ["dropped", "Dropped", ""],
  ["held", "Held publishers", ""],
];

function open(main, context) {
  const tiles = Object.fromEntries(
    TILES.map(([name, label, unit]) => {
      const value = h("span", {}, "–");
      const more = h("div", { class: "more" });
      const element = h(
        "div",
        { class: "panel tile", "data-tile": name },
        h("div", { class: "label" }, label),
        h("div", { class: "value" }, value, unit ? h("small", {}, unit) : null),
        more,
      );
      return [name, { element, value, more }];
    }),
  );
  const charts = [
    new Chart({
      title: "Throughput",
      note: "messages a second",
      series: [
        { name: "in", key: "received", color: "--c1" },
        { name: "out", key: "sent", color: "--c2" },
      ],
      format: amount,
    }),
    new Chart({
      title: "Latency",
      note: "publish to delivery",
      series: [
        { name: "round trip", key: "latency_ms", color: "--c1" },
        { name: "wait", key: "wait_ms", color: "--c3" },
      ],
      format: milliseconds,
    }),
    new Chart({
      title: "Loop lag and held publishers",
      series: [
        { name: "lag in ms", key: "lag_ms", color: "--c5" },
        { name: "held", key: "held", color: "--c2" },
      ],
      format: amount,
    }),
    new Chart({
      title: "Memory",
      series: [
        { name: "resident", key: "memory_bytes", color: "--c3" },
        { name: "queued", key: "queued_bytes", color: "--c4" },
      ],
      format: bytes,
    }),
    new Chart({
      title: "Connections",
      series: [{ name: "connected", key: "connections", color: "--c4" }],
      format: amount,
    }),
    new Chart({
      title: "Drops",
      note: "messages a second",
      series: [
        { name: "for slow readers", key: "lost", color: "--c5" },
        { name: "of held publishers", key: "shed", color: "--c7" },
      ],
      format: amount,
    }),
  ];
  const numbers = h("div", { class: "tiles" }, Object.values(tiles).map((tile) => tile.element));
  const notes = h("ul", { class: "notes" });
  const top = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Publishers that matter most" });
  const queues = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Longest queues" });
  const accounts = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Accounts that cost most" });
  const publishersLink = h("a", { href: "#/publishers", class: "push" }, "All publishers");
  const publishers = panel("Publishers", top);
  publishers.querySelector("header").append(publishersLink);
  main.append(
    numbers,
    panel("What is going on", notes),
    h("div", { class: "grid two" }, charts.slice(0, 2).map((chart) => chart.element)),
    h("div", { class: "grid two" }, publishers, panel("Queues", queues)),
    panel("Accounts", accounts),
    h("div", { class: "grid two" }, charts.slice(2).map((chart) => chart.element)),
  );

  let columns = { at: [] };
  let isLoaded = false;
  let said = { words: [], isKnown: false };
  let past = context.past;

  async function load() {
    isLoaded = false;
    try {
      columns = await poll("/api/history");
    } catch {
      columns = {}; // the charts begin now; the banner says what is wrong
    }
    columns.at ??= [];
    isLoaded = true;
    draw();
  }

  function draw() {
    for (const chart of charts) chart.set(columns);
  }

  function take(point) {
    if (!isLoaded || !point || point.at === undefined || point.at === columns.at.at(-1)) return;
    const known = columns.at.length;
    for (const [name, value] of Object.entries(point)) {
      columns[name] ??= Array(known).fill(null);
      columns[name].push(value);
      if (columns[name].length > KEPT) columns[name].shift();
    }
    draw();
  }

  function set(name, value, more = "") {
    if (tiles[name].value.textContent !== value) tiles[name].value.textContent = value;
    if (tiles[name].more.textContent !== more) tiles[name].more.textContent = more;
  }

  function update(_, { pulse, point, latency, notes: words, queues: rows, top: best, queues_total, publishers_total, accounts: users, accounts_total }) {
    const load = pulse.load ?? {};
    set("in", amount(point.received), `${bytes(point.bytes_received)}/s`);
    set("out", amount(point.sent), `${bytes(point.bytes_sent)}/s`);
    set("latency", milliseconds(latency.latest), pulse.uptime === undefined ? "" : latency.p95 === null ? "no right to measure" : `95 % within ${milliseconds(latency.p95)}`);
    set("lag", milliseconds(load.lag_ms ?? null), `wait ${milliseconds(load.wait_ms ?? null)}`);
    set("connections", count(pulse.connections), `${count(pulse.sessions)} sessions`);
    set("memory", bytes(pulse.memory_bytes), load.memory_share === undefined ? "" : `${percent(load.memory_share)} of its bound`);
    set("dropped", count(pulse.dropped), pulse.shed ? `${amount(pulse.shed)} of held publishers` : `${amount(point.dropped)}/s now`);
    set("held", count(load.held), `up for ${duration(pulse.uptime)}`);
    take(point);
    said = { words, isKnown: pulse.uptime !== undefined };
    drawNotes();
    fill(top, best, () => publisherTable(best));
    publishersLink.textContent = publishers_total ? `All ${count(publishers_total)}` : "All publishers";
    fill(queues, [rows, queues_total], () => queueTable(rows, queues_total));
    fill(accounts, [users, accounts_total], () => accountTable(users, accounts_total));
  }

  // Whatever was said before is no word about now when the node, or the console, cannot be heard.
  function drawNotes() {
    numbers.classList.toggle("past", past !== null);
    fill(notes, [said, past], () => {
      if (past) return [h("li", {}, h("span", { class: "badge bad" }, "unknown"), `${past.words} since ${clock(past.since)}. The numbers are those of before.`)];
      if (said.words.length) return said.words.map((note) => h("li", {}, h("span", { class: `badge ${note.level}` }, { bad: "act", warn: "look", good: "handled" }[note.level]), h("a", { href: `#/${note.page}` }, note.text)));
      if (!said.isKnown) return [h("li", { class: "soft" }, "Nothing is known of the node yet.")];
      return [h("li", {}, h("span", { class: "badge good" }, "calm"), "Nothing stands out. Every publisher keeps to its habit, and nobody waits.")];
    });
  }

  function onPast(found) {
    past = found;
    drawNotes();
  }

  load();
  drawNotes();
  return { update, onPast, onReconnect: load, redraw: draw, close: () => charts.forEach((chart) => chart.close()) };
}

function publisherTable(rows) {
  if (!rows.length) return h("div", { class: "empty" }, "Nobody has published yet.");
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Client"), h("th", {}, "Pace against habit"), h("th", {}, "Verdict"))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("td", { class: "id mono", title: row.client }, row.client), h("td", {}, pace(row)), h("td", {}, verdict(row))))),
  );
}

function accountTable(rows, total) {
  if (!rows.length) return h("div", { class: "empty" }, "No account has anything here.");
  return [
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}, "User"), ...["Work", "Keeps", "Retained", "Sessions", "Connected"].map((name) => h("th", { class: "right" }, name)), h("th", {}, "Busiest client"))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            h("td", { class: "id mono", title: row.user }, row.user || h("span", { class: "soft" }, "without user name")),
            h("td", { class: "right num" }, percent(row.work)),
            h("td", { class: "right num nowrap" }, bytes(row.kept_bytes)),
            h("td", { class: "right num" }, count(row.retained)),
            h("td", { class: "right num" }, count(row.sessions)),
            h("td", { class: "right num" }, count(row.connected)),
            h("td", { class: "id mono", title: row.busiest }, row.busiest ? `${row.busiest} (${percent(row.busiest_work)})` : "–"),
          ),
        ),
      ),
    ),
    total > rows.length ? h("p", { class: "soft" }, `and ${count(total - rows.length)} more`) : null,
  ];
}

function queueTable(rows, total) {
  if (!rows.length) return h("div", { class: "empty" }, "Nothing waits for anybody.");
  return [
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}, "Client"), ...["Waiting", "Size", "In flight", "Dropped"].map((name) => h("th", { class: "right" }, name)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            h("td", { class: "id mono", title: row.is_connected ? row.client : `${row.client} (away)` }, row.client, row.is_connected ? "" : h("span", { class: "soft" }, " (away)")),
            h("td", { class: "right num" }, count(row.messages)),
            h("td", { class: "right num nowrap" }, bytes(row.size_bytes)),
            h("td", { class: "right num" }, count(row.inflight)),
            h("td", { class: "right num" }, count(row.dropped)),
          ),
        ),
      ),
    ),
    total > rows.length ? h("p", { class: "soft" }, `and ${count(total - rows.length)} more`) : null,
  ];
}

export default { title: "Overview", channels: ["overview"], open };
