// Connect: code to paste into a device, and its readings as they arrive.

import { post, rights } from "./api.js";
import { announce, button, card, copy, dialog, empty, failure, field, h, segments, select, show, title, toast } from "./dom.js";
import { ago, numbersFirst, value, visible } from "./format.js";
import { partsOf } from "./key.js";
import { shell } from "./quote.js";
import { SNIPPETS } from "./snippets.js";
import { change, go, settings } from "./state.js";
import { listen, runInOneTab } from "./stream.js";

/** The token that was created here, with its database. It is kept until the page is closed, because the service shows it only once. */
let createdToken = null;

export function connect(container, { caller, database }) {
  const wanted = settings();
  const chosen = {
    id: SNIPPETS.some(({ id }) => id === wanted.get("with")) ? wanted.get("with") : "curl",
    measurement: wanted.get("m") ?? "climate",
    sensor: wanted.get("s") ?? "temp-01",
    address: wanted.get("at") ?? location.origin,
  };
  // The token created here, and the id of its snippet.
  const code = h("code");
  const aside = h("div", { class: "row" });
  const hint = h("p", { class: "hint" });
  const reach = h("p", { class: "hint" });
  const tabs = h("div");
  const incoming = h("div");

  const watcher = watch(incoming, caller, database);
  const canCreateToken = caller.token_needed && caller.name && rights(caller, database).everything;
  const draw = () => {
    const snippet = SNIPPETS.find(({ id }) => id === chosen.id);
    // Without authentication, snippets have no token. A new token may only write.
    const token = caller.token_needed ? (snippet.needs || createdToken?.database !== database ? undefined : createdToken.token) : null;
    code.textContent = snippet.write({ origin: chosen.address.replace(/\/+$/, ""), database, ...chosen, token });
    show(aside, canCreateToken && !snippet.needs && tokenControl(database, (token) => {
      createdToken = { database, token };
      draw();
      code.parentElement.focus();
    }));
    watcher.wait(snippet.isOne ? { measurement: chosen.measurement, sensor: chosen.sensor } : null);
    show(hint, token === undefined ? tokenHint(snippet, database) : []);
    show(reach, isLoopback(chosen.address) ? loopbackHint() : []);
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
  show(container,
    title("Connect", "Paste one of these snippets into a device or a program. Its readings appear below."),
    card(null, tabs,
      h("div", { class: "row" }, input("measurement", "m", "Measurement"), input("sensor", "s", "Sensor"), input("address", "at", "Address of hourglass"), aside),
      h("div", { class: "snippet" }, h("pre", { tabindex: "0", "aria-label": "Snippet" }, code), button("Copy", () => copy(code.textContent), { class: "primary copy" })),
      hint, reach),
    card("Incoming readings", incoming));
  draw();
  return watcher.end;
}

/** Returns true for an address that only programs on this machine reach. */
function isLoopback(address) {
  return URL.canParse(address) && /^(localhost|127\..*|\[::1\])$/.test(new URL(address).hostname);
}

/** Explains how devices on the network reach the service. */
function loopbackHint() {
  return ["Only programs on this machine reach this address. For devices on your network, create a token, start with ", h("code", null, "hourglass serve --listen 0.0.0.0:8086"), ", and put this machine's address above."];
}

/** Explains how to create the token that the snippet needs. */
function tokenHint({ needs }, database) {
  const [right, flag] = { read: ["read", `--read ${shell(database)}`], metrics: ["see metrics", "--metrics"] }[needs] ?? ["write", `--write ${shell(database)}`];
  const isPattern = needs !== "metrics" && /[*?]/.test(database);
  return [`The snippet needs a token that can ${right}. Create it with `, h("code", null, `hourglass token add --name NAME ${flag}`), isPattern ? ". The token also matches other databases, because * and ? are wildcards." : "."];
}

/** A button that creates a token for the snippet. The token can only write to one database, and is shown only in the snippet. */
function tokenControl(database, onCreate) {
  // In a token these characters are wildcards, which would match other databases.
  const isPattern = /[*?]/.test(database);
  return h("div", { class: "field" }, h("span", { class: "label" }, "Token"), isPattern
    ? h("p", { class: "hint" }, "The name of this database contains a wildcard (* or ?), so no token can be limited to it.")
    : button("Create a write token", () => askToken(database, onCreate)));
}

function askToken(database, onCreate) {
  const name = h("input", { value: `device-${Date.now().toString(36)}`, autocomplete: "off", spellcheck: "false" });
  let expires = "";
  const problem = h("div");
  const create = async () => {
    try {
      const createdToken = await post("/api/v1/tokens", { name: name.value, write: [database], ...(expires ? { expires_in: expires } : {}) });
      close();
      onCreate(createdToken.token);
      toast(`The token ${createdToken.name} was added to the snippet. It is shown only once.`);
    } catch (error) {
      show(problem, failure(error));
    }
  };
  const close = dialog("A token for this snippet",
    h("p", null, `It can write to the database ${visible(database)} and do nothing else. It is shown only once, in this snippet.`),
    field("Name", name, "Letters, digits and -_.@:"),
    field("Expires", select([["", "never"], ["90d", "in 90 days"], ["365d", "in a year"]], expires, (chosen) => (expires = chosen))), problem,
    h("div", { class: "actions" }, button("Create", create, { class: "primary" })));
}

/**
 * Shows incoming readings. `wait(sensor)` selects the sensor to show and counts the other sensors; `wait(null)` shows all sensors. Returns
 * `{ wait(sensor), end() }`.
 */
function watch(container, caller, database) {
  if (!rights(caller, database).read) {
    show(container, empty("This token cannot read, so incoming readings are not shown."));
    return { wait() {}, end() {} };
  }
  // Screen readers announce only that readings arrive, because the values change too often.
  const status = h("div", { role: "status" });
  const details = h("div", { class: "arrived" });
  const otherCount = h("p", { class: "hint" });
  const latestValues = h("p", { class: "big" });
  const summary = h("p");
  let wanted;
  let otherSensors = new Set();
  let readingCount = 0;
  let sensor = "";
  let isOpen = false;
  let stopListening = null;
  const exploreButton = button("Open in Explore", () => go("explore", { db: database, sensor, m: partsOf(sensor).measurement, range: "1h" }), { class: "primary" });
  const waiting = (text) => announce(status, text, () => h("div", { class: "waiting" }, h("span", { class: "pulse", "aria-hidden": "true" }), visible(text)));
  const showState = () => {
    const receiving = `Receiving readings of ${visible(sensor)}.`;
    if (readingCount) announce(status, receiving, () => h("p", { class: "hint" }, receiving));
    else waiting(wanted ? `Waiting for a reading of ${wanted.measurement} with sensor ${wanted.sensor} …` : `Waiting for a reading in ${database} …`);
  };
  const isWanted = ({ sensor: key, tags }) => !wanted || (tags.sensor === wanted.sensor && partsOf(key).measurement === wanted.measurement);
  const showReadings = (matching) => {
    readingCount += matching.length;
    const { reading } = matching.at(-1);
    ({ sensor } = matching.at(-1));
    const fields = Object.entries(reading).filter(([name]) => name !== "ts");
    show(latestValues, numbersFirst(fields).slice(0, 3).map(([name, stored], at) => [at ? ", " : "", `${visible(name)} `, h("b", null, value(stored))]));
    show(summary, `${visible(sensor)} · ${ago(reading.ts)} · ${readingCount} ${readingCount === 1 ? "reading" : "readings"} since you opened this view`);
    // Add the button only once, so that it keeps the focus.
    if (!exploreButton.isConnected) show(details, latestValues, summary, exploreButton);
    showState();
  };
  const handle = ({ state, reason, error, readings = [] }) => {
    if (state) isOpen = state === "open";
    if (error) announce(status, error.message, () => failure(error));
    if (state === "hidden") waiting("Paused while this page is hidden.");
    if (state === "waiting") waiting(reason);
    if (state === "open") showState();
    const matching = readings.filter(isWanted);
    if (matching.length) showReadings(matching);
    if (matching.length === readings.length) return;
    readings.filter((one) => !isWanted(one)).forEach((one) => otherSensors.add(one.sensor));
    show(otherCount, `Other sensors sending: ${otherSensors.size}`);
  };
  const begin = () => {
    show(container, status, details, otherCount);
    waiting("Connecting …");
    stopListening = runInOneTab(() => listen({ db: database }, handle), () => show(container, h("div", { class: "waiting" }, "Readings are shown in another tab of this browser.", button("Listen here", begin))));
  };
  const wait = (now) => {
    if (JSON.stringify(now) === JSON.stringify(wanted)) return;
    wanted = now;
    otherSensors = new Set();
    readingCount = 0;
    show(details);
    show(otherCount);
    if (isOpen) showState();
  };
  begin();
  return { wait, end: () => stopListening() };
}
