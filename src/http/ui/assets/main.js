// The page: shows the views that the caller may use, and keeps the URL and the view in sync.

import { Failure, databases, get, named, rights, setToken, token } from "./api.js";
import { button, dialog, failure, field, h, keepFocus, select, show, toast } from "./dom.js";
import { connect } from "./connect.js";
import { explain } from "./explain.js";
import { explore } from "./explore.js";
import { visible } from "./format.js";
import { health } from "./health.js";
import { live } from "./live.js";
import { rejections } from "./rejections.js";
import { sensors } from "./sensors.js";
import { access } from "./settings.js";
import { format, parse } from "./state.js";

/** The views in menu order. `isVisible` tests the caller's rights; `open` draws the view and returns a function that closes it. */
const VIEWS = [
  { id: "explore", name: "Explore", isVisible: (can) => can.read, open: explore },
  { id: "live", name: "Live", isVisible: (can) => can.read, open: live },
  { id: "sensors", name: "Sensors", isVisible: (can) => can.read, open: sensors },
  { id: "connect", name: "Connect", isVisible: (can) => can.write, open: connect },
  { id: "explain", name: "Try a line", isVisible: (can) => can.write, open: explain },
  { id: "rejections", name: "Rejections", isVisible: (can) => can.manage, open: rejections },
  { id: "health", name: "Health", isVisible: (can) => can.metrics, open: health },
  { id: "access", name: "Access", isVisible: (can) => can.manage, open: access },
];
const THEME = "hourglass-theme";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const tools = document.getElementById("tools");
let caller = null;
let databaseNames = [];
let closeView = null;
let shownKey = "";
/** The error of listing the databases; null if the list is complete. */
let listError = null;

function database() {
  const requested = parse(location.hash).settings.get("db");
  return requested ?? (databaseNames.includes("default") || databaseNames.length === 0 ? "default" : databaseNames[0]);
}

function views() {
  const can = rights(caller, database());
  return VIEWS.filter((view) => view.isVisible(can));
}

function render() {
  if (!caller) return;
  const { view: wanted, settings } = parse(location.hash);
  const all = views();
  const view = all.find(({ id }) => id === wanted) ?? all[0];
  const key = `${view?.id} ${database()} ${settings.get("line") ?? ""}`;
  closeView?.();
  closeView = null;
  drawMenu(all, view);
  drawTools();
  if (!view) {
    show(main, failure(new Error("This token can neither read nor write this database. Choose another database, or sign in with another token.")));
    return;
  }
  if (wanted !== view.id) history.replaceState(null, "", format(view.id, settings));
  document.title = `${view.name} · hourglass`;
  const container = h("div", { class: `view ${view.id}` });
  show(main, listError && h("div", { class: "notices" }, `The list of databases is unavailable: ${listError.message} `, h("div", { class: "actions" }, button("Retry", () => load().catch((error) => toast(error.message))))), container);
  closeView = view.open(container, { caller, database: database() });
  if (shownKey && (shownKey !== key || document.activeElement === document.body)) main.focus({ preventScroll: true });
  shownKey = key;
}

function drawMenu(all, view) {
  const keep = new URLSearchParams({ db: database() });
  const suffix = database() === "default" ? "" : `?${keep}`;
  show(nav, h("ul", null, all.map(({ id, name }) => h("li", null, h("a", { href: `#${id}${suffix}`, "aria-current": id === view?.id ? "page" : null }, name)))));
  // On a phone the menu is wider than the page.
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function drawTools() {
  const names = databaseNames.includes(database()) ? databaseNames : [database(), ...databaseNames];
  const refocus = keepFocus(tools);
  show(tools,
    h("label", { class: "database" }, h("span", { "aria-hidden": "true" }, "Database"), select(names.map((name) => [name, visible(name)]), database(), (name) => {
      const { view } = parse(location.hash);
      location.hash = `#${view}?${new URLSearchParams({ db: name })}`;
    }, { "aria-label": "Database" })),
    button("◐", theme, { class: "quiet icon", "aria-label": "Switch between dark and light" }),
    (token() || caller?.token_needed) && button(caller?.name ? visible(caller.name) : "Sign in", signIn, { class: "quiet", "aria-label": caller?.name ? `Signed in with the token ${visible(caller.name)}. Change the token` : "Sign in" }));
  refocus();
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  sessionStorage.setItem(THEME, root.dataset.theme);
  render();
}

let isSigningIn = false;

/** Asks for a token, and keeps it until the tab is closed. */
function signIn() {
  if (isSigningIn) return;
  isSigningIn = true;
  const text = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const problem = h("div");
  const enter = async (event) => {
    event?.preventDefault();
    const before = token();
    setToken(text.value.trim());
    try {
      await load();
      done();
    } catch (error) {
      setToken(before);
      show(problem, failure(error));
    }
  };
  const form = h("form", { on: { submit: enter } },
    field("Token", text, "The page keeps the token in this tab only, until you close it."), problem,
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Sign in"), token() && button("Sign out", () => {
      setToken("");
      location.reload();
    })));
  const done = dialog("Sign in with a token", form);
  form.closest("dialog").addEventListener("close", () => (isSigningIn = false));
  text.focus();
}

async function load() {
  const newCaller = await get("/api/v1/caller");
  try {
    // A database of the token is listed only once it has readings.
    databaseNames = [...new Set([...(await databases()), ...named(newCaller)])];
    listError = null;
  } catch (error) {
    // Most views work while the store is unavailable or the WAL is replayed.
    if (error.status === 401) throw error;
    databaseNames = named(newCaller);
    listError = error;
  }
  caller = newCaller;
  render();
}

async function start() {
  const chosenTheme = sessionStorage.getItem(THEME);
  if (chosenTheme) document.documentElement.dataset.theme = chosenTheme;
  try {
    await load();
  } catch (error) {
    if (error instanceof Failure && error.status === 401) {
      show(main, h("div", { class: "empty" }, h("h1", null, "hourglass"), h("p", null, "This service requires a token."), button("Sign in", signIn, { class: "primary" })));
      signIn();
    } else {
      show(main, failure(error), button("Try again", start));
    }
  }
}

window.addEventListener("hashchange", render);
window.addEventListener("popstate", render);
window.addEventListener("token-needed", () => caller && signIn());
start();
