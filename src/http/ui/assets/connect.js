// Connect: what to paste into a device, and its first reading as it arrives.

import { post, rights } from "./api.js";
import { button, card, copy, dialog, empty, failure, field, h, segments, select, show, tell, title, toast } from "./dom.js";
import { ago, value, visible } from "./format.js";
import { partsOf } from "./key.js";
import { shell } from "./quote.js";
import { SNIPPETS } from "./snippets.js";
import { change, go, settings } from "./state.js";
import { alone, listen } from "./stream.js";

export function connect(place, { caller, database }) {
  const wanted = settings();
  const chosen = {
    id: SNIPPETS.some(({ id }) => id === wanted.get("with")) ? wanted.get("with") : "curl",
    measurement: wanted.get("m") ?? "climate",
    sensor: wanted.get("s") ?? "temp-01",
  };
  // The token that was made here, and for which snippet.
  let made = null;
  const code = h("code");
  const aside = h("div", { class: "row" });
  const hint = h("p", { class: "hint" });
  const tabs = h("div");
  const arrived = h("div");

  const watched = watch(arrived, caller, database);
  const mayMake = caller.token_needed && caller.name && rights(caller, database).everything;
  const draw = () => {
    const snippet = SNIPPETS.find(({ id }) => id === chosen.id);
    // Where no token is needed, snippets carry none; a new one stands in the snippet that it was made for, and nowhere else.
    const token = caller.token_needed ? (made?.id === chosen.id ? made.token : undefined) : null;
    code.textContent = snippet.write({ origin: location.origin, database, ...chosen, token });
    show(aside, mayMake && !snippet.needs && makeToken(database, (token) => {
      made = { id: snippet.id, token };
      draw();
      code.parentElement.focus();
    }));
    watched.wait(snippet.isOne ? { measurement: chosen.measurement, sensor: chosen.sensor } : null);
    show(hint, token === undefined ? tokenHint(snippet, database) : []);
    show(tabs, segments("With", SNIPPETS.map(({ id, name }) => [id, name]), chosen.id, (id) => {
      chosen.id = id;
      change({ with: id });
      draw();
      tabs.querySelector("[aria-pressed=true]").focus();
    }));
  };
  const input = (name, key, label) => field(label, h("input", { value: chosen[name], spellcheck: "false", autocomplete: "off", on: { input: (event) => {
    chosen[name] = event.target.value;
    change({ [key]: event.target.value });
    draw();
  } } }));
  show(place,
    title("Connect", "Paste one of these into a device or a program. Its first reading appears below while you watch."),
    card(null, tabs,
      h("div", { class: "row" }, input("measurement", "m", "Measurement"), input("sensor", "s", "Sensor"), aside),
      h("div", { class: "snippet" }, h("pre", { tabindex: "0", "aria-label": "Snippet" }, code), button("Copy", () => copy(code.textContent), { class: "primary copy" })),
      hint),
    card("Readings as they arrive", arrived));
  draw();
  return watched.end;
}

/** How one gets the token that the snippet asks for. */
function tokenHint({ needs }, database) {
  const [may, flag] = { read: ["read", `--read ${shell(database)}`], metrics: ["see metrics", "--metrics"] }[needs] ?? ["write", `--write ${shell(database)}`];
  return ["It asks for a token that may ", may, ", made with ", h("code", null, `hourglass token add --name NAME ${flag}`), needs !== "metrics" && /[*?]/.test(database) ? ". In it, * and ? stand for any characters: it is for other databases, too." : "."];
}

/** Offers a token for the snippet: it may write to one database and nothing else, and is shown nowhere but in the snippet. */
function makeToken(database, use) {
  // In a token these would stand for any characters, and so for other databases.
  const isPattern = /[*?]/.test(database);
  return h("div", { class: "field" }, h("span", { class: "label" }, "Token"), isPattern
    ? h("p", { class: "hint" }, "The name of this database is a pattern to a token, so none is made here.")
    : button("Make one that may write", () => askToken(database, use)));
}

