// Spaces of RDF triples: their version, size and load, asked for every two seconds, each by itself: one that hangs is
// waited for, and the others are not.

import { poll } from "../api.js";
import { amount, count, fill, h, milliseconds, missing, repeat } from "../dom.js";

function open(main, context) {
  const names = context.session.spaces.length ? context.session.spaces : ["default"];
  const input = h("input", { "aria-label": "Name of a space", placeholder: "Name of a space", pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]*", maxlength: "64" });
  const form = h("form", { class: "bar" }, input, h("button", {}, "Show"));
  const list = h("div", { class: "grid two" });
  const looks = new Map(); // what ends them, by name
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value && input.validity.valid) {
      follow(input.value);
      input.value = "";
    }
  });
  main.append(form, list);

  function follow(name) {
    if (looks.has(name)) return;
    const body = h("div", { class: "inner" });
    list.append(h("section", { class: "panel" }, h("header", {}, h("h2", { class: "mono" }, name)), body));
    looks.set(name, repeat(2, () => lookAt(name, body)));
  }

  names.forEach(follow);
  return { close: () => looks.forEach((end) => end()) };
}

async function lookAt(name, body) {
  let found;
  try {
    found = await poll(`/api/spaces/${encodeURIComponent(name)}`);
  } catch (error) {
    found = { missing: error.message, hint: error.hint };
  }
  fill(body, found, () => card(found));
}

function card(found) {
  if (found.missing) return missing(found);
  if (found.problem) return missing({ missing: found.problem, hint: found.hint });
  const load = found.load ?? {};
  const seconds = (value) => (value === undefined ? "–" : milliseconds(value * 1000));
  return h(
    "dl",
    { class: "facts" },
    Object.entries({
      "Version": found.version || "–",
      "Triples": count(found.triples),
      "A request takes": seconds(load.processing),
      "A request waits": seconds(load.queueing),
      "Could serve": load.capacity === undefined ? "–" : `${amount(load.capacity)} requests a second`,
      "Watchers": count(load.watchers ?? 0),
    }).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

export default { title: "Spaces", channels: [], open };
