// The data of Explore: requests for the chosen sensors and fields, and their answers as series. Pure functions, except for `load`.

import { get } from "./api.js";
import { selection } from "./filters.js";
import { visible } from "./format.js";

export const SERIES_MAX = 100;
/** Maximum number of series with a min-max band: more bands would cover each other. */
const BANDS_MAX = 6;
/** Maximum number of readings with strings, which are not downsampled. */
const TEXTS = 10000;
/** Maximum length of a shown unit. */
const UNIT_LENGTH = 16;

/** True if a chosen field has strings or booleans. These have no mean and no sum, only a first and a last value. */
export function hasNonNumbers({ fields, kinds }) {
  return (fields.length ? fields : [...kinds.keys()]).some((name) => (kinds.get(name) ?? "number") !== "number");
}

/** True if all chosen fields have strings. */
export function areTexts({ fields, kinds }) {
  return fields.length > 0 && fields.every((name) => kinds.get(name) === "string");
}

export function request(query, back = 0) {
  const range = [["from", `${query.from - back}`], ["to", `${query.to - back}`], ["precision", "ms"], ["epoch", "ms"]];
  const common = [...selection(query), ...range, ["fields", query.fields.join(",")]];
  if (query.fn === "raw") return ["/api/v1/readings", [...common, ...(areTexts(query) ? [["order", "desc"], ["limit", `${TEXTS}`]] : [["max_points", "2000"]])]];
  const functions = [...(query.fn === "avg" ? ["avg", "min", "max"] : [query.fn]), ...(hasNonNumbers(query) && query.fn !== "last" && query.fn !== "first" ? ["last"] : [])].join(",");
  return ["/api/v1/summary", [...common, ["agg", functions], ["step", `${query.step}s`], ["tz", query.zone], ["group_by", query.group === "none" ? "" : query.group]]];
}

/** Fetches the series, each with the type, times (ms) and values of one field, the notices, and the function if it is another than the chosen one. */
export async function load(query, back, signal) {
  const [path, parameters] = request(query, back);
  const { series, notices, next } = await get(path, parameters, signal).catch((error) => {
    // query.limit_max may be lower: use the default limit of the service.
    if (error.status !== 400 || !parameters.some(([name]) => name === "limit")) throw error;
    return get(path, parameters.filter(([name]) => name !== "limit"), signal);
  });
  if (query.fn === "raw" && next) {
    // A part of the readings ends in the midst of the sensors. Windows have all sensors over the whole range.
    const windows = await load({ ...query, fn: "last", group: "none" }, back, signal);
    const notice = `There are too many readings to show each: the last value of each window of ${query.step} s is shown. The CSV has all readings.`;
    return { ...windows, fn: "last", notices: [...windows.notices, notice] };
  }
  const lines = [];
  const names = labels(series, query);
  for (const [index, one] of series.entries()) {
    const name = names[index];
    for (const [field, points] of pointsOf(one, query, back)) {
      const kind = typeof points[0][1];
      const key = `${one.sensor ?? name} ${field}`;
      const unit = kind === "number" ? unitOf(field, query) : "";
      lines.push({ key, kind, unit, title: visible(key), name: query.fields.length === 1 ? name : `${name} · ${visible(field)}`, points });
    }
  }
  return { lines, notices: notices ?? [] };
}

/** The unit of the shown values of a field, with a space before it; empty if there is none. */
function unitOf(field, { fn, units }) {
  const unit = fn === "count" ? undefined : units.get(field);
  return unit ? `\u00a0${visible(unit.slice(0, UNIT_LENGTH))}${fn === "rate" ? "/s" : ""}` : "";
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

/** The shared times (s), and the series: the current ones, and those of the week before, dashed and in the same colours. */
export function seriesOf(all, earlier, query) {
  const { times, columns } = align([...all, ...earlier], query);
  const numbers = all.filter(({ kind }) => kind === "number");
  const banded = query.fn === "avg" && numbers.length <= BANDS_MAX;
  const series = columns.map(([values, low, high], index) => {
    const isEarlier = index >= all.length;
    const line = [...all, ...earlier][index];
    const { key, kind, title, unit, points } = line;
    const hue = Math.max(numbers.findIndex((now) => now.key === key), 0);
    const band = banded && !isEarlier && kind === "number" ? { low, high } : {};
    // The week before may have fewer sensors with other labels: use the current label of the same sensor.
    const { name } = all.find((now) => now.key === key) ?? line;
    const label = isEarlier ? `${name}, a week before` : name;
    return { key: isEarlier ? `${key} before` : key, label, title, values, kind, unit, points, hue, dashed: isEarlier, ...band };
  });
  return { times, series };
}

/**
 * Aligns all lines to one column of times (s). Each line has columns of values, minimums and maximums. `undefined` marks a time at which only other
 * lines have a value, so the line continues; `null` marks a gap, so the line breaks.
 */
function align(lines, query) {
  const { from, to } = query;
  const window = windowOf(query);
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

/** The length of a window, in milliseconds; 0 for readings. */
export function windowOf({ fn, step }) {
  return fn === "raw" ? 0 : step * 1000;
}

/**
 * The gaps of a line, as pairs of the times before and after. A step is a gap if at least six of the eight surrounding steps are less than a third as
 * long. The comparison is local, because a sensor may change its interval.
 */
export function gapsOf(points, window) {
  const steps = points.slice(1).map(([ms], before) => ms - points[before][0]);
  const isGap = (length, index) => {
    if (length <= window * 1.5) return false;
    const neighbours = [...steps.slice(Math.max(index - 4, 0), index), ...steps.slice(index + 1, index + 5)];
    return neighbours.length > 0 && neighbours.filter((step) => step * 3 < length).length >= neighbours.length * 0.75;
  };
  return steps.flatMap((length, before) => (isGap(length, before) ? [[points[before][0], points[before][0] + length]] : []));
}
