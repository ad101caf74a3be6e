// Messages a second of each member of a group over time, for its chart. Members may have any name, so they are keys of
// maps only; those that are gone and have no message left in sight are forgotten.

const COLORS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c7", "--c8"];
const OTHERS = "--c6";
const KEPT = 300;

export class Shares {
  constructor() {
    this.at = [];
    this.rates = new Map();
    this.colors = new Map();
    this.sent = new Map(); // counters at the time `sentAt`
    this.sentAt = null;
  }

  // The past as the server has it; counters are kept, so that the next point is no false 0.
  load(at, members) {
    this.at = [...at];
    this.rates = new Map(members.map(([name, rates]) => [name, [...rates]]));
  }

  // Whether there is a new point.
  take(members, at) {
    const last = this.at.at(-1);
    const isNew = Boolean(at) && (last === undefined || at > last);
    if (isNew) this.add(members, at);
    if (at && at !== this.sentAt) {
      this.sent = new Map(members.map((member) => [member.client, member.sent]));
      this.sentAt = at;
    }
    return isNew;
  }

  add(members, at) {
    const known = this.at.length;
    const seconds = this.sentAt === null ? 0 : at - this.sentAt;
    this.at.push(at);
    const here = new Set();
    for (const member of members) {
      here.add(member.client);
      if (!this.rates.has(member.client)) this.rates.set(member.client, Array(known).fill(0));
      const before = this.sent.get(member.client);
      this.rates.get(member.client).push(before === undefined || !(seconds > 0) ? 0 : Math.max(0, member.sent - before) / seconds);
    }
    for (const [name, rates] of this.rates) {
      if (!here.has(name)) rates.push(0);
      if (rates.length > KEPT) rates.splice(0, rates.length - KEPT);
      if (!here.has(name) && rates.every((rate) => rate === 0)) this.rates.delete(name);
    }
    if (this.at.length > KEPT) this.at.splice(0, this.at.length - KEPT);
  }

  // The members with the most messages in sight, a colour each that they keep, and all others together.
  chart() {
    const total = (name) => this.rates.get(name).reduce((sum, rate) => sum + rate, 0);
    const totals = new Map([...this.rates.keys()].map((name) => [name, total(name)]));
    const ordered = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one) || (one < other ? -1 : 1));
    const top = ordered.slice(0, COLORS.length).sort();
    for (const name of this.colors.keys()) if (!top.includes(name)) this.colors.delete(name);
    for (const name of top) {
      if (!this.colors.has(name)) this.colors.set(name, COLORS.find((color) => ![...this.colors.values()].includes(color)));
    }
    const columns = { at: this.at };
    const series = top.map((name, index) => {
      columns[`m${index}`] = this.rates.get(name);
      return { name, key: `m${index}`, color: this.colors.get(name) };
    });
    const rest = ordered.slice(COLORS.length).map((name) => this.rates.get(name));
    if (rest.length) {
      columns.others = this.at.map((_, index) => rest.reduce((sum, rates) => sum + (rates[index] ?? 0), 0));
      series.push({ name: `${rest.length} others`, key: "others", color: OTHERS });
    }
    return { series, columns };
  }
}
