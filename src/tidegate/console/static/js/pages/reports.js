// Reports of the pipeline and of the lab, and what the lake holds.

import { get, poll, Refused } from "../api.js";
import { bytes, count, day, fill, h, missing, moment, panel, repeat } from "../dom.js";

function open(main, _context, [name]) {
  if (name) {
    showOne(main, name);
    return {};
  }
  return { close: showAll(main) };
}

function showAll(main) {
  const reports = h("div");
  const lake = h("div");
  main.append(h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Reports")), reports), panel("Lake", lake));

  return repeat(2, async () => {
    let found;
    try {
      found = await poll("/api/reports");
    } catch (error) {
      found = { reports: [], reports_missing: { missing: error.message, hint: error.hint }, lake_missing: { missing: error.message, hint: error.hint } };
    }
    fill(reports, [found.reports, found.reports_missing], () => reportList(found));
    fill(lake, [found.lake, found.lake_missing], () => (found.lake ? lakeTable(found.lake) : missing(found.lake_missing)));
  });
}

function reportList(found) {
  if (found.reports_missing) return missing(found.reports_missing);
  if (!found.reports.length) return h("div", { class: "empty" }, "No report was found in the folders that were named.");
  return h(
    "ul",
    { class: "list" },
    found.reports.map((report) =>
      h("li", {}, h("a", { href: `#/reports/${report.name}` }, h("span", { class: "badge info" }, report.kind), h("b", {}, report.title), h("span", { class: "soft" }, `${report.place}, ${when(report)}`))),
    ),
  );
}

// A file of a checkout is as old as the checkout; what was measured when is in the page itself.
function when({ measured, modified }) {
  if (!measured) return moment(modified);
  const [first, last] = measured.map(day);
  return first === last ? `measured ${first}` : `measured ${first} to ${last}`;
}

function lakeTable(rows) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tables of the lake" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", {}, "Table"), ["Rows", "Files", "Size"].map((each) => h("th", { class: "right" }, each)), h("th", {}, "First"), h("th", {}, "Last"), h("th", {}, "Nodes"))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("td", { class: "mono" }, row.table), h("td", { class: "right num" }, count(row.rows)), h("td", { class: "right num" }, count(row.files)), h("td", { class: "right num nowrap" }, bytes(row.size_bytes)), h("td", {}, moment(row.first)), h("td", {}, moment(row.last)), h("td", {}, row.nodes.join(", "))))),
    ),
  );
}

async function showOne(main, name) {
  const back = h("p", {}, h("a", { href: "#/reports" }, "All reports"));
  try {
    const report = await get(`/api/reports/${encodeURIComponent(name)}`);
    if (report.missing) throw new Refused(404, { error: report.missing, hint: report.hint });
    const body = h("div", { class: "inner report" });
    if (report.frame) body.append(h("iframe", { src: report.frame, sandbox: "allow-scripts", title: report.title }));
    // Rendered by the server from Markdown, without any HTML of its own.
    else body.innerHTML = report.html;
    body.querySelectorAll("h1").forEach((head) => head.replaceWith(h("h2", {}, head.textContent)));
    body.querySelectorAll("table").forEach((table, index) => {
      const region = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table ${index + 1}` });
      table.replaceWith(region);
      region.append(table);
    });
    main.append(back, h("section", { class: "panel" }, body));
  } catch (error) {
    main.append(back, h("section", { class: "panel" }, missing({ missing: error.message, hint: error.hint })));
  }
}

export default { title: "Reports", channels: [], open };
