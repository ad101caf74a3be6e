// Everything the page asks of its server. Actions carry the session's token; a lost session leads to the login.

let token = "";
let onLogout = () => {};

export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `the console answered ${status}`);
    this.status = status;
    this.hint = body.hint ?? "";
  }
}

export function whenLoggedOut(callback) {
  onLogout = callback;
}

async function read(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    body = {};
  }
  if (response.status === 401 && !response.url.endsWith("/api/login")) onLogout();
  if (!response.ok) throw new Refused(response.status, body);
  return body;
}

export async function get(path, query = {}, headers = {}) {
  const text = new URLSearchParams(query).toString();
  return read(await fetch(text ? `${path}?${text}` : path, { credentials: "same-origin", headers }));
}

// What a page asks for by itself, after some time or a lost connection: nobody need sit before it, so it keeps no session
// alive.
export function poll(path, query = {}) {
  return get(path, query, { "X-Tidegate-Poll": "1" });
}

async function post(path, content) {
  return read(
    await fetch(path, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-Tidegate-Token": token },
      body: JSON.stringify(content),
    }),
  );
}

export async function session(ask = get) {
  const found = await ask("/api/session");
  token = found.token;
  return found;
}

export async function logIn(user, password) {
  const found = await post("/api/login", { user, password });
  token = found.token;
  return found;
}

export async function logOut() {
  await post("/api/logout", {});
  onLogout();
}

export async function act(name, order) {
  return (await post(`/api/actions/${name}`, order)).done;
}
