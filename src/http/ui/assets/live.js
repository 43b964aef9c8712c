// Live: readings as they are acknowledged, newest first.

import { address, get } from "./api.js";
import { curl } from "./copies.js";
import { announce, button, card, failure, field, h, select, show, title } from "./dom.js";
import { conditions, filterBar, selection } from "./filters.js";
import { clock, number, value, visible } from "./format.js";
import { change, settings } from "./state.js";
import { listen, runInOneTab } from "./stream.js";

/** Maximum number of rows on the page. */
const ROWS = 200;
/** Minimum time between two redraws, in milliseconds. */
const PAUSE = 250;

export function live(place, { caller, database }) {
  const rows = h("tbody");
  // Screen readers announce `status`, but not `rate`, which changes too often.
  const [status, rate] = [h("span", { role: "status" }), h("span")];
  const state = h("div", { class: "state" }, status, rate);
  const chooser = h("div", { class: "controls" });
  const command = h("code");
  let [stop, waiting, timer, came, missed, count, since] = [null, [], null, 0, 0, 0, Date.now()];

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
    const told = [`${number(Math.round((count / seconds) * 10) / 10)} readings/s`, came > ROWS && `${number(came)} received, the newest ${ROWS} are shown`, missed && missedText(missed)];
    show(rate, told.filter(Boolean).join(" · "));
    if (seconds > 20) [count, since] = [count / 2, Date.now() - seconds * 500];
  };
  const hear = (news) => {
    if (news.readings) {
      count += news.readings.length;
      came += news.readings.length;
      waiting.push(...news.readings);
      if (waiting.length > ROWS) waiting.splice(0, waiting.length - ROWS);
      timer ??= setTimeout(flush, rows.childElementCount ? PAUSE : 0);
    }
    if ("missed" in news) {
      missed = news.missed === null ? "some" : missed === "some" ? missed : missed + news.missed;
      timer ??= setTimeout(flush, PAUSE);
    }
    if (news.state === "open") say("Listening …");
    if (news.state === "hidden") say("Paused while this page is hidden.");
    if (news.state === "waiting") say(news.why);
    if (news.ended) say(news.ended);
    if (news.error) announce(status, news.error.message, () => failure(news.error));
  };
  const begin = () => {
    [came, missed, count, since] = [0, 0, 0, Date.now()];
    stop = runInOneTab(() => listen(wanted(), hear), () => {
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

  const asked = () => ({ database, measurement: settings().get("m"), sensor: settings().get("sensor"), filters: conditions(settings()) });
  const wanted = () => selection(asked());
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
  let [names, tags] = [[], []];
  const draw = () => {
    show(chooser, h("div", { class: "row" },
      field("Measurement", select([["", "all"], ...names.map(({ measurement, sensors }) => [measurement, `${visible(measurement)} (${sensors})`])], settings().get("m") ?? "", (m) => set({ m, sensor: null, where: null }))),
      h("div", { class: "field" }, h("span", { class: "label" }, "Stream"), button(stop ? "Pause" : "Resume", toggle, { class: stop ? "" : "primary" }))),
    filterBar({ ...asked(), tags }, set));
    command.textContent = curl(`${location.origin}${address("/api/v1/tail", wanted())}`, caller, "-N ");
  };

  show(place, title("Live", "Readings as they are acknowledged, newest first."), chooser, state,
    card(null, h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Readings" },
      h("table", { class: "live" }, h("thead", null, h("tr", null, ["Time", "Sensor", "Fields"].map((text) => h("th", { scope: "col" }, text)))), rows))),
    h("p", { class: "hint" }, "The same in a terminal: ", command));
  begin();
  draw();
  say("Listening …");
  // Without these lists there are no filters, and the view shows all readings.
  Promise.all([get("/api/v1/measurements", { db: database }), get("/api/v1/tags", { db: database })]).then(([found, known]) => {
    [names, tags] = [found.measurements, known.tags];
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
    h("td", null, fields.map(([name, stored], at) => [at ? " · " : "", `${visible(name)} `, h("b", null, value(stored))])));
}
