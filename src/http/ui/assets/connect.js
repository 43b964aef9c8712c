// Connect: what to paste into a device, and its first reading as it arrives.

import { post, rights } from "./api.js";
import { button, card, copy, empty, failure, field, h, segments, show, title, toast } from "./dom.js";
import { ago, value, visible } from "./format.js";
import { SNIPPETS } from "./snippets.js";
import { change, go, settings } from "./state.js";
import { alone, listen } from "./stream.js";

export function connect(place, { caller, database }) {
  const wanted = settings();
  const chosen = {
    id: SNIPPETS.some(({ id }) => id === wanted.get("with")) ? wanted.get("with") : "curl",
    measurement: wanted.get("m") ?? "climate",
    sensor: wanted.get("s") ?? "temp-01",
    // Where no token is needed, snippets carry none.
    token: caller.token_needed ? undefined : null,
  };
  const code = h("code");
  const tabs = h("div");
  const arrived = h("div", { "aria-live": "polite" });

  const draw = () => {
    const snippet = SNIPPETS.find(({ id }) => id === chosen.id);
    code.textContent = snippet.write({ origin: location.origin, database, ...chosen });
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
  const mayMake = caller.token_needed && caller.name && rights(caller, database).everything;
  show(place,
    title("Connect", "Paste one of these into a device or a program. Its first reading appears below while you watch."),
    card(null, tabs,
      h("div", { class: "row" }, input("measurement", "m", "Measurement"), input("sensor", "s", "Sensor"),
        mayMake && makeToken(chosen, database, draw)),
      h("div", { class: "snippet" }, h("pre", { tabindex: "0", "aria-label": "Snippet" }, code), button("Copy", () => copy(code.textContent), { class: "primary copy" })),
      caller.token_needed && h("p", { class: "hint" }, "Where the snippet names HOURGLASS_TOKEN, put a token that may write, made with ", h("code", null, "hourglass token create NAME --write DATABASE"), ".")),
    card("Readings as they arrive", arrived));
  draw();
  return watch(arrived, caller, database);
}

/** Makes a token for one database that may only write, and puts it into the snippet: nowhere else is it shown. */
function makeToken(chosen, database, draw) {
  const make = async () => {
    try {
      const name = `device-${Date.now().toString(36)}`;
      const made = await post("/api/v1/tokens", { name, write: [database] });
      chosen.token = made.token;
      draw();
      toast(`The token ${name} stands in the snippet, and is shown only now.`);
    } catch (error) {
      toast(error.message);
    }
  };
  return h("div", { class: "field" }, h("span", { class: "label" }, "Token"), button("Make one that may write", make));
}

function watch(place, caller, database) {
  if (!rights(caller, database).read) {
    show(place, empty("This token may not read, so readings are not shown here."));
    return null;
  }
  const waiting = (text) => show(place, h("div", { class: "waiting" }, h("span", { class: "pulse", "aria-hidden": "true" }), text));
  let heard = 0;
  waiting(`Waiting for a reading in ${database} …`);
  const hear = (news) => {
    if (news.error) show(place, failure(news.error));
    if (news.state === "hidden") waiting("Paused while this page is hidden.");
    if (!news.readings) return;
    heard += news.readings.length;
    const { sensor, reading } = news.readings.at(-1);
    const fields = Object.entries(reading).filter(([name]) => name !== "ts");
    show(place, h("div", { class: "arrived" },
      h("p", { class: "big" }, fields.slice(0, 3).map(([name, stored], at) => [at ? ", " : "", `${visible(name)} `, h("b", null, value(stored))])),
      h("p", null, `${visible(sensor)} · ${ago(reading.ts)} · ${heard} ${heard === 1 ? "reading" : "readings"} since you look`),
      button("Explore it", () => go("explore", { db: database, sensor, m: measurementOf(sensor), range: "1h" }), { class: "primary" })));
  };
  return alone(() => listen({ db: database }, hear), () => waiting("Another tab of this browser listens now."));
}

/** The measurement of a sensor's key: what stands before the first comma that is not escaped. */
function measurementOf(key) {
  return (/^(?:\\.|[^,\\])*/.exec(key)?.[0] ?? "").replace(/\\(.)/g, "$1");
}
