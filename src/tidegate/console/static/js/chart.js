// Lines over time on a canvas: no library, some hundred points, redrawn when there is a new one.

import { clock, h } from "./dom.js";

const PAD = { left: 54, right: 10, top: 10, bottom: 22 };

export class Chart {
  // series: [{name, key, color}], keys of columns; format turns a value into words; stacked adds them up.
  constructor({ title, series, format, note = "", stacked = false, seconds = 600 }) {
    this.series = series;
    this.format = format;
    this.stacked = stacked;
    this.seconds = seconds;
    this.columns = { at: [] };
    this.canvas = h("canvas", { role: "img", "aria-label": title });
    this.title = title;
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("div", { class: "legend push" });
    this.element = h(
      "section",
      { class: "panel" },
      h("header", {}, h("h2", {}, title), note ? h("span", { class: "soft" }, note) : null, this.legend),
      h("div", { class: "inner" }, h("figure", { class: "chart" }, this.canvas, this.tip)),
    );
    this.setSeries(series);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.hover = null;
  }

  setSeries(series) {
    this.series = series;
    this.legend.replaceChildren(
      ...series.map((each) => {
        const mark = h("i");
        mark.style.background = `var(${each.color})`;
        return h("span", {}, mark, each.name);
      }),
    );
  }

  close() {
    this.observer.disconnect();
  }

  set(columns) {
    this.columns = columns;
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    const at = this.columns.at ?? [];
    const last = at.length ? at[at.length - 1] : Date.now() / 1000;
    const span = this.span(at, last);
    const first = last - span;
    let start = 0;
    while (start < at.length && at[start] < first) start += 1;
    const lines = this.lines(start);
    const peak = Math.max(0, ...lines.map((line) => Math.max(0, ...line.values.filter((value) => value !== null))));
    const ticks = niceTicks(peak);
    const top = ticks[ticks.length - 1];
    const x = (time) => PAD.left + ((time - first) / span) * (width - PAD.left - PAD.right);
    const y = (value) => height - PAD.bottom - (value / top) * (height - PAD.top - PAD.bottom);
    this.scale = { x, y, start, first, width };

    ctx.font = `11px ${style.fontFamily || "sans-serif"}`;
    ctx.textBaseline = "middle";
    ctx.lineWidth = 1;
    for (const tick of ticks) {
      ctx.strokeStyle = color("--line");
      ctx.beginPath();
      ctx.moveTo(PAD.left, Math.round(y(tick)) + 0.5);
      ctx.lineTo(width - PAD.right, Math.round(y(tick)) + 0.5);
      ctx.stroke();
      ctx.fillStyle = color("--soft");
      ctx.textAlign = "right";
      ctx.fillText(this.format(tick), PAD.left - 8, y(tick));
    }
    ctx.textAlign = "center";
    for (const share of [0, 0.5, 1]) {
      const ago = (1 - share) * span;
      ctx.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
      const words = ago === 0 ? "now" : ago < 120 ? `${ago} s ago` : `${ago / 60} min ago`;
      ctx.fillText(words, x(first + share * span), height - 8);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(PAD.left, 0, width - PAD.left - PAD.right + 1, height - PAD.bottom + 1);
    ctx.clip();
    for (const [index, line] of [...lines.entries()].reverse()) {
      this.line(ctx, line, at, start, x, y, color(line.color), this.stacked || index === 0);
    }
    ctx.restore();
    if (this.hover !== null && this.hover < at.length) {
      ctx.strokeStyle = color("--line-strong");
      ctx.beginPath();
      ctx.moveTo(Math.round(x(at[this.hover])) + 0.5, PAD.top);
      ctx.lineTo(Math.round(x(at[this.hover])) + 0.5, height - PAD.bottom);
      ctx.stroke();
    }
    const latest = this.series.map((each) => `${each.name} ${this.format((this.columns[each.key] ?? []).at(-1) ?? null)}`);
    canvas.setAttribute("aria-label", `${this.title}, now: ${latest.join(", ")}`);
  }

  // The shortest of some spans that shows all there is: a chart that has just begun is not a line at its edge.
  span(at, last) {
    const known = at.length ? last - at[0] : 0;
    return [60, 120, 300, 600].find((each) => each >= known || each >= this.seconds) ?? this.seconds;
  }

  lines(start) {
    const sums = [];
    return this.series.map((each) => {
      const values = (this.columns[each.key] ?? []).slice(start);
      if (!this.stacked) return { color: each.color, values, base: null };
      const base = values.map((_, at) => sums[at] ?? 0);
      const total = values.map((value, at) => (value ?? 0) + base[at]);
      total.forEach((value, at) => {
        sums[at] = value;
      });
      return { color: each.color, values: total, base };
    });
  }

  line(ctx, line, at, start, x, y, color, isFilled) {
    ctx.strokeStyle = color;
    ctx.lineWidth = 1.75;
    ctx.lineJoin = "round";
    let run = [];
    const flush = () => {
      if (run.length) {
        if (isFilled) {
          ctx.globalAlpha = this.stacked ? 0.35 : 0.12;
          ctx.fillStyle = color;
          ctx.beginPath();
          run.forEach(([time, value], index) => (index ? ctx.lineTo(x(time), y(value)) : ctx.moveTo(x(time), y(value))));
          for (const [time, , base] of [...run].reverse()) ctx.lineTo(x(time), y(base ?? 0));
          ctx.closePath();
          ctx.fill();
          ctx.globalAlpha = 1;
        }
        ctx.beginPath();
        run.forEach(([time, value], index) => (index ? ctx.lineTo(x(time), y(value)) : ctx.moveTo(x(time), y(value))));
        ctx.stroke();
      }
      run = [];
    };
    line.values.forEach((value, index) => {
      const time = at[start + index];
      // A gap of some seconds is a time in which nobody told anything: no line across it.
      if (value === null || (run.length && time - run[run.length - 1][0] > 6)) flush();
      if (value !== null) run.push([time, value, line.base ? line.base[index] : 0]);
    });
    flush();
  }

  point(event) {
    const at = this.columns.at ?? [];
    if (!this.scale || at.length === 0) return;
    const left = event.offsetX;
    let best = this.scale.start;
    for (let index = this.scale.start; index < at.length; index += 1) {
      if (Math.abs(this.scale.x(at[index]) - left) < Math.abs(this.scale.x(at[best]) - left)) best = index;
    }
    this.hover = best;
    this.tip.replaceChildren(
      h("div", { class: "soft" }, clock(at[best])),
      ...this.series.map((each) => h("div", {}, `${each.name} `, h("b", {}, this.format((this.columns[each.key] ?? [])[best] ?? null)))),
    );
    this.tip.hidden = false;
    const place = this.scale.x(at[best]);
    this.tip.style.left = place > this.scale.width / 2 ? "" : `${place + 12}px`;
    this.tip.style.right = place > this.scale.width / 2 ? `${this.scale.width - place + 12}px` : "";
    this.draw();
  }

  leave() {
    this.hover = null;
    this.tip.hidden = true;
    this.draw();
  }
}

export function niceTicks(peak) {
  if (!(peak > 0)) return [0, 1];
  const rough = peak / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let value = 0; value < peak + step * 0.999; value += step) ticks.push(value);
  return ticks;
}
