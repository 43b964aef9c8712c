// Charts with uPlot: lines with min-max bands and gaps, and zoom by dragging.

import { h } from "./dom.js";
import { number, ticks, time } from "./format.js";

/**
 * Series colours by theme. They are distinguishable from each other, also with red-green colour blindness, and from the background. They maximize the
 * smallest distance between two colours, which a test measures.
 */
export const COLOURS = {
  light: ["#0f766e", "#f34e1b", "#0532b6", "#df4cb2", "#4092e7", "#964d0c", "#530182", "#6d9e6c", "#7f124d", "#8747d7", "#2f4200", "#534c84"],
  dark: ["#2dd4bf", "#ec460e", "#b33fbe", "#fbd509", "#4d69f4", "#9cfbfe", "#dd6d9f", "#53fd89", "#c7a165", "#759ad0", "#2e8f5b", "#f7a4fe"],
};
/** Pixels beside the drawn area, so that a date below its edge is not cut off. */
export const MARGIN = 44;
/** Maximum number of vertical axes. Other units have a scale without an axis. */
const UNIT_AXES = 2;
/** Minimum width of a visible line, in pixels. A shorter run of readings is drawn as a point. */
const LINE_WIDTH_MIN = 3;

export function colour(index, alpha = 1) {
  const colours = COLOURS[isDark() ? "dark" : "light"];
  return `${colours[index % colours.length]}${Math.round(alpha * 255).toString(16).padStart(2, "0")}`;
}

export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function axis(more) {
  const style = getComputedStyle(document.documentElement);
  return {
    stroke: style.getPropertyValue("--text-2").trim(),
    grid: { stroke: style.getPropertyValue("--line").trim(), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    ...more,
  };
}

/** The width of a vertical axis, for its longest label. */
function axisWidth(_, texts) {
  return Math.max(MARGIN, 16 + 7 * Math.max(...(texts ?? [""]).map((text) => text.length)));
}

export function timeAxis() {
  return axis({ space: 84, size: 44, values: (_, times, __, ___, step) => ticks(times, step) });
}

/** The axes: time, and one for the numbers of each unit, up to `UNIT_AXES`. Each unit has its own scale. */
function axes(series) {
  const units = [...new Set(series.map(unitOf))].slice(0, UNIT_AXES);
  return [timeAxis(), ...units.map((unit, index) => axis({
    scale: scaleOf(unit), side: index === 0 ? 3 : 1, ...(index > 0 && { grid: { show: false } }), size: axisWidth,
    values: (_, splits) => splits.map((tick) => `${number(tick)}${unit}`),
  }))];
}

function unitOf({ unit }) {
  return unit ?? "";
}

function scaleOf(unit) {
  return `y${unit}`;
}

/**
 * Draws series `{ label, values, unit, low, high, dashed }` over `times` (seconds) in the element `container`. Null is a gap. Calls `zoom` with a dragged
 * range. Returns `{ toggle(index), margins(), destroy() }`; the margins are the pixels left and right of the drawn area.
 */
export function chart(container, times, series, { height = 320, zoom, name = "Chart" } = {}) {
  const columns = [times];
  const lines = [{}];
  const bands = [];
  const lineRanges = series.map((one, index) => {
    const stroke = one.stroke ?? colour(one.hue ?? index);
    const first = lines.length;
    const scale = scaleOf(unitOf(one));
    lines.push({ label: one.label, scale, stroke, width: 1.6, dash: one.dashed ? [5, 4] : undefined, spanGaps: false, points: { filter: points } });
    columns.push(one.values);
    if (one.low) {
      const edge = { scale, stroke: "transparent", width: 0, points: { show: false }, spanGaps: false };
      lines.push({ label: `${one.label}, max`, ...edge }, { label: `${one.label}, min`, ...edge });
      columns.push(one.high, one.low);
      bands.push({ series: [first + 1, first + 2], fill: colour(one.hue ?? index, isDark() ? 0.15 : 0.14) });
    }
    return [first, lines.length];
  });
  const tip = h("div", { class: "tip", hidden: true });
  const options = {
    width: Math.max(container.clientWidth, 200),
    height,
    series: lines,
    bands,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 7 } },
    scales: { x: { time: true } },
    axes: axes(series),
    padding: [null, new Set(series.map(unitOf)).size > 1 ? null : MARGIN, null, null],
    hooks: {
      setSelect: [(plot) => plot.select.width > 3 && zoom?.(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))],
      setCursor: [(plot) => updateTip(plot, tip, series, lineRanges)],
    },
  };
  container.replaceChildren();
  container.setAttribute("role", "img");
  container.setAttribute("aria-label", name);
  const plot = new window.uPlot(options, columns, container);
  plot.over.append(tip);
  const resized = new ResizeObserver(() => plot.setSize({ width: Math.max(container.clientWidth, 200), height }));
  resized.observe(container);
  return {
    toggle(index) {
      const [from, to] = lineRanges[index];
      const shown = !plot.series[from].show;
      for (let line = from; line < to; line += 1) plot.setSeries(line, { show: shown });
      return shown;
    },
    margins: () => ({ left: plot.bbox.left / devicePixelRatio, right: container.clientWidth - (plot.bbox.left + plot.bbox.width) / devicePixelRatio }),
    destroy() {
      resized.disconnect();
      plot.destroy();
    },
  };
}

