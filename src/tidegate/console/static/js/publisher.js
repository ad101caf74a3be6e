// How a publisher looks wherever it is shown.

import { amount, h } from "./dom.js";

const BADGES = { held: "bad", suspicious: "warn", training: "info", normal: "good" };

export function verdict(row) {
  return h("span", { class: `badge ${BADGES[row.state] ?? ""}` }, row.excused > 0 ? "released" : row.state || "unknown");
}

// The mark in the middle is the habit; a full bar is twice as fast, or more. Whoever is held wants to be faster than it
// is let through, so its rate says nothing of that: the bar is full.
export function pace(row) {
  const isHeld = row.state === "held";
  const share = row.trained_rate > 0 ? Math.min(1, row.rate / row.trained_rate / 2) : 0;
  const isOver = row.trained_rate > 0 && row.rate > 1.25 * row.trained_rate;
  const bar = h("div", { class: `fill ${isHeld ? "held" : isOver ? "over" : ""}` });
  bar.style.width = `${isHeld ? 100 : share * 100}%`;
  const track = h("div", { class: "track", "aria-hidden": "true" }, bar);
  if (row.trained_rate > 0) track.append(h("div", { class: "mark" }));
  const title = isHeld ? "what it is let through; it wants to be faster" : "";
  return h("div", { class: "pace", title }, track, h("span", { class: "num right" }, `${amount(row.rate)}/s`));
}

// What it may send: its habit, or what is usual for all where that is less.
export function allowance(row) {
  if (row.allowed > 0 && row.allowed < row.trained_rate) return `${amount(row.allowed)}/s, as is usual for all; its own habit is ${amount(row.trained_rate)}/s`;
  if (row.allowed > 0) return `${amount(row.allowed)}/s`;
  return row.trained_rate ? `${amount(row.trained_rate)}/s` : "not known yet";
}
