// The cluster: a map of nodes and links, what each does, drains and plans, and what happened as it happens.

import { act } from "../api.js";
import { perform, toast } from "../dialog.js";
import { clock, count, fill, h, milliseconds, missing, panel, percent, svg } from "../dom.js";

const NONE = {
  missing: "This node is no part of a cluster.",
  hint: "tidegate cluster up --edges 2     and then     tidegate console --port PORT_OF_THE_HEAD",
};

function open(main, context) {
  const none = h("section", { class: "panel" }, missing(NONE));
  const map = h("div");
  const table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes" });
  const budgets = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Latency budgets" });
  const phase = h("div", { class: "grid" });
  const log = h("ul", { class: "log", tabindex: "0", "aria-label": "Events" });
  const rest = h(
    "div",
    { class: "grid", hidden: true },
    h("div", { class: "grid split" }, panel("Map", map), panel("As it happens", log)),
    panel("Nodes", table),
    h("div", { class: "grid two" }, panel("Latency budgets", budgets), panel("Plans, drains and balancing", phase)),
  );
  main.append(none, rest);

  function update(_, found) {
    none.hidden = found.nodes.length > 0;
    rest.hidden = found.nodes.length === 0;
    fill(map, found.nodes, () => drawMap(found.nodes));
    fill(table, [found.nodes, found.drains], () => nodeTable(found, context));
    fill(budgets, found.nodes.map((node) => node.budgets), () => budgetTable(found.nodes));
    fill(phase, [found.plans, found.drains, found.balance], () => operations(found));
    fill(log, found.events, () => found.events.map((event) => h("li", {}, h("time", {}, clock(event.at)), event.text)));
  }

  return { update };
}

function utilisation(node) {
  const used = node.utilisation;
  return typeof used === "number" ? Math.max(0, used) : null;
}

function drawMap(nodes) {
  const heads = nodes.filter((node) => node.role === "head");
  const edges = nodes.filter((node) => node.role !== "head");
  const wide = Math.max(heads.length, edges.length, 2) * 176;
  const top = heads.length > 2 ? 48 : 16; // room for links over the heads between two others
  const image = svg("svg", { class: "map", viewBox: `0 0 ${wide} ${top + (edges.length ? 264 : 100)}`, role: "img", "aria-label": `${heads.length} heads and ${edges.length} edges` });
  const place = (list, index) => ((index + 0.5) * wide) / list.length;
  const link = (one, other, path) =>
    image.append(svg("path", { class: one.linked === false || other.linked === false ? "link down" : "link", "data-link": `${one.name} ${other.name}`, d: path }));
  heads.forEach((head, index) => {
    heads.slice(index + 1).forEach((other, step) => {
      const [x1, x2] = [place(heads, index), place(heads, index + 1 + step)];
      link(head, other, step ? `M${x1} ${top} C${x1} 0 ${x2} 0 ${x2} ${top}` : `M${x1} ${top + 40} L${x2} ${top + 40}`);
    });
  });
  edges.forEach((edge, index) => {
    const own = heads.filter((head) => head.name === edge.head);
    for (const head of own.length ? own : heads) {
      const [x1, x2] = [place(heads, heads.indexOf(head)), place(edges, index)];
      link(edge, head, `M${x1} ${top + 80} C${x1} ${top + 134} ${x2} ${top + 114} ${x2} ${top + 168}`);
    }
  });
  const box = (node, x, y) => {
    image.append(svg("rect", { class: `box ${node.load ?? ""}`, x: x - 78, y, width: 156, height: 80, rx: 10 }));
    const text = (line, words, kind = "") => image.append(svg("text", { x, y: y + line, "text-anchor": "middle", class: kind }, words));
    text(24, node.name);
    text(42, `${node.role}, ${count(node.clients)} clients`, "soft");
    const used = utilisation(node);
    if (used === null) text(60, `${count(node.queued_messages)} queued, load ${(node.load ?? "").toLowerCase()}`, "soft");
    else {
      image.append(svg("rect", { class: "meter", x: x - 60, y: y + 52, width: 120, height: 6, rx: 3 }));
      image.append(svg("rect", { class: "used", x: x - 60, y: y + 52, width: 120 * Math.min(1, used), height: 6, rx: 3 }));
      text(72, `uplink ${percent(used)}`, "soft");
    }
  };
  heads.forEach((node, index) => box(node, place(heads, index), top));
  edges.forEach((node, index) => box(node, place(edges, index), top + 168));
  return image;
}

