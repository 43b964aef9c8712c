// Timelines of strings and booleans: one row per series, with a bar for each state.

import { MARGIN, colour, timeAxis } from "./chart.js";
import { h, show } from "./dom.js";
import { seconds, time, value } from "./format.js";
import { gapsOf, windowOf } from "./series.js";

/** Maximum number of rows. The table and the CSV have the other series. */
const ROWS_MAX = 20;
/** Maximum number of characters of a state in a row. */
const STATE_CHARS_MAX = 64;
/** Height of a row, and of the bar below its label, in pixels. */
const ROW = 52;
const BAR = 24;
/** Opacity of a state that is older than usual. */
const HELD = 0.35;
/** Minimum width of a bar, and of one with a text, in pixels. */
const BAR_MIN = 2;
const TEXT_MIN = 24;
const STATES_MAX = 12;

/**
 * The rows of series with strings or booleans: label, title and runs. A run is a time (ms) in which the state stays the same. After the last reading
 * before a gap, the state is held: it is not known that it lasted.
 */
export function rowsOf(series, query) {
  const window = windowOf(query);
  const end = Math.min(query.to, Date.now());
  return series.map(({ label, title, kind, points }) => {
    const runs = [];
    const add = (state, from, to, isHeld) => {
      const last = runs.at(-1);
      if (last && last.state === state && last.isHeld === isHeld && last.to === from) last.to = to;
      else if (to > from || !isHeld) runs.push({ state, from, to, isHeld });
    };
    const followed = points.at(-1)[0] < end ? [...points, [end]] : points;
    const gaps = new Set(gapsOf(followed, window).map(([before]) => before));
    for (const [index, [ms, stored]] of points.entries()) {
      const from = Math.max(ms, query.from);
      const next = followed[index + 1]?.[0] ?? ms;
      const known = gaps.has(ms) ? Math.min(ms + window, next) : next;
      const state = brief(value(stored));
      add(state, from, known, false);
      if (known < next) add(state, known, next, true);
    }
    return { label, title, kind, runs };
  });
}

/** A state as it is drawn. The table has the whole text. */
function brief(state) {
  return typeof state === "string" && state.length > STATE_CHARS_MAX ? `${state.slice(0, STATE_CHARS_MAX)}…` : state;
}

/** Draws rows of `rowsOf` from `from` to `to` (ms). `margins` returns those of a chart above, so that both have the same time axis. Returns `{ destroy() }`. */
export function timeline(container, rows, { from, to, zoom, margins = () => ({ left: MARGIN, right: MARGIN }), name }) {
  const shown = rows.slice(0, ROWS_MAX);
  const paints = coloursOf(shown);
  const plot = h("div", { class: "plot states", tabindex: "0", role: "img", "aria-label": name });
  const isHeld = shown.some(({ runs }) => runs.some((run) => run.isHeld));
  const hints = [isHeld && "Paler: no reading for longer than usual.", rows.length > shown.length && `Showing the first ${shown.length} of ${rows.length} timelines.`].filter(Boolean);
  show(container, plot, legend(paints), hints.length > 0 && h("p", { class: "hint" }, hints.join(" ")));
  const tip = h("div", { class: "tip", hidden: true });
  const size = () => ({ width: Math.max(plot.clientWidth, 200), height: shown.length * ROW + 52 });
  const options = {
    ...size(),
    series: [{}, { paths: () => null, points: { show: false } }],
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { show: false } },
    scales: { x: { time: true, range: [from / 1000, to / 1000] } },
    axes: [timeAxis(), { show: false }],
    padding: [0, () => margins().right, 0, () => margins().left],
    hooks: {
      draw: [(drawn) => shown.forEach((row, index) => drawRow(drawn, row, index, paints))],
      setSelect: [(drawn) => drawn.select.width > 3 && zoom(drawn.posToVal(drawn.select.left, "x"), drawn.posToVal(drawn.select.left + drawn.select.width, "x"))],
      setCursor: [(drawn) => updateTip(drawn, tip, shown)],
    },
  };
  const drawn = new window.uPlot(options, [[from / 1000, to / 1000], [null, null]], plot);
  drawn.over.append(tip, ...shown.map(({ label, title }, index) => {
    const line = h("div", { class: "state-name", title }, label);
    line.style.top = `${index * ROW + 4}px`;
    return line;
  }));
  const resized = new ResizeObserver(() => drawn.setSize(size()));
  resized.observe(plot);
  return {
    destroy() {
      resized.disconnect();
      drawn.destroy();
    },
  };
}

