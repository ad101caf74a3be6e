// The frame: pages by the address behind #, the menu, what is known of the node, theme, login.

import { logIn, logOut, poll, session, whenLoggedOut } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { fill, h, throttle } from "./dom.js";
import { icon } from "./icons.js";
import { Live } from "./live.js";
import cluster from "./pages/cluster.js";
import groups from "./pages/groups.js";
import overview from "./pages/overview.js";
import policy from "./pages/policy.js";
import publishers from "./pages/publishers.js";
import reports from "./pages/reports.js";
import rpc from "./pages/rpc.js";
import spaces from "./pages/spaces.js";

const PAGES = { overview, publishers, groups, cluster, rpc, spaces, policy, reports };
const LOADS = { LOW: ["good", "load low"], HIGH: ["warn", "load high"], OVERLOAD: ["bad", "overload"] };
const byId = (id) => document.getElementById(id);

const context = { session: null, isOperator: false, past: null };
let live = null;
let page = null;
let isStreamOpen = true;
let closedAt = 0; // when the stream was lost
let node = {};
let channels = [];
let patience = 1; // seconds until a stream that was refused is asked for again
let reviving = null;
const LONGEST = 30;

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { name: Object.hasOwn(PAGES, name) ? name : "overview", rest: rest.map(decode) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a % that somebody typed
  }
}

function show() {
  const { name, rest } = route();
  closeDialogs();
  page?.close?.();
  const main = byId("main");
  main.replaceChildren();
  document.title = `${PAGES[name].title} · Tidegate`;
  byId("title").textContent = PAGES[name].title;
  for (const link of byId("nav").children) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  setMenu(false);
  page = PAGES[name].open(main, context, rest);
  channels = PAGES[name].channels ?? [];
  follow();
}

// The stream of the page that is shown. A page that nobody sees has none: browsers keep about six connections to a
// host, and as many tabs would leave none for anything else.
function follow() {
  live?.close();
  live = null;
  if (document.hidden) return;
  live = new Live(channels, {
    onState: (isOpen, isRefused) => {
      if (isOpen) patience = 1;
      if (isOpen && !isStreamOpen) page.onReconnect?.();
      if (!isOpen && isStreamOpen) closedAt = Date.now() / 1000;
      isStreamOpen = isOpen;
      drawNode();
      if (isRefused) reviveLater();
    },
    onEvent: (channel, state) => {
      if (channel === "node") {
        if (node.is_connected === false && state.is_connected) page.onReconnect?.();
        node = state;
        drawNode();
      } else page.update?.(channel, state);
    },
    onLogout: showLogin,
  });
}

function reviveLater() {
  clearTimeout(reviving);
  reviving = setTimeout(revive, patience * 1000);
  patience = Math.min(LONGEST, patience * 2);
}

// Too many pages are open, or the console was started anew and knows our session no more: another, or the password.
async function revive() {
  try {
    const found = await session(poll);
    if (found.token === context.session.token) follow();
    else begin(found);
  } catch (error) {
    if (error.status !== 401) reviveLater();
  }
}

// Whoever does something keeps the session, though most of it needs no answer of the server. Without accounts none ends.
const used = throttle(60, () => {
  if (context.session?.has_accounts && !byId("shell").hidden) session().catch(() => {}); // the banner says what is wrong
});

function seen() {
  if (document.hidden) {
    live?.close();
    live = null;
  } else if (context.session && !byId("shell").hidden && live === null) {
    follow();
    page?.onReconnect?.();
  }
}

// Why what is shown is the past, and since when; null while it is the present.
function findPast() {
  if (!isStreamOpen) return { words: "The console does not answer", since: closedAt };
  if (node.is_connected === false) return { words: "Not connected", since: node.since };
  return node.since ? { words: "The node has said nothing", since: node.since } : null;
}

