// Explore: charts of the chosen sensors and fields over time, with export. The URL holds all settings of the view.

import { address, get, rights, send } from "./api.js";
import { chart, colour } from "./chart.js";
import { curl, influx, panel } from "./copies.js";
import { button, card, copy, dialog, empty, failure, field, h, keepFocus, save, segments, select, show, table, title, toast } from "./dom.js";
import { chooseMeta, conditions, filterBar, isListed, selection } from "./filters.js";
import { clock, length, number, time, value, visible } from "./format.js";
import { change, settings } from "./state.js";

const RANGES = [["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"], ["365d", "1 y"]];
const FUNCTIONS = [["avg", "Mean, with min and max"], ["raw", "Readings"], ["min", "Minimum"], ["max", "Maximum"], ["sum", "Sum"], ["count", "Count"], ["first", "First"], ["last", "Last"], ["median", "Median"], ["p95", "95th percentile"], ["difference(avg)", "Difference of means"], ["increase", "Increase of a counter"], ["rate", "Rate of a counter, per second"]];
/** Window lengths, in seconds. */
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800];
/** Approximate number of windows in a chart. */
const WINDOWS = 500;
const SERIES_MAX = 100;
/** Maximum number of series with a min-max band: more bands would cover each other. */
const BANDS_MAX = 6;
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
/** Maximum number of strings in the table, which is not downsampled. */
const TEXTS = 2000;
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
  const kinds = kindsOf(database);
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
      query.kinds = await kinds(query, signal);
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
 * Returns a function that fetches the value types of the fields. It caches them per measurement or sensor, and fetches again if a chosen field is
 * not in the cache.
 */
function kindsOf(database) {
  let cachedFor = "";
  let kindOfField = new Map();
  return async ({ sensor, measurement, fields: chosen }, signal) => {
    const wanted = sensor ? { sensor } : { measurement };
    if (cachedFor !== JSON.stringify(wanted) || !chosen.every((name) => kindOfField.has(name))) {
      const { fields } = await get("/api/v1/fields", { db: database, ...wanted }, signal);
      cachedFor = JSON.stringify(wanted);
      kindOfField = new Map(fields.map(({ field: name, type }) => [name, type]));
    }
    return kindOfField;
  };
}

/** True if a chosen field has strings or booleans. These have no mean and no sum, only a first and a last value. */
function hasNonNumbers({ fields, kinds }) {
  return (fields.length ? fields : [...kinds.keys()]).some((name) => (kinds.get(name) ?? "number") !== "number");
}