function nodeTable(found, context) {
  const numbers = ["clients", "sessions", "subscriptions", "queued_messages"];
  const hasUse = found.nodes.some((node) => utilisation(node) !== null);
  const hasQueues = found.nodes.some((node) => Object.keys(node.waiting ?? {}).length);
  const queues = (node) => Object.entries(node.waiting ?? {}).slice(0, 3).map(([topic, depth]) => `${topic} ${count(depth)}`).join(", ");
  return h(
    "table",
    {},
    h(
      "thead",
      {},
      h("tr", {}, h("th", {}, "Node"), h("th", {}, "Role"), h("th", {}, "Link"), h("th", {}, "Load"), ["Clients", "Sessions", "Subscriptions", "Queued"].map((name) => h("th", { class: "right" }, name)), hasUse ? h("th", { class: "right" }, "Uplink") : null, hasQueues ? h("th", {}, "Longest queues") : null, h("th", {}, h("span", { class: "visually-hidden" }, "Actions"))),
    ),
    h(
      "tbody",
      {},
      found.nodes.map((node) =>
        h(
          "tr",
          {},
          h("td", { class: "mono", title: node.address }, node.name),
          h("td", {}, node.role),
          h("td", {}, node.linked === false ? h("span", { class: "badge bad" }, "lost") : h("span", { class: "badge good" }, "up")),
          h("td", {}, h("span", { class: `badge ${{ LOW: "good", HIGH: "warn", OVERLOAD: "bad" }[node.load] ?? ""}` }, (node.load ?? "–").toLowerCase())),
          numbers.map((name) => h("td", { class: "right num" }, count(node[name]))),
          hasUse ? h("td", { class: "right num" }, utilisation(node) === null ? "–" : percent(utilisation(node))) : null,
          hasQueues ? h("td", { class: "mono" }, queues(node) || "–") : null,
          h("td", { class: "right nowrap" }, node.role === "edge" && context.isOperator ? actions(node.name, found.drains[node.name]) : null),
        ),
      ),
    ),
  );
}

function budgetTable(nodes) {
  const rows = nodes.flatMap((node) => (node.budgets ?? []).map((each) => ({ node: node.name, ...each })));
  if (!rows.length) return h("p", { class: "soft" }, "No edge counts by topic: give its uplink (cluster.uplink), or wait until one is used up.");
  const share = (row) => (typeof row.wait === "number" ? row.wait / row.budget : 1);
  const badge = (used) => (used >= 1 ? "bad" : used >= 0.5 ? "warn" : "good");
  rows.sort((one, other) => share(other) - share(one));
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Edge"), h("th", {}, "Topic"), ["Subscribers", "May wait", "Waits", "Used"].map((name) => h("th", { class: "right" }, name)))),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          {},
          h("td", { class: "mono" }, row.node),
          h("td", { class: "mono" }, row.topic),
          h("td", { class: "right num" }, count(row.subscribers)),
          h("td", { class: "right num" }, milliseconds(row.budget * 1000)),
          h("td", { class: "right num" }, typeof row.wait === "number" ? milliseconds(row.wait * 1000) : "stands still"),
          h("td", { class: "right" }, h("span", { class: `badge ${badge(share(row))}` }, percent(share(row)))),
        ),
      ),
    ),
  );
}

function actions(name, drain) {
  const isDrained = drain && ["running", "done"].includes(drain.state);
  const plan = h("button", { type: "button", class: "small", onclick: () => showPlan(name) }, "Plan");
  const button = isDrained
    ? h("button", { type: "button", class: "small", onclick: () => resume(name) }, "Take clients again")
    : h("button", { type: "button", class: "small", onclick: () => drainNode(name) }, "Drain");
  return [plan, " ", button];
}

async function showPlan(name) {
  try {
    toast(await act("plan", { node: name }));
  } catch (error) {
    toast(error.message, true);
  }
}

function drainNode(name) {
  perform(
    { title: `Drain ${name}?`, text: "Every client that can be moved goes to another edge, with its session; new ones are sent elsewhere until you let it take clients again.", confirm: "Drain", danger: true },
    "drain",
    { node: name },
  );
}

function resume(name) {
  perform({ title: `Let ${name} take clients again?`, text: "A drain that is running stops; what was moved stays moved.", confirm: "Take clients again" }, "resume", { node: name });
}

function operations({ plans, drains, balance }) {
  const parts = [];
  if (balance.step) parts.push(h("div", {}, h("h3", {}, `Balancing (${balance.policy ?? "–"}): ${balance.step}`)));
  for (const phase of [...balance.phases].reverse()) {
    const end = phase.is_timed_out ? "timed out" : phase.is_over ? "done" : "running";
    parts.push(
      h("div", {}, h("h3", {}, `Phase ${phase.number}: ${phase.edge} was in trouble (${phase.metric}), ${end}`), h("ul", {}, phase.moves.map((move) => h("li", {}, move)))),
    );
  }
  for (const drain of Object.values(drains)) {
    const total = drain.total ?? 0;
    parts.push(
      h("div", {}, h("h3", {}, `Drain of ${drain.node}: ${drain.state}`), h("p", { class: "soft" }, `${count(drain.moved)} of ${count(total)} moved, ${count(drain.failed)} failed, ${count(drain.stay ?? 0)} stay`)),
    );
  }
  for (const plan of Object.values(plans)) {
    const targets = Object.entries(plan.targets ?? {}).map(([target, number]) => `${count(number)} to ${target}`);
    parts.push(h("div", {}, h("h3", {}, `If ${plan.node} were drained`), h("p", { class: "soft" }, targets.length ? `${targets.join(", ")}; ${count(plan.stay)} stay` : "nobody would move")));
  }
  return parts.length ? parts : [h("p", { class: "soft" }, "Nothing is planned, and nobody is being moved.")];
}

export default { title: "Cluster", channels: ["cluster"], open };
