// Line drawings for the menu, 24 by 24.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M4 19V9m5 10V5m5 14v-8m5 8V8",
  publishers: "M12 20v-8m0 0 4 3m-4-3-4 3M5 9a10 10 0 0 1 14 0M8 5.500a14 14 0 0 1 8 0",
  groups: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm8 0a3 3 0 1 0 0-6M3 19c0-3 2.200-5 5-5s5 2 5 5m3-5c2.800 0 5 2 5 5",
  cluster: "M12 4v5m0 0-6 6m6-6 6 6M9 4h6v4H9zM3 15h6v5H3zm12 0h6v5h-6z",
  rpc: "M4 8h13m0 0-4-4m4 4-4 4M20 16H7m0 0 4-4m-4 4 4 4",
  spaces: "M6 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4Zm12 4a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM8 21a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM8 5.500l8 3M7 7l1 10m2 1 7-8",
  policy: "M5 4h10l4 4v12H5zM9 12h6m-6 4h6m-6-8h3",
  reports: "M4 20h16M6 16l4-5 3 3 5-7",
};

export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" },
    svg("path", { d: PATHS[name] }),
  );
}
