// Shared subscriptions: who does how much of the work, how fast, and why the last message went where it went.

import { get } from "../api.js";
import { Chart } from "../chart.js";
import { amount, count, fill, h, milliseconds, percent } from "../dom.js";

const COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c7", "--c8", "--c6"];
const KEPT = 300;

function open(main) {
  const views = new Map();
  const empty = h("section", { class: "panel", hidden: true }, h("div", { class: "empty" }, h("p", {}, "Nobody shares a subscription."), h("code", {}, "tidegate sub -t '$share/crew/jobs/#' -q 1")));
  main.append(empty);

  function update(_, { groups, at }) {
    empty.hidden = groups.length > 0;
    const seen = new Set();
    for (const group of groups) {
      const key = `${group.group}/${group.filter}`;
      seen.add(key);
      if (!views.has(key)) {
        views.set(key, new GroupView(group));
        main.append(views.get(key).element);
      }
      views.get(key).update(group, at);
    }
    for (const [key, view] of views) {
      if (!seen.has(key)) {
        view.close();
        views.delete(key);
      }
    }
  }

  return {
    update,
    redraw: () => views.forEach((view) => view.chart.draw()),
    onReconnect: () => views.forEach((view) => view.load()),
    close: () => views.forEach((view) => view.chart.close()),
  };
}

class GroupView {
  constructor(group) {
    this.group = group;
    this.columns = { at: [] };
    this.sent = {};
    this.head = h("div", { class: "bar" });
    this.why = h("p", { class: "why" });
    this.table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Members of ${group.group}` });
    this.chart = new Chart({ title: "Share over time", note: "messages a second, by member", series: [], format: amount, stacked: true, seconds: 300 });
    this.element = h(
      "div",
      { class: "grid split" },
      h("section", { class: "panel" }, h("header", {}, h("h2", { class: "mono" }, `$share/${group.group}/${group.filter}`), this.head), h("div", { class: "inner grid" }, this.why, this.table)),
      this.chart.element,
    );
    this.load();
  }

  close() {
    this.chart.close();
    this.element.remove();
  }

  async load() {
    const found = await get("/api/group", { group: this.group.group, filter: this.group.filter });
    this.columns = { at: found.at, ...found.members };
    this.sent = {};
    this.draw();
  }

  draw() {
    const names = Object.keys(this.columns).filter((name) => name !== "at").slice(0, COLORS.length);
    const text = names.join("\n");
    if (text !== this.names) {
      this.names = text;
      this.chart.setSeries(names.map((name, at) => ({ name, key: name, color: COLORS[at] })));
    }
    this.chart.set(this.columns);
  }

  update(group, at) {
    this.take(group, at);
    fill(this.head, [group.connected, group.total, group.outstanding, group.policy, group.moved], () => [
      h("span", { class: "soft" }, `${count(group.connected)} of ${count(group.total)} members here`),
      h("span", { class: "soft" }, `${count(group.outstanding)} unfinished`),
      group.moved ? h("span", { class: "soft" }, `${count(group.moved)} handed on`) : null,
      h("span", { class: "badge info" }, group.policy.replaceAll("_", " ")),
    ]);
    fill(this.why, group.why, () => (group.why ? [h("b", {}, "Last choice: "), group.why] : ["No message has come yet."]));
    fill(this.table, group.members, () => memberTable(group.members));
  }

  take(group, at) {
    const last = this.columns.at.at(-1);
    if (at && last === undefined) {
      this.columns = { at: [at], ...Object.fromEntries(group.members.map((member) => [member.client, [0]])) };
    } else if (at && at > last) {
      const seconds = at - last;
      this.columns.at.push(at);
      const known = new Set(group.members.map((member) => member.client));
      for (const member of group.members) {
        this.columns[member.client] ??= this.columns.at.slice(1).map(() => 0);
        const before = this.sent[member.client];
        this.columns[member.client].push(before === undefined ? 0 : Math.max(0, member.sent - before) / seconds);
      }
      for (const name of Object.keys(this.columns)) {
        if (name !== "at" && !known.has(name)) this.columns[name].push(0);
        if (this.columns[name].length > KEPT) this.columns[name].splice(0, this.columns[name].length - KEPT);
      }
      this.draw();
    }
    this.sent = Object.fromEntries(group.members.map((member) => [member.client, member.sent]));
  }
}

function memberTable(members) {
  return h(
    "table",
    {},
    h("thead", {}, h("tr", {}, h("th", {}, "Member"), h("th", {}, "State"), h("th", { class: "right" }, "Unfinished"), h("th", { class: "right" }, "Takes"), h("th", { class: "right" }, "Free in"), h("th", {}, "Share"))),
    h(
      "tbody",
      {},
      members.map((member) => {
        const bar = h("i");
        bar.style.width = `${member.share * 100}%`;
        const state = !member.is_connected ? ["", "away"] : member.is_stalled ? ["bad", "stalled"] : ["good", member.reports ? "reports" : "here"];
        return h(
          "tr",
          {},
          h("td", { class: "id mono", title: member.client }, member.client),
          h("td", {}, h("span", { class: `badge ${state[0]}` }, state[1])),
          h("td", { class: "right num" }, count(member.outstanding)),
          h("td", { class: "right num nowrap" }, member.service_ms ? milliseconds(member.service_ms) : "–"),
          h("td", { class: "right num nowrap" }, milliseconds(member.expected_ms)),
          h("td", {}, h("div", { class: "bar nowrap" }, h("div", { class: "share", "aria-hidden": "true" }, bar), h("span", { class: "num" }, percent(member.share)))),
        );
      }),
    ),
  );
}

export default { title: "Shared groups", channels: ["groups"], open };