/** The fill of each state. `false` has no colour; states beyond the colours share them. */
function coloursOf(rows) {
  const isFalse = new Set(rows.filter(({ kind }) => kind === "boolean").map(() => "false"));
  const states = [...new Set(rows.flatMap(({ runs }) => runs.map(({ state }) => state)))].sort();
  const grey = getComputedStyle(document.documentElement).getPropertyValue("--edge").trim();
  const coloured = states.filter((state) => !isFalse.has(state));
  return new Map(states.map((state) => [state, isFalse.has(state) ? grey : colour(coloured.indexOf(state)).slice(0, 7)]));
}

function legend(paints) {
  const all = [...paints];
  const entries = all.slice(0, STATES_MAX).map(([state, fill]) => {
    const swatch = h("span", { class: "swatch block", "aria-hidden": "true" });
    swatch.style.color = fill;
    return h("li", { class: "state-entry" }, swatch, h("span", { class: "legend-name" }, state));
  });
  const more = all.length > STATES_MAX && h("li", { class: "state-entry hint" }, `and ${all.length - STATES_MAX} more`);
  return h("ul", { class: "legend", "aria-label": "States" }, entries, more);
}

function drawRow(drawn, { runs }, index, paints) {
  const { ctx, bbox } = drawn;
  const scale = devicePixelRatio;
  const top = bbox.top + (index * ROW + ROW - BAR) * scale;
  const place = (ms) => Math.min(Math.max(drawn.valToPos(ms / 1000, "x", true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  ctx.font = `${12 * scale}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const { state, from, to, isHeld } of runs) {
    const left = place(from);
    const width = Math.max(place(to) - left, isHeld ? 0 : BAR_MIN * scale);
    ctx.globalAlpha = isHeld ? HELD : 1;
    ctx.fillStyle = paints.get(state);
    ctx.fillRect(left, top, width, BAR * scale);
    if (isHeld || width < TEXT_MIN * scale) continue;
    if (ctx.measureText(state).width + 12 * scale > width) continue;
    ctx.fillStyle = textOn(paints.get(state));
    ctx.fillText(state, left + 6 * scale, top + (BAR * scale) / 2);
  }
  ctx.restore();
}

/** Black or white, whichever is easier to read on a colour such as `#0f766e`. */
function textOn(fill) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(fill.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/** Shows the state at the cursor, and how long it lasts. */
function updateTip(drawn, tip, rows) {
  const { left, top } = drawn.cursor;
  const row = left < 0 ? undefined : rows[Math.floor(top / ROW)];
  const ms = drawn.posToVal(left, "x") * 1000;
  const reach = (drawn.posToVal(left + BAR_MIN, "x") * 1000 - ms) || 0;
  const run = row?.runs.find(({ from, to }) => from <= ms && ms <= Math.max(to, from + reach));
  tip.hidden = !run;
  if (!run) return;
  show(tip, h("div", { class: "tip-time" }, `${time(run.from)} to ${time(run.to)} (${seconds((run.to - run.from) / 1000)})`),
    h("div", null, h("b", null, run.state), ` ${row.label}`, run.isHeld && ", no reading since then"));
  tip.classList.toggle("tip-left", left > drawn.over.clientWidth / 2);
}
