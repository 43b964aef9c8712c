// Requests to the service. The token is in the session storage of the tab. It is sent in a header, never in a URL.

const TOKEN = "hourglass-token";

export class Failure extends Error {
  /** `retryAfter` is in seconds; 0 if the answer has no such header. */
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

/** The URL of an endpoint with parameters, given as a list of pairs or an object. Empty parameters are left out. */
export function address(path, parameters) {
  const pairs = Array.isArray(parameters) ? parameters : Object.entries(parameters ?? {});
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== undefined && value !== null && value !== "")).toString();
  return query ? `${path}?${query}` : path;
}

/** Sends a request. Throws a `Failure` unless the status is 2xx. */
export async function send(method, path, { parameters, body, headers, signal } = {}) {
  const all = new Headers(headers);
  if (token()) all.set("Authorization", `Token ${token()}`);
  let answer;
  try {
    // Omit the credentials of the browser, so that it does not prompt for a password.
    answer = await fetch(address(path, parameters), { method, body, headers: all, signal, credentials: "omit", cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The service does not answer. Is it running?");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let problem = {};
  try {
    problem = JSON.parse(text);
  } catch {
    // Not JSON: the answer may come from a proxy.
  }
  if (answer.status === 401) window.dispatchEvent(new Event("token-needed"));
  throw new Failure(answer.status, problem.error ?? problem.message ?? `The answer is ${answer.status}.`, { code: problem.code, retryAfter: Number(answer.headers.get("Retry-After")) || 0 });
}

export async function get(path, parameters, signal) {
  return (await send("GET", path, { parameters, signal })).json();
}

export async function patch(path, body, more) {
  return (await send("PATCH", path, { ...more, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...more?.headers } })).json();
}

export async function post(path, body, more) {
  return (await send("POST", path, { ...more, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } })).json();
}

/** Lists the databases that the caller may see. */
export async function databases() {
  const answer = await get("/query", { q: "SHOW DATABASES" });
  return (answer.results?.[0]?.series?.[0]?.values ?? []).map(([name]) => name);
}

/** True if a name matches the pattern of a token (`*` for any characters, `?` for one, but not the slash of a policy). */
export function matches(glob, name) {
  const pattern = [...glob].map((letter) => (letter === "*" ? "[^/]*" : letter === "?" ? "[^/]" : letter.replace(/[\\^$.|+()[\]{}/]/g, "\\$&"))).join("");
  return new RegExp(`^${pattern}$`, "su").test(name);
}

/** The databases in the scopes of the caller's token, without patterns. */
export function named({ scopes }) {
  const globs = scopes ? [...scopes.read, ...scopes.write, ...scopes.admin] : [];
  return [...new Set(globs.filter((glob) => !/[*?]/.test(glob)))].sort();
}

/** The caller's rights to a database. */
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
