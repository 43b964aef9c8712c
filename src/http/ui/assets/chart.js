// Draws series with uPlot: lines with bands, gaps where nothing was measured, zoom by dragging, pan by arrow keys.

import { h } from "./dom.js";
import { number, time } from "./format.js";

/** Hues that are told apart, also by most who see fewer colours; lightness follows the theme. */
const HUES = [175, 262, 28, 335, 210, 95, 300, 50, 235, 0, 145, 320];

export function colour(at, alpha = 1) {
  const dark = isDark();
  const round = Math.floor(at / HUES.length);
  const light = (dark ? 68 : 40) + (round % 3) * (dark ? -9 : 9);
  return `hsl(${HUES[at % HUES.length]} ${dark ? 60 : 65}% ${light}% / ${alpha})`;
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

/**
 * A chart of series `{ label, values, low, high, dashed, stepped }` over `times` (seconds), in the element `place`. Null is a gap; stepped, a value
 * holds until the next one. `zoom` is called with a
 * range that was dragged. Returns `{ toggle(at), destroy() }`.
 */
export function chart(place, times, series, { height = 320, zoom, unit = "", name = "Chart" } = {}) {
  const columns = [times];
  const lines = [{}];
  const bands = [];
  const ofSeries = series.map((one, at) => {
    const stroke = one.stroke ?? colour(one.hue ?? at);
    const first = lines.length;
    const paths = one.stepped ? window.uPlot.paths.stepped({ align: 1 }) : undefined;
    lines.push({ label: one.label, stroke, width: 1.6, dash: one.dashed ? [5, 4] : undefined, spanGaps: false, points: points(one.values), ...(paths && { paths }) });
    columns.push(one.values);
    if (one.low) {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: false };
      lines.push({ label: `${one.label}, most`, ...edge }, { label: `${one.label}, least`, ...edge });
      columns.push(one.high, one.low);
      bands.push({ series: [first + 1, first + 2], fill: colour(one.hue ?? at, isDark() ? 0.22 : 0.16) });
    }
    return [first, lines.length];
  });
  const tip = h("div", { class: "tip", hidden: true });
  const options = {
    width: Math.max(place.clientWidth, 200),
    height,
    series: lines,
    bands,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 24 }, points: { size: 7 } },
    scales: { x: { time: true } },
    axes: [axis({ space: 70, size: 44 }), axis({ size: 58, values: (_, ticks) => ticks.map((tick) => number(tick)) })],
    hooks: {
      setSelect: [(plot) => plot.select.width > 3 && zoom?.(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))],
      setCursor: [(plot) => tell(plot, tip, series, ofSeries, unit)],
    },
  };
  place.replaceChildren();
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", name);
  const plot = new window.uPlot(options, columns, place);
  plot.over.append(tip);
  const resized = new ResizeObserver(() => plot.setSize({ width: Math.max(place.clientWidth, 200), height }));
  resized.observe(place);
  return {
    toggle(at) {
      const [from, to] = ofSeries[at];
      const shown = !plot.series[from].show;
      for (let line = from; line < to; line += 1) plot.setSeries(line, { show: shown });
      return shown;
    },
    destroy() {
      resized.disconnect();
      plot.destroy();
    },
  };
}

/** Points are drawn where a reading stands alone, since no line would show it. */
function points(values) {
  const known = values.reduce((count, value) => count + (value === null || value === undefined ? 0 : 1), 0);
  return { show: known <= 24 };
}

/** Shows the values at the cursor: of all series if they are few, else of the nearest one. */
function tell(plot, tip, series, ofSeries, unit) {
  const { idx, left, top } = plot.cursor;
  if (idx === null || idx === undefined || left < 0) {
    tip.hidden = true;
    return;
  }
  const near = series.length <= 6 ? series.map((_, at) => at) : [nearest(plot, ofSeries, idx, top)].filter((at) => at >= 0);
  const lines = near.filter((at) => plot.series[ofSeries[at][0]].show && series[at].values[idx] !== null && series[at].values[idx] !== undefined).map((at) => {
    const { label, values, low, high } = series[at];
    const range = low ? ` (${number(low[idx])} to ${number(high[idx])})` : "";
    return h("div", null, h("b", null, `${number(values[idx])}${unit}`), `${range} ${label}`);
  });
  tip.replaceChildren(h("div", { class: "tip-time" }, time(plot.data[0][idx] * 1000)), ...lines);
  tip.hidden = lines.length === 0;
  tip.classList.toggle("tip-left", left > plot.over.clientWidth / 2);
}

function nearest(plot, ofSeries, idx, top) {
  let [best, least] = [-1, Infinity];
  ofSeries.forEach(([line], at) => {
    const value = plot.data[line][idx];
    if (value === null || value === undefined || !plot.series[line].show) return;
    const distance = Math.abs(plot.valToPos(value, "y") - top);
    if (distance < least) [best, least] = [at, distance];
  });
  return best;
}

/** A line as small as a word. */
export function sparkline(svg, values, name) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length < 2) return null;
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const y = (value) => (most === least ? 12 : 22 - ((value - least) / (most - least)) * 20);
  const path = numbers.map((value, at) => `${((at / (numbers.length - 1)) * 96 + 2).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", role: "img", "aria-label": name }, svg("polyline", { points: path }));
}
