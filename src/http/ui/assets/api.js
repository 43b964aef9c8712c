// Asks the service. The token, if there is one, lives in this tab's session storage and is sent in a header, never in an address.

const TOKEN = "hourglass-token";

export class Failure extends Error {
  /** `retryAfter` is in seconds, 0 if the service named none. */
  constructor(status, message, { code, retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

/** The address of an endpoint with its parameters, a list of pairs or an object. */
export function address(path, parameters) {
  const pairs = Array.isArray(parameters) ? parameters : Object.entries(parameters ?? {});
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== undefined && value !== null && value !== "")).toString();
  return query ? `${path}?${query}` : path;
}

/** Sends a request; an answer that is no success is an error. */
export async function send(method, path, { parameters, body, headers, signal } = {}) {
  const all = new Headers(headers);
  if (token()) all.set("Authorization", `Token ${token()}`);
  let answer;
  try {
    // Without the browser's own credentials, so that it asks nobody for a password.
    answer = await fetch(address(path, parameters), { method, body, headers: all, signal, credentials: "omit", cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The service does not answer. Is it running?");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    // Not of the service itself: perhaps of a proxy.
  }
  if (answer.status === 401) window.dispatchEvent(new Event("token-needed"));
  throw new Failure(answer.status, said.error ?? said.message ?? `The answer is ${answer.status}.`, { code: said.code, retryAfter: Number(answer.headers.get("Retry-After")) || 0 });
}

export async function get(path, parameters, signal) {
  return (await send("GET", path, { parameters, signal })).json();
}

export async function put(path, body, more) {
  return (await send("PUT", path, { ...more, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...more?.headers } })).json();
}

export async function post(path, body, more) {
  return (await send("POST", path, { ...more, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();
}

/** Names of the databases that the caller may see. */
export async function databases() {
  const answer = await get("/query", { q: "SHOW DATABASES" });
  return (answer.results?.[0]?.series?.[0]?.values ?? []).map(([name]) => name);
}

/** Whether a pattern of a token (`*` any characters, `?` one) matches a name. */
export function matches(glob, name) {
  const pattern = [...glob].map((letter) => (letter === "*" ? ".*" : letter === "?" ? "." : letter.replace(/[\\^$.|+()[\]{}/]/g, "\\$&"))).join("");
  return new RegExp(`^${pattern}$`, "su").test(name);
}

/** Names of databases that the scopes of the caller's token name, as far as they are no patterns. */
export function named({ scopes }) {
  const globs = scopes ? [...scopes.read, ...scopes.write, ...scopes.admin] : [];
  return [...new Set(globs.filter((glob) => !/[*?]/.test(glob)))].sort();
}

/** What the caller may do with a database. */
export function rights(caller, database) {
  const scopes = caller.scopes;
  if (!scopes) return { read: true, write: true, manage: true, everything: true, metrics: true };
  const any = (globs) => globs.some((glob) => matches(glob, database));
  const admin = any(scopes.admin);
  const pinned = Object.keys(scopes.tags).length > 0;
  return {
    read: admin || any(scopes.read),
    write: admin || any(scopes.write),
    manage: admin && !pinned,
    everything: caller.admin_of_all,
    metrics: caller.metrics,
  };
}