function askToken(database, use) {
  const name = h("input", { value: `device-${Date.now().toString(36)}`, autocomplete: "off", spellcheck: "false" });
  let expires = "";
  const problem = h("div");
  const make = async () => {
    try {
      const made = await post("/api/v1/tokens", { name: name.value, write: [database], ...(expires ? { expires_in: expires } : {}) });
      close();
      use(made.token);
      toast(`The token ${made.name} stands in the snippet, and is shown only now.`);
    } catch (error) {
      show(problem, failure(error));
    }
  };
  const close = dialog("A token for this snippet",
    h("p", null, `It may write to the database ${visible(database)} and do nothing else. It stands in this snippet alone, and is shown only now.`),
    field("Name", name, "Letters, digits and -_.@:"),
    field("Ends", select([["", "never"], ["90d", "in 90 days"], ["365d", "in a year"]], expires, (chosen) => (expires = chosen))), problem,
    h("div", { class: "actions" }, button("Make it", make, { class: "primary" })));
}

/**
 * Shows readings as they arrive: those of the sensor that `wait` names stay, of others it is told how many send; of all, where it names none. Returns
 * `{ wait(sensor), end() }`.
 */
function watch(place, caller, database) {
  if (!rights(caller, database).read) {
    show(place, empty("This token may not read, so readings are not shown here."));
    return { wait() {}, end() {} };
  }
  // Spoken is that readings arrive; what they say changes too often for that.
  const [status, shown, beside] = [h("div", { role: "status" }), h("div", { class: "arrived" }), h("p", { class: "hint" })];
  const [big, about] = [h("p", { class: "big" }), h("p")];
  let [wanted, others, heard, sensor, isOpen, end] = [undefined, new Set(), 0, "", false, null];
  const explored = button("Explore it", () => go("explore", { db: database, sensor, m: partsOf(sensor).measurement, range: "1h" }), { class: "primary" });
  const waiting = (text) => tell(status, text, () => h("div", { class: "waiting" }, h("span", { class: "pulse", "aria-hidden": "true" }), visible(text)));
  const ready = () => {
    const arrive = `Readings of ${visible(sensor)} arrive.`;
    if (heard) tell(status, arrive, () => h("p", { class: "hint" }, arrive));
    else waiting(wanted ? `Waiting for a reading of ${wanted.measurement} with sensor ${wanted.sensor} …` : `Waiting for a reading in ${database} …`);
  };
  const isWanted = ({ sensor: key, tags }) => !wanted || (tags.sensor === wanted.sensor && partsOf(key).measurement === wanted.measurement);
  const take = (mine) => {
    heard += mine.length;
    const { reading } = mine.at(-1);
    ({ sensor } = mine.at(-1));
    const fields = Object.entries(reading).filter(([name]) => name !== "ts");
    show(big, fields.slice(0, 3).map(([name, stored], at) => [at ? ", " : "", `${visible(name)} `, h("b", null, value(stored))]));
    show(about, `${visible(sensor)} · ${ago(reading.ts)} · ${heard} ${heard === 1 ? "reading" : "readings"} since you look`);
    // Once, so that the button keeps the focus.
    if (!explored.isConnected) show(shown, big, about, explored);
    ready();
  };
  const hear = ({ state, why, error, readings = [] }) => {
    if (state) isOpen = state === "open";
    if (error) tell(status, error.message, () => failure(error));
    if (state === "hidden") waiting("Paused while this page is hidden.");
    if (state === "waiting") waiting(why);
    if (state === "open") ready();
    const mine = readings.filter(isWanted);
    if (mine.length) take(mine);
    if (mine.length === readings.length) return;
    readings.filter((one) => !isWanted(one)).forEach((one) => others.add(one.sensor));
    show(beside, `Other sensors that send: ${others.size}`);
  };
  const begin = () => {
    show(place, status, shown, beside);
    waiting("Connecting …");
    end = alone(() => listen({ db: database }, hear), () => show(place, h("div", { class: "waiting" }, "Another tab of this browser listens now.", button("Listen here", begin))));
  };
  const wait = (now) => {
    if (JSON.stringify(now) === JSON.stringify(wanted)) return;
    [wanted, others, heard] = [now, new Set(), 0];
    [shown, beside].forEach((one) => show(one));
    if (isOpen) ready();
  };
  begin();
  return { wait, end: () => end() };
}
