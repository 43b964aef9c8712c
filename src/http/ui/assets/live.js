// Live: readings as they are acknowledged, newest first.

import { address, get } from "./api.js";
import { curl } from "./copies.js";
import { announce, button, card, failure, field, h, select, show, title } from "./dom.js";
import { conditions, filterBar, selection } from "./filters.js";
import { clock, number, numbersFirst, value, visible } from "./format.js";
import { change, settings } from "./state.js";
import { listen, runInOneTab } from "./stream.js";

/** Maximum number of rows on the page. */
const ROWS = 200;
/** Minimum time between two redraws, in milliseconds. */
const PAUSE = 250;

export function live(container, { caller, database }) {
  const rows = h("tbody");
  // Screen readers announce `status`, but not `rate`, which changes too often.
  const status = h("span", { role: "status" });
  const rate = h("span");
  const state = h("div", { class: "state" }, status, rate);
  const chooser = h("div", { class: "controls" });
  const command = h("code");
  let stop = null;
  let waiting = [];
  let timer = null;
  let received = 0;
  let missed = 0;
  let count = 0;
  let since = Date.now();

  const say = (text) => {
    show(rate);
    announce(status, text, () => [h("span", { class: stop ? "pulse" : "pulse off", "aria-hidden": "true" }), visible(text)]);
  };
  const flush = () => {
    timer = null;
    const fresh = waiting.splice(0).slice(-ROWS).reverse().map(row);
    rows.prepend(...fresh);
    while (rows.childElementCount > ROWS) rows.lastElementChild.remove();
    const seconds = Math.max((Date.now() - since) / 1000, 1);
    const parts = [`${number(Math.round((count / seconds) * 10) / 10)} readings/s`, received > ROWS && `${number(received)} received, the newest ${ROWS} are shown`, missed && missedText(missed)];
    show(rate, parts.filter(Boolean).join(" · "));
    if (seconds > 20) {
      count /= 2;
      since = Date.now() - seconds * 500;
    }
  };
  const handle = (event) => {
    if (event.readings) {
      count += event.readings.length;
      received += event.readings.length;
      waiting.push(...event.readings);
      if (waiting.length > ROWS) waiting.splice(0, waiting.length - ROWS);
      timer ??= setTimeout(flush, rows.childElementCount ? PAUSE : 0);
    }
    if ("missed" in event) {
      missed = event.missed === null ? "some" : missed === "some" ? missed : missed + event.missed;
      timer ??= setTimeout(flush, PAUSE);
    }
    if (event.state === "open") say("Listening …");
    if (event.state === "hidden") say("Paused while this page is hidden.");
    if (event.state === "waiting") say(event.reason);
    if (event.ended) say(event.ended);
    if (event.error) announce(status, event.error.message, () => failure(event.error));
  };
  const begin = () => {
    received = 0;
    missed = 0;
    count = 0;
    since = Date.now();
    stop = runInOneTab(() => listen(parameters(), handle), () => {
      stop = null;
      draw();
      say("Paused: readings are shown in another tab of this browser.");
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

  const query = () => ({ database, measurement: settings().get("m"), sensor: settings().get("sensor"), filters: conditions(settings()) });
  const parameters = () => selection(query());
  const set = (changes) => {
    change(changes);
    rows.replaceChildren();
    waiting = [];
    if (stop) {
      end();
      begin();
    }
    draw();
  };
  let measurements = [];
  let tags = null;
  const draw = () => {
    show(chooser, h("div", { class: "row" },
      field("Measurement", select([["", "all"], ...measurements.map(({ measurement, sensors }) => [measurement, `${visible(measurement)} (${sensors})`])], settings().get("m") ?? "", (m) => set({ m, sensor: null, where: null }))),
      h("div", { class: "field" }, h("span", { class: "label" }, "Stream"), button(stop ? "Pause" : "Resume", toggle, { class: stop ? "" : "primary" }))),
    filterBar({ ...query(), tags }, set));
    command.textContent = curl(`${location.origin}${address("/api/v1/tail", parameters())}`, caller, "-N ");
  };

  show(container, title("Live", "Readings as they are acknowledged, newest first."), chooser, state,
    card(null, h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Readings" },
      h("table", { class: "live" }, h("thead", null, h("tr", null, ["Time", "Sensor", "Fields"].map((text) => h("th", { scope: "col" }, text)))), rows))),
    h("p", { class: "hint" }, "The same in a terminal: ", command));
  begin();
  draw();
  say("Listening …");
  // Without these lists there are no filters, and the view shows all readings.
  Promise.all([get("/api/v1/measurements", { db: database }), get("/api/v1/tags", { db: database })]).then(([measurementList, tagList]) => {
    measurements = measurementList.measurements;
    tags = tagList.tags;
    draw();
  }, () => {});
  return end;
}

/** The number of readings (or `some`) that the service dropped before the page could take them. Rows that scrolled out are not counted. */
function missedText(missed) {
  return `${missed === "some" ? "some" : number(missed)} missed, because the page was too slow`;
}

function row({ sensor, reading }) {
  const fields = Object.entries(reading).filter(([name]) => name !== "ts");
  return h("tr", null,
    h("td", { class: "when" }, clock(reading.ts)),
    h("td", null, visible(sensor)),
    h("td", null, numbersFirst(fields).map(([name, stored], at) => [at ? " · " : "", `${visible(name)} `, h("b", null, value(stored))])));
}
