// All publishers: rate against habit, verdict, hold, rank and class. Rows come in windows; trouble is on top.

import { poll } from "../api.js";
import { perform, sheet } from "../dialog.js";
import { amount, bytes, count, fill, h, throttle } from "../dom.js";
import { allowance, pace, verdict } from "../publisher.js";
import { VirtualTable } from "../vtable.js";

const STATES = ["held", "suspicious", "training", "normal"];
const DOWN_FIRST = new Set(["rate", "trained", "hold"]);

function open(main, context, [wanted]) {
  const view = { sort: "trouble", isDown: false, search: wanted ?? "", state: "" };
  const search = h("input", { type: "search", placeholder: "Client, user or address", "aria-label": "Search publishers", value: view.search });
  const summary = h("span", { class: "soft", role: "status" });
  const trouble = h("button", { type: "button", class: "chip", "aria-pressed": "true", onclick: () => sortBy("trouble") }, "Trouble first");
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Verdict" });
  let detail = null;

  const table = new VirtualTable({
    label: "Publishers",
    columns: [
      { label: "Client", width: "minmax(140px, 2fr)", narrow: "minmax(0, 1.4fr)", sort: "client", cell: (row) => h("span", { class: "mono", title: row.client }, row.client) },
      { label: "User", width: "minmax(70px, 1fr)", sort: "user", wide: true, cell: (row) => row.user || h("span", { class: "soft" }, "–") },
      { label: "Rate", width: "minmax(150px, 1.6fr)", narrow: "minmax(0, 1.2fr)", sort: "rate", cell: pace },
      { label: "Habit", width: "80px", sort: "trained", right: true, wide: true, cell: (row) => (row.trained_rate ? `${amount(row.trained_rate)}/s` : "–") },
      { label: "Verdict", width: "118px", narrow: "104px", sort: "state", cell: verdict },
      { label: "Hold", width: "74px", sort: "hold", right: true, wide: true, cell: (row) => (row.hold ? `${row.hold.toFixed(2)} s` : "–") },
      { label: "Rank", width: "64px", sort: "rank", right: true, wide: true, cell: (row) => (row.rank ? count(row.rank) : "–") },
      { label: "Class", width: "90px", sort: "class", wide: true, cell: (row) => row.pinned || row.class_name || h("span", { class: "soft" }, "by rate") },
    ],
    sort: { by: view.sort, isDown: view.isDown },
    onSort: sortBy,
    load,
    onOpen: showOne,
    keyOf: (row) => row.client,
  });
  main.append(
    h("div", { class: "bar" }, search, trouble, chips, summary),
    h("section", { class: "panel" }, table.element),
  );
  search.addEventListener(
    "input",
    throttle(0.15, () => {
      view.search = search.value;
      table.reset();
      table.refresh();
    }),
  );

  function sortBy(name) {
    if (name === view.sort && name !== "trouble") view.isDown = !view.isDown;
    else view.isDown = DOWN_FIRST.has(name);
    view.sort = name;
    trouble.setAttribute("aria-pressed", String(name === "trouble"));
    table.showSort({ by: view.sort, isDown: view.isDown });
    table.reset();
    table.refresh();
  }

  async function load(start, number) {
    let found;
    try {
      found = await poll("/api/publishers", {
        start, count: number, sort: view.sort, order: view.isDown ? "down" : "up", search: view.search, state: view.state,
      });
    } catch {
      return null; // the banner says what is wrong
    }
    const all = STATES.reduce((sum, state) => sum + (found.counts[state] ?? 0), 0);
    fill(chips, [found.counts, view.state], () =>
      ["", ...STATES].map((state) =>
        h(
          "button",
          {
            type: "button", class: "chip", "aria-pressed": String(view.state === state),
            onclick: () => {
              view.state = state;
              table.reset();
              table.refresh();
            },
          },
          `${state || "all"} ${count(state ? found.counts[state] ?? 0 : all)}`,
        ),
      ),
    );
    const text = found.is_complete ? `${count(found.matching)} shown` : `${count(found.matching)} of those known so far`;
    if (summary.textContent !== text) summary.textContent = text;
    followOne(found.rows);
    return { rows: found.rows, start: found.start, total: found.matching };
  }

  // The one in detail may be far from the rows in sight, or gone.
  async function followOne(rows) {
    if (!detail) return;
    const { client } = detail;
    let row = rows.find((each) => each.client === client);
    if (!row) {
      try {
        row = (await poll("/api/publisher", { client })).row;
      } catch {
        return; // the banner says what is wrong
      }
    }
    if (detail?.client !== client) return;
    if (row) drawOne(row);
    else fill(detail.content, null, () => [h("div", { class: "bar" }, h("span", { class: "badge" }, "gone")), h("p", { class: "soft" }, "It publishes no more, or is not connected.")]);
  }

  function showOne(row) {
    const content = h("div", { class: "grid" });
    // Apart from what changes every second, or whoever uses the keyboard would lose its place.
    const actions = context.isOperator
      ? h("div", { class: "bar" }, h("button", { type: "button", onclick: () => release(detail.row) }, "Release"), h("button", { type: "button", onclick: () => pin(detail.row) }, "Set class"))
      : h("p", { class: "soft" }, `Actions need the operator role: ${context.session.how_to_act}.`);
    const dialog = sheet(row.client, [content, actions]);
    detail = { client: row.client, content, row };
    dialog.addEventListener("close", () => {
      detail = null;
    });
    drawOne(row);
  }

  function drawOne(row) {
    detail.row = row;
    fill(detail.content, row, () => [
      h("div", { class: "bar" }, verdict(row), row.state === "held" ? h("span", { class: "soft" }, `for ${row.hold.toFixed(2)} s at a time`) : null),
      pace(row),
      h(
        "dl",
        { class: "facts" },
        facts({
          "Rate": `${amount(row.rate)} messages a second${row.state === "held" ? ", as it is let through" : ""}`,
          "May send": allowance(row),
          "Habit": row.trained_rate ? `${amount(row.trained_rate)} messages a second` : "not known yet",
          "Times its habit": row.trained_rate && row.state !== "held" ? amount(row.rate / row.trained_rate) : "–",
          "Kept back": bytes(row.held_bytes),
          "Rank": row.rank ? `${count(row.rank)}, 1 is served first` : "–",
          "Class": row.pinned ? `${row.pinned}, by an operator` : row.class_name || "by its rate",
          "Not held for": row.excused ? `${row.excused.toFixed(0)} s` : "–",
          "User": row.user || "none",
          "Address": row.address || "–",
        }),
      ),
    ]);
  }

  function release(row) {
    const seconds = h("select", {}, [[60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"]].map(([value, words]) => h("option", { value }, words)));
    perform(
      {
        title: `Release ${row.client}?`,
        text: "It may send as fast as it likes for this time, whatever that does to others.",
        confirm: "Release",
        fields: [{ label: "For", input: seconds }],
      },
      "release",
      ([chosen]) => ({ client: row.client, seconds: Number(chosen) }),
    ).then(() => table.refresh());
  }

  function pin(row) {
    const band = h(
      "select",
      {},
      [["urgent", "urgent: before all others"], ["normal", "normal: by its rate"], ["bulk", "bulk: after all others"], ["", "none: as the settings say"]].map(([value, words]) => h("option", { value, selected: value === row.pinned }, words)),
    );
    perform(
      {
        title: `Set the class of ${row.client}?`,
        text: "It holds until the node is started again; the settings file is where a class stays.",
        confirm: "Set class",
        fields: [{ label: "Class", input: band }],
      },
      "pin",
      ([chosen]) => ({ client: row.client, band: chosen || null }),
    ).then(() => table.refresh());
  }

  table.refresh();
  return { update: () => table.refreshSoon(), onReconnect: () => table.refresh(), close: () => table.close() };
}

function facts(pairs) {
  return Object.entries(pairs).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

export default { title: "Publishers", channels: ["publishers"], open };
