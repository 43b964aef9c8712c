// Formats numbers, sizes and times in the language and time zone of the user.

const NUMBER = new Intl.NumberFormat(undefined, { maximumFractionDigits: 3 });
const EXACT = new Intl.NumberFormat(undefined, { maximumFractionDigits: 20 });
const SHORT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : NUMBER.format(value);
}

/** A number with all digits. Formats the shortest text of the number, since its exact binary value has digits that nobody sent. */
function exact(value) {
  const text = String(value);
  return Math.abs(value) < 0.001 || text.includes("e") ? text : EXACT.format(text);
}

export function short(value) {
  return SHORT.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value === 0) return "0 s";
  if (value < 1) return `${number(Math.round(value * 1e4) / 10)} ms`;
  if (value < 120) return `${number(Math.round(value * 10) / 10)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

export function time(value) {
  return value === null || value === undefined ? "–" : TIME.format(new Date(value));
}

export function clock(value) {
  return CLOCK.format(new Date(value));
}

const DAY = { dateStyle: "medium" };
/** Labels of a time axis: minimum seconds between ticks, format of each tick, and format of the second line, shown when it changes. */
const TICKS = [
  [28 * 86400, { month: "short" }, { year: "numeric" }],
  [86400, { month: "short", day: "numeric" }, { year: "numeric" }],
  [60, { timeStyle: "short" }, DAY],
  [1, { timeStyle: "medium" }, DAY],
  [0, { hour: "numeric", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 }, DAY],
].map(([from, tickFormat, dateFormat]) => [from, new Intl.DateTimeFormat(undefined, tickFormat), new Intl.DateTimeFormat(undefined, dateFormat)]);

/** Labels for ticks (seconds) that are `step` seconds apart. */
export function ticks(times, step) {
  const [, tickFormat, dateFormat] = TICKS.find(([from]) => step >= from);
  let before = "";
  return times.map((tick) => {
    const text = tickFormat.format(tick * 1000);
    const date = dateFormat.format(tick * 1000);
    const isNew = date !== before;
    before = date;
    return isNew ? `${text}\n${date}` : text;
  });
}

export function ago(value) {
  if (!value) return "never";
  const elapsed = (Date.now() - new Date(value)) / 1000;
  return elapsed < 1 ? "now" : `${seconds(elapsed)} ago`;
}

/** A stored value as text, with all digits. */
export function value(stored) {
  if (typeof stored === "number") return exact(stored);
  return typeof stored === "string" ? visible(stored) : String(stored);
}

/** A text with control characters and marks of direction shown as `\uXXXX`. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Parses a duration such as `6h` to milliseconds; null if invalid. */
export function length(text) {
  const units = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };
  const [, count, unit] = /^(\d+)([smhdw])$/.exec(text) ?? [];
  return count ? Number(count) * units[unit] : null;
}

/** Sorts pairs of names and values: numbers first. Home Assistant sends texts before them. */
export function numbersFirst(fields) {
  return [...fields].sort(([, one], [, other]) => (typeof other === "number") - (typeof one === "number"));
}
