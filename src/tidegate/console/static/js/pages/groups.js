// Shared subscriptions: who does how much of the work, how fast, and why the last message went where it went.

import { poll } from "../api.js";
import { Chart } from "../chart.js";
import { amount, count, fill, h, milliseconds, percent } from "../dom.js";
import { Shares } from "../shares.js";


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
    this.shares = new Shares();
    this.head = h("div", { class: "bar" });
    this.why = h("p", { class: "why" });
    this.table = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Members of $share/${group.group}/${group.filter}` });
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
    try {
      const found = await poll("/api/group", { group: this.group.group, filter: this.group.filter });
      this.shares.load(found.at, Object.entries(found.members));
    } catch {
      return; // the chart begins with what comes now
    }
    this.draw();
  }

  draw() {
    const { series, columns } = this.shares.chart();
    const text = JSON.stringify(series);
    if (text !== this.names) {
      this.names = text;
      this.chart.setSeries(series);
    }
    this.chart.set(columns);
  }

  update(group, at) {
    if (this.shares.take(group.members, at)) this.draw();
    fill(this.head, [group.connected, group.total, group.outstanding, group.policy, group.moved], () => [
      h("span", { class: "soft" }, `${count(group.connected)} of ${count(group.total)} members here`),
      h("span", { class: "soft" }, `${count(group.outstanding)} unfinished`),
      group.moved ? h("span", { class: "soft" }, `${count(group.moved)} handed on`) : null,
      h("span", { class: "badge info" }, group.policy.replaceAll("_", " ")),
    ]);
    fill(this.why, group.why, () => (group.why ? [h("b", {}, "Last choice: "), group.why] : ["No message has come yet."]));
    fill(this.table, group.members, () => memberTable(group.members));
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
