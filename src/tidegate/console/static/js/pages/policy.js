// Policy snapshots: which one is in force, where it came from, what changed, and a way forward and back.

import { poll } from "../api.js";
import { perform } from "../dialog.js";
import { count, fill, h, missing, moment, panel, repeat } from "../dom.js";

function open(main, context) {
  const none = h("section", { class: "panel", hidden: true });
  const now = h("div", { class: "bar" });
  const versions = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Snapshots" });
  const changes = h("div", { class: "grid two" });
  const rest = h("div", { class: "grid", hidden: true }, panel("In force", now), panel("What changed", changes), panel("Snapshots", versions));
  main.append(none, rest);
  let inForce = "";
  let shown = "";

  async function load() {
    try {
      show(await poll("/api/policy"));
    } catch (error) {
      show({ missing: error.message, hint: error.hint });
    }
  }

  function show(found) {
    none.hidden = !found.missing;
    rest.hidden = Boolean(found.missing);
    if (found.missing) {
      fill(none, found, () => missing(found));
      return;
    }
    inForce = found.in_force;
    const current = found.versions.find((each) => each.version === found.current);
    fill(now, [found.current, inForce], () => [
      h("b", { class: "mono" }, found.current ?? "none"),
      current ? h("span", { class: "soft" }, `learnt from ${moment(current.input_from)} to ${moment(current.input_to)}, written ${moment(current.created)}`) : null,
      inForce === found.current && inForce ? h("span", { class: "badge good" }, "the node follows it") : h("span", { class: "badge warn" }, inForce ? `the node still has ${inForce}` : "the node follows none"),
      context.isOperator && found.history.length
        ? h("button", { type: "button", onclick: () => perform({ title: "Roll back the policy?", text: `What was current before, ${found.history.at(-1)}, becomes current again.`, confirm: "Roll back", danger: true }, "policy-rollback", {}).then(load) }, "Roll back")
        : null,
    ]);
    fill(versions, [found.versions, found.current], () => versionTable(found, context, load));
    compare(found);
  }

  async function compare(found) {
    const before = found.history.at(-1);
    const key = `${before} ${found.current}`;
    if (key === shown) return;
    shown = key;
    const say = (words) => fill(changes, words, () => [h("p", { class: "soft" }, words)]);
    if (!found.current) say("No snapshot is current.");
    else if (!before) say("This is the first snapshot in force; there is nothing to compare it with.");
    else if (before === found.current) say("What was current before is current again; nothing changed.");
    else {
      try {
        const diff = await poll("/api/policy/diff", { old: before, new: found.current });
        if (key === shown) fill(changes, diff, () => differences(diff));
      } catch (error) {
        if (key !== shown) return; // something else is shown by now
        fill(changes, [error.message, error.hint], () => missing({ missing: error.message, hint: error.hint }));
        shown = ""; // another try with the next look
      }
    }
  }

  const stop = repeat(2, load);
  return { update: (_, found) => found.in_force !== inForce && load(), close: stop };
}

function versionTable(found, context, reload) {
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Version"), h("th", {}, "Written"), h("th", {}, "Rows"), h("th", {}, "Notes"), h("th", {}, h("span", { class: "visually-hidden" }, "Actions")))),
    h(
      "tbody",
      {},
      found.versions.map((each) =>
        h(
          "tr",
          {},
          h("td", { class: "mono" }, each.version, " ", each.version === found.current ? h("span", { class: "badge good" }, "current") : null),
          h("td", { class: "nowrap" }, each.problem ?? moment(each.created)),
          h("td", {}, Object.entries(each.tables ?? {}).map(([name, rows]) => `${name} ${count(rows)}`).join(", ")),
          h("td", {}, each.notes || ""),
          h("td", { class: "right" }, context.isOperator && each.version !== found.current && !each.problem
            ? h("button", { type: "button", class: "small", onclick: () => perform({ title: `Apply ${each.version}?`, text: "It is read and checked, and nodes that follow the folder take it within seconds.", confirm: "Apply" }, "policy-apply", { version: each.version }).then(reload) }, "Apply")
            : null),
        ),
      ),
    ),
  );
}

const TABLES = {
  baselines: { words: "Publishers", names: ["Publisher"], unit: "messages a second" },
  members: { words: "Members", names: ["Group", "Member"], unit: "seconds a message" },
};
const KINDS = { new: ["that are new", ["now"]], gone: ["that are gone", ["before"]], changed: ["with another pace", ["before", "now"]] };
const SHOWN = 20;

function differences({ old, new: fresh, sizes, differences: found }) {
  const rowsOf = Object.entries(sizes).map(([name, [before, after]]) => `${name} ${count(before)} to ${count(after)} rows`);
  const parts = [h("p", { class: "soft full" }, `${old} to ${fresh}: ${rowsOf.join(", ")}`)];
  for (const [table, kinds] of Object.entries(found)) {
    const { words, names, unit } = TABLES[table];
    for (const [kind, { total, rows }] of Object.entries(kinds)) {
      if (!total) continue;
      const [which, values] = KINDS[kind];
      const heads = [...names.slice(0, rows[0].length - values.length), ...values.map((value) => `${value}, ${unit}`)];
      parts.push(
        h("div", {}, h("h3", {}, `${words} ${which}: ${count(total)}`),
          h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${words} ${which}` }, h("table", { class: "narrow" },
            h("thead", {}, h("tr", {}, heads.map((head, at) => h("th", { class: at < rows[0].length - values.length ? "" : "right" }, head)))),
            h("tbody", {}, rows.slice(0, SHOWN).map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: at < row.length - values.length ? "mono" : "right num" }, cell))))))),
          total > SHOWN ? h("p", { class: "soft" }, `and ${count(total - SHOWN)} more: tidegate policy diff shows them`) : null),
      );
    }
  }
  if (parts.length === 1) parts.push(h("p", {}, "No publisher and no member changed its pace by half or more."));
  return parts;
}

export default { title: "Policy", channels: ["policy"], open };
