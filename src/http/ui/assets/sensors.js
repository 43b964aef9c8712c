// Sensors: a searchable list with latest readings, silent sensors, sensors over one page per hour (outliers in the API), and metadata.

import { get, rights, send } from "./api.js";
import { sparkline } from "./chart.js";
import { announce, button, card, dialog, empty, failure, field, h, keepFocus, segments, show, svg, table, title, toast } from "./dom.js";
import { ago, number, numbersFirst, time, value, visible } from "./format.js";
import { change, go, settings } from "./state.js";

/** Rows per step of the list. */
const ROWS = 500;
/** Sensors per request. */
const PAGE_SENSORS = 500;
/** Maximum number of sensors that are fetched for sorting by time. */
const SORTED_MAX = 5000;
/** Refresh interval in milliseconds, multiplied by the number of requests. */
const REFRESH = 10000;
/** Maximum number of documents of a collection in the dialog of a sensor. */
const DOCUMENTS = 3;
const byName = (a, b) => (a.sensor < b.sensor ? -1 : 1);
const lastSeen = ({ last_seen: last }) => Date.parse(last ?? "") || 0;
const latestFirst = (a, b) => lastSeen(b) - lastSeen(a);
const PAGES = "In at least one recent hour the sensor needed more than one storage page. All its readings are kept.";

export function sensors(container, { caller, database }) {
  const list = h("div");
  const problem = h("div");
  const filters = h("div", { class: "row" });
  let rows = ROWS;
  let loaded = [];
  let nextCursor = null;
  let newestLoad = 0;
  let timer = null;
  let isClosed = false;
  const { write: mayWrite, manage: mayManage } = rights(caller, database);
  const isSorted = () => settings().get("sort") === "latest";

  /** Fetches the sensors to show or to sort, from the first one on. */
  async function load() {
    clearTimeout(timer);
    newestLoad += 1;
    const thisLoad = newestLoad;
    const kind = settings().get("kind") ?? "";
    let all = [];
    let cursor = "";
    let parts = 0;
    try {
      do {
        const answer = await get("/api/v1/sensors", { db: database, contains: settings().get("q"), recent: "true", limit: PAGE_SENSORS, cursor, silent: kind === "silent" ? "true" : "", outlier: kind === "outlier" ? "true" : "" });
        if (thisLoad !== newestLoad || isClosed) return;
        all.push(...answer.sensors);
        cursor = answer.next;
        parts += 1;
      } while (cursor && all.length < (isSorted() ? SORTED_MAX : rows));
      loaded = all;
      nextCursor = cursor;
      draw();
    } catch (error) {
      if (thisLoad !== newestLoad || isClosed) return;
      announce(problem, error.message, () => failure(error));
      if (!problem.isConnected) show(list, problem);
    }
    scheduleLoad(REFRESH * Math.max(parts, 1));
  }

  function scheduleLoad(pause) {
    timer = setTimeout(() => (document.hidden ? scheduleLoad(pause) : load()), pause);
  }

  function draw() {
    if (loaded.length === 0) {
      show(list, card(null, empty(settings().get("q") ? "No sensor matches the search." : "No sensors.")));
      return;
    }
    const shown = [...loaded].sort(isSorted() ? latestFirst : byName).slice(0, rows);
    const cells = shown.map((sensor) => [
      nameCell(sensor, () => open(sensor, { database, mayWrite, mayManage })),
      latest(sensor),
      spark(sensor),
      h("span", { title: time(sensor.last_seen) }, ago(sensor.last_seen)),
      h("div", { class: "actions" }, sensor.silent && h("span", { class: "badge bad" }, "silent"), sensor.outlier && h("span", { class: "badge warn", title: PAGES }, "over one page per hour")),
    ]);
    const refocus = keepFocus(list);
    const scrollLeft = list.querySelector(".scroll")?.scrollLeft ?? 0;
    show(list, card(null, table("Sensors", ["Sensor", "Latest", "Recent", "Last seen", "Note"], cells), h("p", { class: "hint" }, countText(shown.length)),
      (nextCursor || loaded.length > rows) && button("Load more", () => {
        rows += ROWS;
        load();
      })));
    list.querySelector(".scroll").scrollLeft = scrollLeft;
    refocus();
  }

  function countText(shown) {
    const count = `${number(shown)} ${shown === 1 ? "sensor" : "sensors"}`;
    if (!isSorted()) return `${count}${nextCursor ? "; there are more" : ""}`;
    if (nextCursor) return `The ${number(shown)} latest of the first ${number(loaded.length)} by name. There are more: narrow the search to sort them.`;
    return loaded.length > shown ? `The ${number(shown)} latest of ${number(loaded.length)}.` : count;
  }

  const choose = (changes, pause = 0) => {
    change(changes);
    rows = ROWS;
    clearTimeout(timer);
    timer = setTimeout(load, pause);
  };
  const segment = (name, key, options, defaultValue) => h("div", { class: "field" }, h("span", { class: "label" }, name), segments(name, options, settings().get(key) ?? defaultValue, (value) => {
    choose({ [key]: value });
    drawFilters();
  }));
  const drawFilters = () => {
    const refocus = keepFocus(filters);
    show(filters,
      field("Search", h("input", { type: "search", value: settings().get("q") ?? "", on: { input: (event) => choose({ q: event.target.value }, 250) } })),
      segment("Show", "kind", [["", "All"], ["silent", "Silent"], ["outlier", "Over one page per hour", PAGES]], ""),
      segment("Order", "sort", [["sensor", "By name"], ["latest", "Latest first"]], "sensor"));
    refocus();
  };
  show(container, title("Sensors", "All sensors of this database."), filters, list);
  drawFilters();
  load();
  return () => {
    isClosed = true;
    clearTimeout(timer);
  };
}

