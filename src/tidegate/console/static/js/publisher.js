// How a publisher looks wherever it is shown.

import { amount, h } from "./dom.js";

const BADGES = { held: "bad", suspicious: "warn", training: "info", normal: "good" };

export function verdict(row) {
  return h("span", { class: `badge ${BADGES[row.state] ?? ""}` }, row.excused > 0 ? "released" : row.state || "unknown");
}

// The mark in the middle is the habit; a full bar is twice as fast, or more.
export function pace(row) {
  const share = row.trained_rate > 0 ? Math.min(1, row.rate / row.trained_rate / 2) : 0;
  const isOver = row.trained_rate > 0 && row.rate > 1.25 * row.trained_rate;
  const bar = h("div", { class: `fill ${row.state === "held" ? "held" : isOver ? "over" : ""}` });
  bar.style.width = `${share * 100}%`;
  const track = h("div", { class: "track", "aria-hidden": "true" }, bar);
  if (row.trained_rate > 0) track.append(h("div", { class: "mark" }));
  return h("div", { class: "pace" }, track, h("span", { class: "num right" }, `${amount(row.rate)}/s`));
}
