// A table of any number of rows of which only those in sight exist. Rows come from `load(start, count)`.

import { h, throttle } from "./dom.js";

const ROW = 42;
const SPARE = 8;

export class VirtualTable {
  // columns: [{name, label, width, sort, cell(row), right, wide}]
  constructor({ label, columns, sort, onSort, load, onOpen, keyOf }) {
    this.columns = columns;
    this.load = load;
    this.onOpen = onOpen;
    this.keyOf = keyOf;
    this.total = 0;
    this.rows = new Map();
    this.drawn = new Map();
    this.active = 0;
    this.asked = 0;
    this.space = h("div", { class: "vspace" });
    this.scroller = h("div", { class: "vbody", role: "rowgroup", tabindex: "-1" }, this.space);
    this.heads = columns.map((column) =>
      h(
        "div",
        { role: "columnheader", class: `${column.right ? "right " : ""}${column.wide ? "wide" : ""}`, "aria-sort": "none" },
        column.sort ? h("button", { type: "button", onclick: () => onSort(column.sort) }, column.label) : column.label,
      ),
    );
    this.element = h(
      "div",
      { class: "vtable", role: "table", "aria-label": label },
      h("div", { role: "rowgroup" }, h("div", { class: "vhead", role: "row" }, this.heads)),
      this.scroller,
    );
    this.setColumns();
    this.showSort(sort);
    this.media = window.matchMedia("(max-width: 860px)");
    this.onMedia = () => this.setColumns();
    this.media.addEventListener("change", this.onMedia);
    this.refreshSoon = throttle(0.12, () => this.refresh());
    this.scroller.addEventListener("scroll", () => {
      this.draw();
      this.refreshSoon();
    });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.refreshSoon());
    this.observer.observe(this.scroller);
  }

  close() {
    this.observer.disconnect();
    this.media.removeEventListener("change", this.onMedia);
  }

  setColumns() {
    const isNarrow = window.matchMedia("(max-width: 860px)").matches;
    const shown = this.columns.filter((column) => !(isNarrow && column.wide));
    this.element.style.setProperty("--columns", shown.map((column) => (isNarrow && column.narrow) || column.width).join(" "));
  }

  showSort({ by, isDown }) {
    this.heads.forEach((head, index) => {
      const { sort, label } = this.columns[index];
      const isHere = sort && sort === by;
      head.setAttribute("aria-sort", isHere ? (isDown ? "descending" : "ascending") : "none");
      const button = head.querySelector("button");
      if (button) button.textContent = isHere ? `${label} ${isDown ? "↓" : "↑"}` : label;
    });
  }

  window() {
    const start = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - SPARE);
    return { start, count: Math.ceil((this.scroller.clientHeight || 600) / ROW) + 2 * SPARE };
  }

  reset() {
    this.rows.clear();
    this.scroller.scrollTop = 0;
    this.active = 0;
  }

  // Asks for the rows in sight; an answer that was overtaken by another one is dropped.
  async refresh() {
    const { start, count } = this.window();
    const number = (this.asked += 1);
    const found = await this.load(start, count);
    if (found === null || number !== this.asked) return;
    this.total = found.total;
    const before = this.rows.get(this.active);
    this.rows = new Map(found.rows.map((row, index) => [found.start + index, row]));
    this.follow(before);
  }

  // The row somebody is at may be elsewhere now: the focus goes with it, and not to whoever took its place. If it is out of
  // sight or gone, the focus is with the table: Enter opens nobody, and the arrows go on from where it was.
  follow(before) {
    const isHere = this.space.contains(document.activeElement);
    const place = isHere && before !== undefined ? this.find(this.keyOf(before)) : this.active;
    if (place !== null) this.active = place;
    this.draw();
    const element = place === null ? this.scroller : this.drawn.get(this.active)?.element;
    if (isHere && element && element !== document.activeElement) element.focus({ preventScroll: true });
  }

  find(key) {
    for (const [index, row] of this.rows) if (this.keyOf(row) === key) return index;
    return null;
  }

  draw() {
    const { start, count } = this.window();
    const end = Math.min(this.total, start + count);
    this.space.style.height = `${this.total * ROW}px`;
    this.element.setAttribute("aria-rowcount", String(this.total + 1));
    this.active = Math.min(this.active, Math.max(0, this.total - 1));
    for (const [index, drawn] of this.drawn) {
      if (index < start || index >= end) {
        drawn.element.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = start; index < end; index += 1) {
      const row = this.rows.get(index);
      if (row === undefined) continue;
      const text = JSON.stringify(row);
      let drawn = this.drawn.get(index);
      if (!drawn) {
        const element = h("div", { class: "vrow", role: "row", "aria-rowindex": String(index + 2) });
        element.style.top = `${index * ROW}px`;
        element.addEventListener("click", () => this.open(index));
        element.addEventListener("focus", () => {
          this.active = index;
        });
        drawn = { element, text: "" };
        this.drawn.set(index, drawn);
        this.space.append(element);
      }
      drawn.element.tabIndex = index === this.active ? 0 : -1;
      if (drawn.text !== text) {
        drawn.text = text;
        drawn.element.replaceChildren(
          ...this.columns.map((column) =>
            h("div", { role: "cell", class: `${column.right ? "right num " : ""}${column.wide ? "wide" : ""}` }, column.cell(row)),
          ),
        );
      }
    }
    if (![...this.drawn.values()].some((drawn) => drawn.element.tabIndex === 0)) {
      const firstShown = this.drawn.get(Math.ceil(this.scroller.scrollTop / ROW)) ?? this.drawn.values().next().value;
      if (firstShown) firstShown.element.tabIndex = 0;
    }
  }

  open(index) {
    const row = this.rows.get(index);
    if (row !== undefined) {
      this.active = index;
      this.onOpen(row);
    }
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.total, End: this.total };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (event.target !== this.scroller) this.open(this.active);
    } else if (event.key in steps) {
      event.preventDefault();
      this.active = Math.max(0, Math.min(this.total - 1, this.active + steps[event.key]));
      const top = this.active * ROW;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + ROW > this.scroller.scrollTop + this.scroller.clientHeight) {
        this.scroller.scrollTop = top + ROW - this.scroller.clientHeight;
      }
      this.draw();
      this.refresh().then(() => this.drawn.get(this.active)?.element.focus());
      this.drawn.get(this.active)?.element.focus();
    }
  }
}
