// Calls to devices: where the time goes, how calls end, and tasks that failed for good.

import { perform } from "../dialog.js";
import { count, fill, h, milliseconds, missing, moment, panel } from "../dom.js";

const GOOD = { ack: "good", nack: "warn", timeout: "bad", refused: "bad", expired: "bad" };

function open(main, context) {
  const none = h("section", { class: "panel", hidden: true });
  const hops = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Time by hop" });
  const outcomes = h("div", { class: "bar" });
  const dead = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Dead tasks" });
  const rest = h("div", { class: "grid", hidden: true }, panel("How calls ended", outcomes), panel("Where the time goes", hops), panel("Dead tasks", dead));
  main.append(none, rest);

  function update(_, found) {
    const isQuiet = !found.heard && !found.dead_total;
    none.hidden = !isQuiet;
    rest.hidden = isQuiet;
    fill(none, found.missing, () => missing(found.missing));
    fill(outcomes, found.outcomes, () => {
      const pairs = Object.entries(found.outcomes);
      return pairs.length ? pairs.map(([name, number]) => h("span", { class: `badge ${GOOD[name] ?? ""}` }, `${name} ${count(number)}`)) : [h("span", { class: "soft" }, "No call has ended yet.")];
    });
    fill(hops, found.hops, () => hopTable(found.hops));
    fill(dead, found.dead, () => deadTable(found, context));
  }

  return { update };
}

function hopTable(hops) {
  const longest = Math.max(1e-9, ...hops.map((hop) => hop.p95 ?? 0));
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Hop"), h("th", {}, "95 % within"), ["50 %", "95 %", "99 %", "Calls"].map((name) => h("th", { class: "right" }, name)))),
    h(
      "tbody",
      {},
      hops.map((hop) => {
        const bar = h("i");
        bar.style.width = `${Math.min(100, ((hop.p95 ?? 0) / longest) * 100)}%`;
        return h(
          "tr",
          {},
          h("td", {}, hop.name === "total" ? h("b", {}, hop.words) : hop.words),
          h("td", {}, h("div", { class: "share", "aria-hidden": "true" }, bar)),
          [hop.p50, hop.p95, hop.p99].map((value) => h("td", { class: "right num nowrap" }, milliseconds(value))),
          h("td", { class: "right num" }, count(hop.count)),
        );
      }),
    ),
  );
}

function deadTable(found, context) {
  if (!found.dead.length) return h("div", { class: "empty" }, "No task of the mqtt backend has failed for good.");
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Task"), h("th", {}, "Kind"), h("th", { class: "right" }, "Attempts"), h("th", {}, "Why"), h("th", {}, "Made"), h("th", {}, h("span", { class: "visually-hidden" }, "Actions")))),
    h(
      "tbody",
      {},
      found.dead.map((task) =>
        h(
          "tr",
          {},
          h("td", { class: "id mono", title: task.id }, task.id),
          h("td", {}, task.kind),
          h("td", { class: "right num" }, count(task.attempt)),
          h("td", {}, task.reason || "–"),
          h("td", { class: "nowrap" }, moment(task.created)),
          h("td", { class: "right nowrap" }, context.isOperator ? [
            h("button", { type: "button", class: "small", onclick: () => perform({ title: `Do ${task.id} again?`, text: "It goes on the queue with three more minutes; devices that did their part do not do it twice.", confirm: "Replay" }, "rpc-replay", { task: task.id }) }, "Replay"),
            " ",
            h("button", { type: "button", class: "small", onclick: () => perform({ title: `Drop ${task.id}?`, text: "It is gone for good.", confirm: "Drop", danger: true }, "rpc-drop", { task: task.id }) }, "Drop"),
          ] : null),
        ),
      ),
    ),
  );
}

export default { title: "RPC", channels: ["rpc"], open };