/** True if all chosen fields have strings. */
function areTexts({ fields, kinds }) {
  return fields.length > 0 && fields.every((name) => kinds.get(name) === "string");
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

function request(query, back = 0) {
  const range = [["from", `${query.from - back}`], ["to", `${query.to - back}`], ["precision", "ms"], ["epoch", "ms"]];
  const common = [...selection(query), ...range, ["fields", query.fields.join(",")]];
  if (query.fn === "raw") return ["/api/v1/readings", [...common, ...(areTexts(query) ? [["order", "desc"], ["limit", `${TEXTS}`]] : [["max_points", "2000"]])]];
  const functions = [...(query.fn === "avg" ? ["avg", "min", "max"] : [query.fn]), ...(hasNonNumbers(query) && query.fn !== "last" && query.fn !== "first" ? ["last"] : [])].join(",");
  return ["/api/v1/summary", [...common, ["agg", functions], ["step", `${query.step}s`], ["tz", query.zone], ["group_by", query.group === "none" ? "" : query.group]]];
}

/** Fetches the series, each with the type, times (ms) and values of one field, and the notices. */
async function load(query, back, signal) {
  const [path, parameters] = request(query, back);
  const { series, notices, next } = await get(path, parameters, signal);
  const lines = [];
  const names = labels(series, query);
  for (const [index, one] of series.entries()) {
    const name = names[index];
    for (const [field, points] of pointsOf(one, query, back)) {
      const kind = typeof points[0][1];
      const shown = points.map(([ms, found, ...range]) => [ms, kind === "boolean" ? Number(found) : found, ...range]);
      const key = `${one.sensor ?? name} ${field}`;
      lines.push({ key, kind, title: visible(key), name: query.fields.length === 1 ? name : `${name} · ${visible(field)}`, points: shown });
    }
  }
  const cut = query.fn === "raw" && next ? [`Only the newest ${TEXTS} strings are listed. Choose a shorter range or fewer sensors to see the others.`] : [];
  return { lines, notices: [...(notices ?? []), ...cut] };
}

/** The points of a series by field, in time order: time, value, minimum and maximum. */
function pointsOf({ windows, readings }, query, back) {
  const byField = new Map();
  for (const point of windows ?? readings) {
    const fields = windows ? point.fields : point;
    const ms = (point.ts ?? point.start) + back;
    for (const field of Object.keys(fields)) {
      if (field === "ts" || (query.fields.length && !query.fields.includes(field))) continue;
      const found = windows ? fields[field] : {};
      // Strings and booleans have no mean: show their last value.
      const shown = windows ? found[query.fn] ?? found.last : fields[field];
      if (shown === undefined || shown === null) continue;
      if (!byField.has(field)) byField.set(field, []);
      byField.get(field).push([ms, shown, found.min, found.max]);
    }
  }
  for (const points of byField.values()) points.sort(([one], [other]) => one - other);
  return byField;
}

/** Labels of the series. Series with equal labels get their sensor keys instead. */
function labels(series, { group }) {
  const differing = group === "none" ? tagsThatDiffer(series) : [];
  const all = series.map((one) => (group === "none" ? label(one, differing) : labelOfGroup(one)));
  return all.map((name, index) => (all.indexOf(name) === all.lastIndexOf(name) ? name : visible(series[index].sensor ?? name)));
}

/** Keys of the tags with different values among the series, `sensor` first. */
function tagsThatDiffer(series) {
  const keys = [...new Set(["sensor", ...series.flatMap(({ tags }) => Object.keys(tags ?? {}))])];
  return keys.filter((key) => new Set(series.map((one) => tagOf(one, key))).size > 1);
}

/** A tag of a series. `hasOwn` protects against keys such as `constructor`. */
function tagOf({ tags }, key) {
  return tags && Object.hasOwn(tags, key) ? tags[key] : undefined;
}

/** The label of a sensor: its distinguishing tag values, or its name. */
function label(one, differing) {
  const values = (differing.length ? differing : ["sensor"]).map((key) => tagOf(one, key)).filter((stored) => stored !== undefined);
  return visible(values.join(" · ") || (one.sensor ?? one.measurement));
}

function labelOfGroup({ measurement, tags }) {
  return Object.entries(tags ?? {}).map(([key, stored]) => `${visible(key)} ${visible(stored)}`).join(", ") || visible(measurement ?? "all");
}

function draw(container, query, now, before, { zoom, goToNewest, caller, hidden }) {
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
  const lines = series.filter(({ kind }) => kind !== "string");
  const rows = tableOf(series, times, query);
  if (lines.length === 0) {
    show(container, card(null, noticeList, empty("Strings cannot be charted.", h("p", null, "See the table below or the CSV."))), card("Values", rows), exportActions(query, caller));
    container.dataset.series = "0";
    return { destroy() {} };
  }
  const plot = h("div", { class: "plot", tabindex: "0" });
  const legend = h("ul", { class: "legend", "aria-label": "Series" });
  const hint = lines.length < series.length && h("p", { class: "hint" }, "Strings cannot be charted. See the table below or the CSV.");
  show(container, card(null, noticeList, plot, legend, hint), card("Values", rows), exportActions(query, caller));
  const started = performance.now();
  const drawn = chart(plot, times, lines, { zoom, height: Math.max(260, Math.min(420, innerHeight * 0.45)), name: `Chart of ${lines.length} series from ${time(query.from)} to ${time(query.to)}` });
  legend.append(...lines.map((one, index) => legendEntry(one, index, drawn, hidden)));
  performance.measure("draw", { start: started });
  container.dataset.series = String(lines.length);
  return drawn;
}

/** The shared times (s), and the series: the current ones, and those of the week before, dashed and in the same colours. */
function seriesOf(all, earlier, query) {
  const { times, columns } = align([...all, ...earlier], query);
  const banded = query.fn === "avg" && all.length <= BANDS_MAX;
  const series = columns.map(([values, low, high], index) => {
    const isEarlier = index >= all.length;
    const line = [...all, ...earlier][index];
    const { key, kind, title } = line;
    const hue = isEarlier ? Math.max(all.findIndex((now) => now.key === key), 0) : index;
    const band = banded && !isEarlier && kind === "number" ? { low, high } : {};
    // The week before may have fewer sensors with other labels: use the current label of the same sensor.
    const name = all[hue].key === key ? all[hue].name : line.name;
    const label = isEarlier ? `${name}, a week before` : name;
    return { key: isEarlier ? `${key} before` : key, label, title, values, kind, say: formatterFor(kind, number), hue, dashed: isEarlier, ...band };
  });
  return { times, series };
}

/** Returns the formatter for values of a type. Charts hold booleans as 0 and 1. */
function formatterFor(kind, formatNumber) {
  const text = { boolean: (stored) => String(Boolean(stored)), string: visible }[kind] ?? formatNumber;
  return (stored) => (stored === null || stored === undefined ? "–" : text(stored));
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
  item.append(swatch, h("span", { class: "legend-name", title: one.title }, one.label), h("span", { class: "legend-value" }, one.say(last)));
  return h("li", null, item);
}

/**
 * Aligns all lines to one column of times (s). Each line has columns of values, minimums and maximums. `undefined` marks a time at which only other
 * lines have a value, so the line continues; `null` marks a gap, so the line breaks.
 */
function align(lines, { fn, step, from, to }) {
  const window = fn === "raw" ? 0 : step * 1000;
  const gaps = lines.map(({ points }) => gapsOf(points, window));
  const times = [...new Set([from, to, ...lines.flatMap(({ points }) => points.map(([ms]) => ms)), ...gaps.flat().map(([before, after]) => Math.floor((before + after) / 2))])].sort((a, b) => a - b);
  const rows = new Map(times.map((ms, row) => [ms, row]));
  const columns = lines.map(({ points }, line) => {
    const emptyColumn = () => new Array(times.length).fill(undefined);
    const values = emptyColumn();
    const low = emptyColumn();
    const high = emptyColumn();
    for (const [before, after] of gaps[line]) [values, low, high].forEach((column) => column.fill(null, rows.get(before) + 1, rows.get(after)));
    for (const [ms, shown, min, max] of points) {
      const row = rows.get(ms);
      values[row] = shown;
      low[row] = min;
      high[row] = max;
    }
    return [values, low, high];
  });
  return { times: times.map((ms) => ms / 1000), columns };
}

/**
 * The gaps of a line, as pairs of the times before and after. A step is a gap if at least six of the eight surrounding steps are less than a third as
 * long. The comparison is local, because a sensor may change its interval.
 */
function gapsOf(points, window) {
  const steps = points.slice(1).map(([ms], before) => ms - points[before][0]);
  const isGap = (length, index) => {
    if (length <= window * 1.5) return false;
    const neighbours = [...steps.slice(Math.max(index - 4, 0), index), ...steps.slice(index + 1, index + 5)];
    return neighbours.length > 0 && neighbours.filter((step) => step * 3 < length).length >= neighbours.length * 0.75;
  };
  return steps.flatMap((length, before) => (isGap(length, before) ? [[points[before][0], points[before][0] + length]] : []));
}

/** A table of the newest values, newest first, for users who cannot see the chart. */
function tableOf(series, times, { fn }) {
  const shown = series.slice(0, 8);
  const texts = shown.map((one) => formatterFor(one.kind, COMPUTED.has(fn) ? number : value));
  const rows = [];
  for (let index = times.length - 1; index >= 0 && rows.length < 100; index -= 1) {
    const cells = shown.map(({ values }) => values[index]);
    if (cells.some((cell) => cell !== null && cell !== undefined)) rows.push([time(times[index] * 1000), ...cells.map((cell, column) => texts[column](cell))]);
  }
  const more = series.length > shown.length && h("p", { class: "hint" }, `Showing the first ${shown.length} of ${series.length} series. The CSV has all of them.`);
  return [table("Values", ["Time", ...shown.map(({ label, title }) => h("span", { title }, label))], rows, { class: "scroll tall" }), more];
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
  const fieldChoices = fields.filter(({ field: name }) => isListed(name)).sort(order);
  const chosen = wanted.getAll("f");
  if (chosen.length === 0 && fieldChoices.length > 0) change({ f: [fieldChoices[0].field] });
  const now = settings();
  const sensor = now.get("sensor");
  const filters = conditions(now);
  const by = now.get("by") ?? "none";
  const groups = [["none", "sensor"], ...tags.filter(({ tag }) => isListed(tag) && tag !== "none" && tag !== "*").map(({ tag, values }) => [tag, `${visible(tag)} (${values})`]), ["*", "measurement"], [META, "metadata …"]];
  if (!groups.some(([key]) => key === by)) groups.push([by, visible(by)]);
  const names = measurements.map(({ measurement, sensors }) => [measurement, `${visible(measurement)} (${sensors})`]);
  const query = queryFromUrl(database);
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
      now.get("from") && button("Back", () => history.back(), { class: "quiet" }),
      check("Compare with the week before", now.get("week") === "1", (on) => set({ week: on ? "1" : null })),
      // A fixed range is not refreshed.
      check("Refresh", now.get("still") !== "1" && !now.get("from"), (on) => set({ still: on ? null : "1" }), { disabled: Boolean(now.get("from")) })));
  refocus();
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
