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

/** The views in menu order. `may` tests the caller's rights; `open` draws the view and returns a function that closes it. */
const VIEWS = [
  { id: "explore", name: "Explore", may: (may) => may.read, open: explore },
  { id: "live", name: "Live", may: (may) => may.read, open: live },
  { id: "sensors", name: "Sensors", may: (may) => may.read, open: sensors },
  { id: "connect", name: "Connect", may: (may) => may.write, open: connect },
  { id: "explain", name: "Try a line", may: (may) => may.write, open: explain },
  { id: "rejections", name: "Rejections", may: (may) => may.manage, open: rejections },
  { id: "health", name: "Health", may: (may) => may.metrics, open: health },
  { id: "access", name: "Access", may: (may) => may.manage, open: access },
];
const THEME = "hourglass-theme";

const [main, nav, tools] = ["main", "nav", "tools"].map((id) => document.getElementById(id));
let [caller, known, close, shown] = [null, [], null, ""];
/** The error of listing the databases; null if the list is complete. */
let listError = null;

function database() {
  const named = parse(location.hash).settings.get("db");
  return named ?? (known.includes("default") || known.length === 0 ? "default" : known[0]);
}

function views() {
  const may = rights(caller, database());
  return VIEWS.filter((view) => view.may(may));
}

function render() {
  if (!caller) return;
  const { view: wanted, settings } = parse(location.hash);
  const all = views();
  const view = all.find(({ id }) => id === wanted) ?? all[0];
  const key = `${view?.id} ${database()} ${settings.get("line") ?? ""}`;
  close?.();
  close = null;
  drawMenu(all, view);
  drawTools();
  if (!view) {
    show(main, failure(new Error("This token can neither read nor write this database. Choose another database, or sign in with another token.")));
    return;
  }
  if (wanted !== view.id) history.replaceState(null, "", format(view.id, settings));
  document.title = `${view.name} · hourglass`;
  const place = h("div", { class: `view ${view.id}` });
  show(main, listError && h("div", { class: "notices" }, `The list of databases is unavailable: ${listError.message} `, h("div", { class: "actions" }, button("Retry", () => begin().catch((error) => toast(error.message))))), place);
  close = view.open(place, { caller, database: database() });
  if (shown && (shown !== key || document.activeElement === document.body)) main.focus({ preventScroll: true });
  shown = key;
}

function drawMenu(all, view) {
  const keep = new URLSearchParams({ db: database() });
  const suffix = database() === "default" ? "" : `?${keep}`;
  show(nav, h("ul", null, all.map(({ id, name }) => h("li", null, h("a", { href: `#${id}${suffix}`, "aria-current": id === view?.id ? "page" : null }, name)))));
  // On a phone the menu is wider than the page.
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function drawTools() {
  const names = known.includes(database()) ? known : [database(), ...known];
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

let asking = false;

/** Asks for a token, and keeps it until the tab is closed. */
function signIn() {
  if (asking) return;
  asking = true;
  const text = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const problem = h("div");
  const enter = async (event) => {
    event?.preventDefault();
    const before = token();
    setToken(text.value.trim());
    try {
      await begin();
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
  form.closest("dialog").addEventListener("close", () => (asking = false));
  text.focus();
}

async function begin() {
  const asking = await get("/api/v1/caller");
  try {
    [known, listError] = [await databases(), null];
  } catch (error) {
    // Most views work while the store is unavailable or the log is replayed.
    if (error.status === 401) throw error;
    [known, listError] = [named(asking), error];
  }
  caller = asking;
  render();
}

async function start() {
  const chosen = sessionStorage.getItem(THEME);
  if (chosen) document.documentElement.dataset.theme = chosen;
  try {
    await begin();
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