function drawNode() {
  const past = findPast();
  if (JSON.stringify(past) !== JSON.stringify(context.past)) {
    context.past = past;
    page?.onPast?.(past);
  }
  const [level, words] = LOADS[node.state] ?? ["", ""];
  fill(byId("node"), [node, isStreamOpen], () => [
    node.name ? h("span", { class: "name" }, node.name) : null,
    h("span", { class: "address" }, node.address ?? ""),
    isStreamOpen && node.is_connected
      ? h("span", { class: `badge ${level}` }, words || "connected")
      : h("span", { class: "badge bad" }, "not connected"),
  ]);
  const banner = byId("banner");
  const [text, hint] = !isStreamOpen
    ? ["The console does not answer.", "It is gone, or too many pages are open. This one goes on by itself; the node is not affected."]
    : node.is_connected === false
      ? [`The node cannot be reached: ${node.problem}`, "The console tries again every few seconds."]
      : node.problem
        ? [`Something is missing: ${node.problem}`, ""]
        : node.is_silent
          ? ["The node tells nothing about itself.", "features.sys_interval is 0 there, or it is no Tidegate node."]
        : node.is_stale
          ? ["The node has said nothing for some seconds.", "It is overloaded, or features.sys_interval is 0."]
          : ["", ""];
  banner.hidden = !text;
  fill(banner, [text, hint], () => [text, hint ? h("span", { class: "hint" }, hint) : null]);
}

function setMenu(isOpen) {
  byId("shell").classList.toggle("open", isOpen);
  byId("menu").setAttribute("aria-expanded", String(isOpen));
}

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("tidegate-theme", theme);
  } catch {
    return; // a browser that keeps nothing still shows it
  }
  page?.redraw?.();
}

function storedTheme() {
  try {
    const found = localStorage.getItem("tidegate-theme");
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto";
  }
}

function showLogin() {
  closeDialogs();
  clearTimeout(reviving);
  live?.close();
  live = null;
  page?.close?.();
  page = null;
  byId("shell").hidden = true;
  document.title = "Log in · Tidegate";
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const error = h("p", { class: "error", role: "alert" });
  const button = h("button", { class: "primary" }, "Log in");
  const form = h(
    "form",
    { class: "panel" },
    h("div", { class: "brand" }, h("img", { src: "/static/icon.svg", alt: "", width: 34, height: 34 }), h("h1", {}, "Tidegate")),
    h("label", { class: "field" }, "User name", user),
    h("label", { class: "field" }, "Password", password),
    error,
    button,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    error.textContent = "";
    try {
      begin(await logIn(user.value, password.value));
    } catch (problem) {
      error.textContent = problem.message;
      password.value = "";
      password.focus();
    } finally {
      button.disabled = false;
    }
  });
  byId("login").replaceChildren(h("main", { class: "login" }, form));
  byId("login").hidden = false;
  user.focus();
}

function begin(found) {
  context.session = found;
  context.isOperator = found.role === "operator";
  byId("login").hidden = true;
  byId("login").replaceChildren();
  byId("who").textContent = found.has_accounts ? `${found.user}, ${found.role}` : context.isOperator ? "On this machine" : "Read only";
  byId("logout").hidden = !found.has_accounts;
  byId("shell").hidden = false;
  show();
}

async function start() {
  byId("nav").replaceChildren(
    ...Object.entries(PAGES).map(([name, each]) => h("a", { href: `#/${name}`, "data-page": name }, icon(name), each.title)),
  );
  setTheme(storedTheme());
  byId("theme").addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length]);
  });
  byId("logout").addEventListener("click", () => logOut());
  byId("menu").addEventListener("click", () => setMenu(byId("menu").getAttribute("aria-expanded") !== "true"));
  document.querySelector(".body").addEventListener("pointerdown", (event) => {
    if (!event.target.closest("#menu")) setMenu(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") setMenu(false);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  window.addEventListener("hashchange", () => {
    if (context.session && !byId("shell").hidden) {
      show();
      byId("main").focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page?.redraw?.());
  document.addEventListener("visibilitychange", seen);
  for (const kind of ["pointerdown", "keydown", "wheel"]) document.addEventListener(kind, used, { capture: true, passive: true });
  window.addEventListener("hashchange", used); // also by the browser's own buttons
  whenLoggedOut(showLogin);
  try {
    begin(await session());
  } catch (error) {
    if (error.status !== 401) showLogin();
  }
}

start();