/** The key of a sensor, and the name from its metadata. */
function nameCell({ sensor, meta }, click) {
  const name = typeof meta?.name === "string" && meta.name;
  return [button(visible(sensor), click, { class: "link" }), name && h("div", { class: "hint" }, visible(name))];
}

function latest({ latest: reading }) {
  const fields = Object.entries(reading ?? {}).filter(([name]) => name !== "ts");
  return h("span", null, numbersFirst(fields).slice(0, 3).map(([name, stored], at) => [at ? " · " : "", `${visible(name)} `, h("b", null, value(stored))]));
}

function spark({ recent, fields, sensor }) {
  const name = Object.keys(fields).find((field) => fields[field] === "number");
  if (!name || !recent) return "";
  return sparkline(svg, recent.map((reading) => reading[name]), `Recent ${visible(name)} of ${visible(sensor)}`) ?? "";
}

/** Parses JSON. Numbers that a double cannot represent keep their text, in browsers with `JSON.rawJSON`. */
function parseJson(text) {
  return JSON.parse(text, (_, stored, context) => (typeof stored === "number" && JSON.rawJSON && context?.source && String(stored) !== context.source ? JSON.rawJSON(context.source) : stored));
}

function isObject(stored) {
  return typeof stored === "object" && stored !== null && !Array.isArray(stored) && !JSON.isRawJSON?.(stored);
}

/** The merge patch (RFC 7396) from `stored` to `wanted`, with changed names only; null if nothing changes. */
function patchOf(stored, wanted) {
  const removed = Object.keys(stored).filter((name) => !Object.hasOwn(wanted, name)).map((name) => [name, null]);
  const changed = Object.entries(wanted).flatMap(([name, now]) => {
    const before = Object.hasOwn(stored, name) ? stored[name] : undefined;
    if (JSON.stringify(before) === JSON.stringify(now)) return [];
    const change = isObject(before) && isObject(now) ? patchOf(before, now) : now;
    return change === null && now !== null ? [] : [[name, change]];
  });
  const all = [...removed, ...changed];
  return all.length ? Object.fromEntries(all) : null;
}

/** Opens a dialog with a sensor and its metadata. */
async function open(sensor, { database, mayWrite, mayManage }) {
  const body = h("div");
  const close = dialog(visible(sensor.sensor), body);
  const key = encodeURIComponent(sensor.sensor);
  const path = `/api/v1/sensors/${key}/meta`;
  let meta = {};
  let tag = null;
  try {
    const answer = await send("GET", path, { parameters: { db: database } });
    meta = parseJson(await answer.text());
    tag = answer.headers.get("etag");
  } catch (error) {
    show(body, failure(error));
    return;
  }
  const text = h("textarea", { rows: "8", spellcheck: "false", value: JSON.stringify(meta, null, 2), readonly: !mayWrite });
  const problem = h("div");
  const save = async () => {
    try {
      const wanted = parseJson(text.value);
      if (!isObject(wanted)) throw new Error("Metadata is a JSON object, such as {\"site\":\"lab\"}.");
      const changes = patchOf(meta, wanted);
      if (changes) await send("PATCH", path, { body: JSON.stringify(changes), parameters: { db: database }, headers: { "Content-Type": "application/json", ...(tag ? { "If-Match": tag } : {}) } });
      close();
      toast("Metadata saved.");
    } catch (error) {
      show(problem, failure(error));
    }
  };
  const documents = h("div", { "aria-live": "polite" });
  const showDocuments = async () => {
    try {
      const answer = parseJson(await (await send("GET", "/api/v1/documents", { parameters: { db: database, sensor: sensor.sensor, limit: DOCUMENTS } })).text());
      show(documents, answer.documents.map(({ collection, ...rest }) => [h("h3", null, collection), h("pre", { tabindex: "0" }, JSON.stringify(rest.decoded ? rest : rest.document, null, 2))]));
    } catch (error) {
      show(documents, failure(error));
    }
  };
  const pairs = [["Measurement", sensor.measurement], ...Object.entries(sensor.tags), ["First reading", time(sensor.first_seen)], ["Last reading", time(sensor.last_seen)]];
  show(body,
    h("dl", { class: "pairs" }, pairs.map(([name, stored]) => [h("dt", null, visible(name)), h("dd", null, visible(stored))])),
    latest(sensor),
    field("Metadata, as JSON", text, mayWrite ? "For example a name, a site or a unit." : "This token cannot change metadata."), problem,
    h("div", { class: "actions" },
      mayWrite && button("Save", save, { class: "primary" }),
      button("Explore", () => {
        close();
        go("explore", { db: database, m: sensor.measurement, sensor: sensor.sensor });
      }),
      button("Live", () => {
        close();
        go("live", { db: database, sensor: sensor.sensor });
      }),
      mayManage && button("Documents", showDocuments)), documents);
}