/** The indexes of drawn points: all if there is room, else the first of each run that is too short for a visible line. */
function points(plot, line, isRoomy) {
  if (isRoomy) return null;
  const times = plot.data[0];
  const values = plot.data[line];
  const drawn = [];
  let first = -1;
  let last = -1;
  const end = () => {
    if (first >= 0 && plot.valToPos(times[last], "x") - plot.valToPos(times[first], "x") < LINE_WIDTH_MIN) drawn.push(first);
    first = -1;
  };
  for (const [index, value] of values.entries()) {
    if (value === null) end();
    if (value === null || value === undefined) continue;
    if (first < 0) first = index;
    last = index;
  }
  end();
  return drawn;
}

/** Shows the values at the cursor: all series if there are at most six, else the nearest one. */
function updateTip(plot, tip, series, lineRanges) {
  const { idx, left, top } = plot.cursor;
  if (idx === null || idx === undefined || left < 0) {
    tip.hidden = true;
    return;
  }
  const near = series.length <= 6 ? series.map((_, index) => index) : [nearest(plot, lineRanges, idx, top)].filter((index) => index >= 0);
  const lines = near.filter((index) => plot.series[lineRanges[index][0]].show && series[index].values[idx] !== null && series[index].values[idx] !== undefined).map((index) => {
    const { label, values, low, high } = series[index];
    const range = low ? ` (${number(low[idx])} to ${number(high[idx])})` : "";
    return h("div", null, h("b", null, `${number(values[idx])}${unitOf(series[index])}`), `${range} ${label}`);
  });
  tip.replaceChildren(h("div", { class: "tip-time" }, time(plot.data[0][idx] * 1000)), ...lines);
  tip.hidden = lines.length === 0;
  tip.classList.toggle("tip-left", left > plot.over.clientWidth / 2);
}

function nearest(plot, lineRanges, idx, top) {
  let best = -1;
  let smallest = Infinity;
  lineRanges.forEach(([line], index) => {
    const value = plot.data[line][idx];
    if (value === null || value === undefined || !plot.series[line].show) return;
    const distance = Math.abs(plot.valToPos(value, plot.series[line].scale) - top);
    if (distance < smallest) {
      best = index;
      smallest = distance;
    }
  });
  return best;
}

/** A small inline chart. */
export function sparkline(svg, values, name) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < 2) return null;
  const min = Math.min(...numbers);
  const max = Math.max(...numbers);
  const y = (value) => (max === min ? 12 : 22 - ((value - min) / (max - min)) * 20);
  const path = numbers.map((value, index) => `${((index / (numbers.length - 1)) * 96 + 2).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", role: "img", "aria-label": name }, svg("polyline", { points: path }));
}
