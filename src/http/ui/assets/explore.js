// Explore: charts of the chosen sensors and fields over time, with export. The URL holds all settings of the view.

import { address, get, rights, send } from "./api.js";
import { chart, colour } from "./chart.js";
import { curl, influx, panel } from "./copies.js";
import { button, card, copy, dialog, empty, failure, field, h, keepFocus, save, segments, select, show, table, title, toast } from "./dom.js";
import { chooseMeta, conditions, filterBar, isListed, selection } from "./filters.js";
import { clock, length, number, time, value, visible } from "./format.js";
import { SERIES_MAX, areTexts, hasNonNumbers, load, request, seriesOf } from "./series.js";
import { change, settings } from "./state.js";
import { rowsOf, timeline } from "./states.js";

const RANGES = [["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["365d", "1 y"]];
const FUNCTIONS = [["avg", "Mean, with min and max"], ["raw", "Readings"], ["min", "Minimum"], ["max", "Maximum"], ["sum", "Sum"], ["count", "Count"], ["first", "First"], ["last", "Last"], ["median", "Median"], ["p95", "95th percentile"], ["difference(avg)", "Difference of means"], ["increase", "Increase of a counter"], ["rate", "Rate of a counter, per second"]];
/** Window lengths, in seconds. */
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800];
/** Approximate number of windows in a chart. */
const WINDOWS = 500;
const WEEK = 7 * 864e5;
/** Refresh interval, in milliseconds. */
const REFRESH = 10000;
/** Interval at which an empty database is checked for readings, in milliseconds. */
const EMPTY_REFRESH = 2000;
/** Readings per request of a CSV download. */
const CSV_PAGE = 100000;
/** Maximum number of lines in a CSV file. */
const LINES_MAX = 5e6;
/** The option that opens the choice of metadata. It cannot be a tag key, because those have no control characters. */
const META = "\u0000meta";
/** Labels of the value types of the API. */
const KINDS = { number: "", boolean: "boolean", string: "string" };
/** The end of the name of a field with values of another type. */
const KEPT = /@(number|string|boolean)$/;
/** Functions with computed values, which are shown with three decimals. */
const COMPUTED = new Set(["avg", "sum", "median", "p95", "difference(avg)", "rate"]);
/** Buttons for touch screens: key, sign and label. */
const MOVES = [["ArrowLeft", "‹", "Earlier"], ["ArrowRight", "›", "Later"], ["+", "+", "Zoom in"], ["-", "−", "Zoom out"]];

export function explore(container, { caller, database }) {
  const controls = h("div", { class: "controls" });
  const result = h("div");
  let drawn = null;
  let loading = null;
  let timer = null;
  let isClosed = false;
  const fieldTypes = fieldsOf();
  // Keys of the series that the user hid. They stay hidden when the chart is redrawn.
  const hidden = new Set();

  async function run() {
    clearTimeout(timer);
    loading?.abort();
    loading = new AbortController();
    const query = queryFromUrl(database);
    if (isClosed) return;
    if (!query) {
      // The database is empty: check again soon, so that the first reading appears without a reload.
      timer = setTimeout(() => choose().then(run), EMPTY_REFRESH);
      return;
    }
    result.setAttribute("aria-busy", "true");
    try {
      const { signal } = loading;
      Object.assign(query, await fieldTypes(query, signal));
      const [now, before, tags] = await Promise.all([
        load(query, 0, signal),
        query.compare ? load(query, WEEK, signal) : null,
        query.sensor ? get("/api/v1/tags", { db: database, measurement: query.measurement }, signal) : null,
      ]);
      query.tags = tags?.tags.map(({ tag }) => tag);
      const refocus = keepFocus(result);
      drawn?.destroy();
      drawn = draw(result, query, now, before, { zoom, goToNewest, caller, hidden });
      refocus();
    } catch (error) {
      if (error.name === "AbortError") return;
      show(result, failure(error));
    }
    result.removeAttribute("aria-busy");
    if (query.follows && query.refresh) timer = setTimeout(() => (document.hidden ? (timer = setTimeout(run, REFRESH)) : run()), REFRESH);
  }

  const set = (changes, more) => {
    change(changes, more);
    const chosen = choose();
    // After a change of the measurement, choose its first field before sending a query.
    if (settings().getAll("f").length === 0) chosen.then(run);
    else run();
  };
  const zoom = (from, to) => set({ from: Math.floor(from * 1000), to: Math.ceil(to * 1000), range: null }, { push: true });

  /** Moves the range, without changing its length, so that it ends just after the newest reading of the chosen sensors. */
  const goToNewest = async (query) => {
    const { series } = await get("/api/v1/latest", [...selection(query), ["epoch", "ms"]]);
    const newest = Math.max(...series.flatMap(({ readings }) => readings.map(({ ts }) => ts)));
    if (!Number.isFinite(newest)) return toast("No sensor has a reading.");
    const to = Math.floor(newest) + 1000;
    return set({ from: to - Math.round(query.to - query.from), to, range: null }, { push: true });
  };

  async function choose() {
    try {
      await chooseFrom(controls, { caller, database }, set, move);
    } catch (error) {
      show(controls, failure(error));
    }
  }

  const move = (key) => {
    const query = queryFromUrl(database);
    const newRange = query && rangeAfter(key, query);
    if (newRange) set({ from: Math.round(newRange[0]), to: Math.round(newRange[1]), range: null });
    return Boolean(newRange);
  };
  show(container, title("Explore", "Drag over the chart to zoom in; arrow keys pan, + and − zoom."), controls, result);
  result.addEventListener("keydown", (event) => {
    if (event.target.closest?.(".plot") && move(event.key)) event.preventDefault();
  });
  choose().then(run);
  return () => {
    isClosed = true;
    clearTimeout(timer);
    loading?.abort();
    drawn?.destroy();
  };
}

/** The query that the URL describes; null if it names neither a measurement nor a sensor. */
function queryFromUrl(database) {
  const wanted = settings();
  if (!wanted.get("m") && !wanted.get("sensor")) return null;
  const range = wanted.get("range") ?? (wanted.get("from") ? null : "6h");
  const to = range ? Date.now() : Number(wanted.get("to") ?? Date.now());
  const from = range ? to - (length(range) ?? 216e5) : Number(wanted.get("from"));
  const shortest = (to - from) / 1000 / WINDOWS;
  const step = STEPS.find((seconds) => seconds >= shortest) ?? STEPS.at(-1);
  return {
    database, range, from, to, step, zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    measurement: wanted.get("m"), sensor: wanted.get("sensor"), fields: wanted.getAll("f"), filters: conditions(wanted),
    group: wanted.get("by") ?? "none", fn: wanted.get("fn") ?? "avg",
    compare: wanted.get("week") === "1", refresh: wanted.get("still") !== "1", follows: Boolean(range),
  };
}

/**
 * Returns a function that fetches the value types and units of the fields, as maps. It caches them per selection of sensors, and fetches again if a
 * chosen field is not in the cache.
 */
function fieldsOf() {
  let cachedFor = "";
  let cached = null;
  return async (query, signal) => {
    const wanted = selection(query);
    if (cachedFor !== JSON.stringify(wanted) || !query.fields.every((name) => cached.kinds.has(name))) {
      const { fields } = await get("/api/v1/fields", wanted, signal);
      cachedFor = JSON.stringify(wanted);
      cached = { kinds: new Map(fields.map(({ field: name, type }) => [name, type])), units: new Map(fields.map(({ field: name, unit }) => [name, unit])) };
    }
    return cached;
  };
}

/** The new range after a key press; null for other keys. */
function rangeAfter(key, { from, to }) {
  const span = to - from;
  if (key === "ArrowLeft") return [from - span / 4, to - span / 4];
  if (key === "ArrowRight") return [from + span / 4, to + span / 4];
  if (key === "+") return [from + span / 4, to - span / 4];
  if (key === "-") return [from - span / 2, to + span / 2];
  return null;
}

function draw(container, chosen, now, before, { zoom, goToNewest, caller, hidden }) {
  const query = { ...chosen, fn: now.fn ?? chosen.fn };
  const all = now.lines.slice(0, SERIES_MAX);
  const notices = [...now.notices.map(visible)];
  if (now.lines.length > SERIES_MAX) notices.push(`Showing the first ${SERIES_MAX} of ${now.lines.length} series. Choose fewer sensors, or group them.`);
  if (hasNonNumbers(query) && !["raw", "first", "last"].includes(query.fn)) notices.push("For strings and booleans, the last value of each window is shown.");
  const noticeList = notices.length > 0 && h("ul", { class: "notices", "aria-label": "Notices" }, notices.map((notice) => h("li", null, notice)));
  if (all.length === 0) {
    // The empty chart takes arrow keys, so that the user can go back.
    const newest = button("Go to the newest reading", () => goToNewest(query).catch((error) => toast(error.message)));
    show(container, noticeList, h("div", { class: "plot", tabindex: "0", role: "group", "aria-label": "Chart" }, empty("No readings in this range.", newest)));
    return { destroy() {} };
  }
  const { times, series } = seriesOf(all, (before?.lines ?? []).slice(0, SERIES_MAX), query);
  const numbers = series.filter(({ kind }) => kind === "number");
  const rows = rowsOf(series.filter(({ kind }) => kind !== "number"), query);
  const range = `from ${time(query.from)} to ${time(query.to)}`;
  const plot = numbers.length > 0 && h("div", { class: "plot", tabindex: "0" });
  const legend = numbers.length > 0 && h("ul", { class: "legend", "aria-label": "Series" });
  const states = h("div");
  show(container, card(null, noticeList, plot, legend, rows.length > 0 && states), card("Values", tableOf(series, times, query)), exportActions(chosen, caller));
  const started = performance.now();
  const drawn = plot && chart(plot, times, numbers, { zoom, height: Math.max(260, Math.min(420, innerHeight * 0.45)), name: `Chart of ${numbers.length} series ${range}` });
  legend && legend.append(...numbers.map((one, index) => legendEntry(one, index, drawn, hidden)));
  const drawnStates = rows.length > 0 && timeline(states, rows, { ...query, zoom, margins: drawn ? drawn.margins : undefined, name: `Timeline of ${rows.length} series ${range}` });
  performance.measure("draw", { start: started });
  container.dataset.series = String(series.length);
  return {
    destroy() {
      drawn && drawn.destroy();
      drawnStates && drawnStates.destroy();
    },
  };
}

function legendEntry(one, index, drawn, hidden) {
  const last = one.values.findLast((stored) => stored !== null && stored !== undefined);
  const toggle = () => {
    const shown = drawn.toggle(index);
    if (shown) hidden.delete(one.key);
    else hidden.add(one.key);
    item.setAttribute("aria-pressed", String(shown));
  };
  const item = button([], toggle, { "aria-pressed": "true", class: "legend-item" });
  if (hidden.has(one.key)) toggle();
  const swatch = h("span", { class: one.dashed ? "swatch dashed" : "swatch", "aria-hidden": "true" });
  // The Content-Security-Policy forbids a style attribute, but allows a script to set the property.
  swatch.style.color = colour(one.hue);
  item.append(swatch, h("span", { class: "legend-name", title: one.title }, one.label), h("span", { class: "legend-value" }, `${number(last)}${one.unit}`));
  return h("li", null, item);
}

/** A table of the newest values, newest first, for users who cannot see the chart. */
function tableOf(series, times, { fn }) {
  const shown = series.slice(0, 8);
  const texts = shown.map(({ kind }) => (kind === "number" && COMPUTED.has(fn) ? number : value));
  const rows = [];
  for (let index = times.length - 1; index >= 0 && rows.length < 100; index -= 1) {
    const cells = shown.map(({ values }) => values[index]);
    if (cells.some((cell) => cell !== null && cell !== undefined)) rows.push([time(times[index] * 1000), ...cells.map((cell, column) => (cell === null || cell === undefined ? "–" : texts[column](cell)))]);
  }
  const more = series.length > shown.length && h("p", { class: "hint" }, `Showing the first ${shown.length} of ${series.length} series. The CSV has all of them.`);
  return [table("Values", ["Time", ...shown.map(({ label, title, unit }) => [h("span", { title }, label), unit && h("div", { class: "hint" }, unit)])], rows, { class: "scroll tall" }), more];
}

function exportActions(query, caller) {
  const [path, parameters] = request(query);
  const full = `${location.origin}${address(path, parameters)}`;
  return h("div", { class: "actions" },
    button("Copy as curl", () => copy(curl(full, caller))),
    button("Copy as InfluxQL", () => copy(influx(query))),
    button("Copy as Grafana panel", () => copy(panel(query))),
    button("Download CSV", () => download(path, parameters).catch((error) => toast(error.message))),
    h("span", { class: "hint" }, query.fn === "raw" ? (areTexts(query) ? "Readings" : "Readings, downsampled for the chart") : `Windows of ${query.step} s`, ` · as of ${clock(Date.now())}`));
}

async function download(path, parameters) {
  const { parts, isWhole } = await csv(path, [...parameters.filter(([name]) => name !== "max_points" && name !== "limit"), ["format", "csv"], ["guard", "spreadsheet"]]);
  if (!isWhole) dialog("The file is incomplete", h("p", null, `It ends after ${number(LINES_MAX)} lines. Choose a shorter range or fewer sensors to download all readings.`));
  save("hourglass.csv", parts, "text/csv");
}

/** Fetches a CSV in parts, up to `LINES_MAX` lines, and keeps only the first header row. */
async function csv(path, parameters) {
  const parts = [];
  let head = null;
  let cursor = "";
  let lines = 0;
  let limit = path === "/api/v1/readings" ? CSV_PAGE : "";
  const part = () => send("GET", path, { parameters: [...parameters, ["limit", limit], ["cursor", cursor]] });
  do {
    const answer = await part().catch((error) => {
      // query.limit_max may be lower: use the default limit of the service.
      if (error.status !== 400 || limit === "") throw error;
      limit = "";
      return part();
    });
    const text = await answer.text();
    const end = text.indexOf("\n") + 1;
    lines += text.split("\n").length;
    // Each part has the columns that exist at the time. Values would get into the wrong columns if new ones appear.
    if (head !== null && head !== text.slice(0, end)) throw new Error("Fields or tags were added during the download. Try again.");
    parts.push(new Blob([head === null ? text : text.slice(end)]));
    head = text.slice(0, end);
    cursor = answer.headers.get("X-Next-Cursor");
  } while (cursor && lines < LINES_MAX);
  return { parts, isWhole: !cursor };
}

/** Draws the controls, with the measurements, fields and tags of the database. */
async function chooseFrom(container, { caller, database }, set, move) {
  const wanted = settings();
  const { measurements } = await get("/api/v1/measurements", { db: database });
  if (measurements.length === 0 && !wanted.get("m")) {
    // Draw it only once, so that its link keeps the focus.
    if (!container.querySelector(".empty")) show(container, empty(`The database ${visible(database)} is empty.`, h("p", null, ...(rights(caller, database).write ? [h("a", { href: "#connect" }, "Connect a device"), " to see its readings here."] : ["Readings appear here as soon as a device sends some."]))));
    return;
  }
  if (!wanted.get("m")) {
    change({ m: measurements[0].measurement });
    return chooseFrom(container, { caller, database }, set, move);
  }
  const parameters = { db: database, measurement: wanted.get("m") };
  const [{ fields }, { tags }] = await Promise.all([get("/api/v1/fields", parameters), get("/api/v1/tags", parameters)]);
  const kinds = Object.keys(KINDS);
  const order = (a, b) => kinds.indexOf(a.type) - kinds.indexOf(b.type) || b.sensors - a.sensors;
  const query = queryFromUrl(database);
  const resolved = await resolvedFields(fields, query);
  const fieldChoices = fields.filter(({ field: name }) => isListed(name) && !resolved.has(name)).sort(order);
  const chosen = wanted.getAll("f");
  if (chosen.length === 0 && fieldChoices.length > 0) change({ f: [fieldChoices[0].field] });
  const now = settings();
  const sensor = now.get("sensor");
  const filters = conditions(now);
  const by = now.get("by") ?? "none";
  const groups = [["none", "sensor"], ...tags.filter(({ tag }) => isListed(tag) && tag !== "none" && tag !== "*").map(({ tag, values }) => [tag, `${visible(tag)} (${values})`]), ["*", "measurement"], [META, "metadata …"]];
  if (!groups.some(([key]) => key === by)) groups.push([by, visible(by)]);
  const names = measurements.map(({ measurement, sensors }) => [measurement, `${visible(measurement)} (${sensors})`]);
  const refocus = keepFocus(container);
  show(container,
    h("div", { class: "row" },
      field("Measurement", select(names, now.get("m"), (m) => set({ m, f: null, where: null, by: null, sensor: null }, { push: true }))),
      field("Show", select(FUNCTIONS, now.get("fn") ?? "avg", (fn) => set({ fn }))),
      field("One line per", select(groups, by, (wanted) => (wanted === META ? chooseMeta({ database, measurement: now.get("m") }, (name) => set({ by: name }), () => set({})) : set({ by: wanted === "none" ? null : wanted }))))),
    h("div", { class: "row wide" }, h("fieldset", { class: "chips" }, h("legend", null, "Fields"), fieldChoices.map(({ field: name, type, sensors }) => chip(visible(name), KINDS[type], sensors, now.getAll("f").includes(name), (on) => {
      // Read the URL again, because a second click may come before the first one is drawn.
      const others = settings().getAll("f").filter((known) => known !== name);
      set({ f: on ? [...others, name] : others });
    }))),
    filterBar({ database, measurement: now.get("m"), sensor, filters, tags, withMeta: true }, set)),
    h("div", { class: "row ranges" },
      segments("Range", RANGES, now.get("range") ?? (now.get("from") ? "" : "6h"), (range) => set({ range, from: null, to: null }, { push: true })),
      h("div", { class: "segments", role: "group", "aria-label": "Move" }, MOVES.map(([key, sign, name]) => button(sign, () => move(key), { class: "segment", "aria-label": name }))),
      dateField("From", query.from, (from) => set({ from, to: Math.round(query.to), range: null }, { push: true })),
      dateField("To", query.to, (to) => set({ from: Math.round(query.from), to, range: null }, { push: true })),
      now.get("from") && history.state?.isNarrowed && button("Back", () => history.back(), { class: "quiet" }),
      check("Compare with the week before", now.get("week") === "1", (on) => set({ week: on ? "1" : null })),
      // A fixed range is not refreshed.
      check("Refresh", now.get("still") !== "1" && !now.get("from"), (on) => set({ still: on ? null : "1" }), { disabled: Boolean(now.get("from")) })));
  refocus();
}

/**
 * The fields that keep values of another type (`temp@string`), are not chosen and have no value in the range. A field stays known after its values were
 * deleted, and would be offered for good.
 */
async function resolvedFields(fields, { database, measurement, from, to, fields: chosen }) {
  const names = new Set(fields.map(({ field: name }) => name));
  const kept = [...names].filter((name) => KEPT.test(name) && names.has(name.replace(KEPT, "")) && !chosen.includes(name));
  if (kept.length === 0) return new Set();
  const range = { from: Math.round(from), to: Math.round(to), precision: "ms" };
  try {
    const { series } = await get("/api/v1/summary", { db: database, measurement, ...range, fields: kept.join(","), agg: "count", group_by: "*" });
    const found = series.flatMap(({ windows }) => windows.flatMap((window) => Object.keys(window.fields)));
    return new Set(kept.filter((name) => !found.includes(name)));
  } catch {
    // They cannot be counted, for example because the range has too many readings: offer all.
    return new Set();
  }
}

/** A field for a date and time in the user's time zone, given in milliseconds. */
function dateField(name, ms, change) {
  const shown = new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  return field(name, h("input", { type: "datetime-local", value: shown, on: { change: ({ target }) => target.value && change(new Date(target.value).getTime()) } }));
}

function check(text, on, change, more) {
  const box = h("input", { type: "checkbox", ...more, on: { change: (event) => change(event.target.checked) } });
  box.checked = on;
  return h("label", { class: "check" }, box, text);
}

function chip(text, kind, count, on, change) {
  return button([text, kind && h("span", { class: "hint" }, kind), h("span", { class: "hint" }, `${count}`, h("span", { class: "unseen" }, count === 1 ? " sensor" : " sensors"))], () => change(!on), { "aria-pressed": String(on), class: "chip" });
}
