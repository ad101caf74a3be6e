// Small tools: elements, and numbers in words people read.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  add(element, children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

// Replaces the content only if its key differs, so that focus and selection survive what did not change.
export function fill(element, key, make) {
  const text = JSON.stringify(key);
  if (element.dataset.key === text) return;
  element.dataset.key = text;
  element.replaceChildren(...[make()].flat(Infinity).filter((each) => each !== null && each !== false));
}

export function panel(title, ...content) {
  const head = h("header", {}, typeof title === "string" ? h("h2", {}, title) : title);
  return h("section", { class: "panel" }, head, h("div", { class: "inner" }, ...content));
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function amount(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  if (size >= 100) return whole.format(value);
  return size === 0 ? "0" : value.toFixed(size < 0.995 ? 2 : 1);
}

function trim(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let size = value;
  while (size >= 1000 && at < units.length - 1) {
    size /= 1000;
    at += 1;
  }
  return `${at === 0 || size >= 100 ? size.toFixed(0) : size.toFixed(1)} ${units[at]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10000 ? 0 : 1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of parts) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export function moment(text) {
  if (!text) return "–";
  const at = new Date(typeof text === "number" ? text * 1000 : text);
  return Number.isNaN(at.getTime()) ? String(text) : at.toLocaleString([], { dateStyle: "medium", timeStyle: "short", hour12: false });
}

export function day(text) {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? String(text) : at.toLocaleDateString([], { dateStyle: "medium" });
}

export function percent(share) {
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

// Work every so many seconds, never twice at a time, and not while nobody sees the page; what it returns ends it.
export function repeat(seconds, work) {
  let timer = null;
  let isOver = false;
  async function run() {
    timer = null;
    if (!document.hidden) await work();
    if (!isOver) timer = setTimeout(run, seconds * 1000);
  }
  run();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}

export function missing(found) {
  return h("div", { class: "empty" }, h("p", {}, found.missing), found.hint ? h("code", {}, found.hint) : null);
}

export function throttle(seconds, work) {
  let timer = null;
  let again = false;
  return function run() {
    if (timer !== null) {
      again = true;
      return;
    }
    work();
    timer = setTimeout(() => {
      timer = null;
      if (again) {
        again = false;
        run();
      }
    }, seconds * 1000);
  };
}
