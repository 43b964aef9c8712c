// Live: the last readings as they are acked, newest first.

import { get } from "./api.js";
import { button, card, failure, field, h, select, show, title } from "./dom.js";
import { clock, number, value, visible } from "./format.js";
import { change, settings } from "./state.js";
import { alone, listen } from "./stream.js";

/** Rows on the page, however many come. */
const ROWS = 200;
/** Redrawn at most this often, in milliseconds. */
const PAUSE = 250;

export function live(place, { database }) {
  const rows = h("tbody");
  const state = h("p", { class: "state", role: "status" });
  const chooser = h("div", { class: "row" });
  let [stop, waiting, timer, missed, count, since] = [null, [], null, 0, 0, Date.now()];

  const say = (text) => show(state, h("span", { class: stop ? "pulse" : "pulse off", "aria-hidden": "true" }), text);
  const flush = () => {
    timer = null;
    const fresh = waiting.splice(0).slice(-ROWS).reverse().map(row);
    rows.prepend(...fresh);
    while (rows.childElementCount > ROWS) rows.lastElementChild.remove();
    const seconds = Math.max((Date.now() - since) / 1000, 1);
    say(`${number(Math.round((count / seconds) * 10) / 10)} readings/s${missed ? `, ${missed} missed: more came than this page takes` : ""}`);
    if (seconds > 20) [count, since] = [count / 2, Date.now() - seconds * 500];
  };
  const hear = (news) => {
    if (news.readings) {
      count += news.readings.length;
      waiting.push(...news.readings);
      if (waiting.length > ROWS) waiting.splice(0, waiting.length - ROWS);
      timer ??= setTimeout(flush, rows.childElementCount ? PAUSE : 0);
    }
    if ("missed" in news) missed = news.missed === null ? "some" : missed === "some" ? missed : missed + news.missed;
    if (news.state === "open") say("Listening …");
    if (news.state === "hidden") say("Paused while this page is hidden.");
    if (news.state === "waiting") say("The connection ended. Connecting again …");
    if (news.ended) say(news.ended);
    if (news.error) show(state, failure(news.error));
  };
  const begin = () => {
    const measurement = settings().get("m");
    [missed, count, since] = [0, 0, Date.now()];
    stop = alone(() => listen({ db: database, measurement }, hear), () => {
      stop = null;
      draw();
      say("Paused: another tab of this browser listens now.");
    });
  };
  const end = () => {
    stop?.();
    stop = null;
    clearTimeout(timer);
    timer = null;
  };
  const toggle = () => {
    if (stop) end();
    else begin();
    draw();
    say(stop ? "Listening …" : "Paused.");
  };

  let names = [];
  const draw = () => show(chooser,
    field("Measurement", select([["", "all"], ...names.map(({ measurement }) => [measurement, visible(measurement)])], settings().get("m") ?? "", (m) => {
      change({ m });
      rows.replaceChildren();
      if (stop) {
        end();
        begin();
      }
    })),
    h("div", { class: "field" }, h("span", { class: "label" }, "Stream"), button(stop ? "Pause" : "Go on", toggle, { class: stop ? "" : "primary" })));

  show(place, title("Live", "Readings as they are acknowledged, newest first."), chooser, state,
    card(null, h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Readings" },
      h("table", { class: "live" }, h("thead", null, h("tr", null, ["Time", "Sensor", "Fields"].map((text) => h("th", { scope: "col" }, text)))), rows))),
    h("p", { class: "hint" }, "In a terminal: ", h("code", null, `curl -N ${location.origin}/api/v1/tail`)));
  begin();
  draw();
  say("Listening …");
  get("/api/v1/measurements", { db: database }).then(({ measurements }) => {
    names = measurements;
    draw();
  }, () => {});
  return end;
}

function row({ sensor, reading }) {
  const fields = Object.entries(reading).filter(([name]) => name !== "ts");
  return h("tr", null,
    h("td", { class: "when" }, clock(reading.ts)),
    h("td", null, visible(sensor)),
    h("td", null, fields.map(([name, stored], at) => [at ? " · " : "", `${visible(name)} `, h("b", null, value(stored))])));
}
