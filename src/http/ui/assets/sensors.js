// Sensors: what there is, what is silent, what is an outlier, and what people say of each.

import { get, rights, send } from "./api.js";
import { sparkline } from "./chart.js";
import { button, card, dialog, empty, failure, field, h, segments, show, svg, table, title, toast } from "./dom.js";
import { ago, time, value, visible } from "./format.js";
import { change, go, settings } from "./state.js";

const LIMIT = 500;
const byName = (a, b) => (a.sensor < b.sensor ? -1 : 1);
const latestFirst = (a, b) => String(b.last_seen ?? "").localeCompare(String(a.last_seen ?? ""));

export function sensors(place, { caller, database }) {
  const list = h("div");
  const filters = h("div", { class: "row" });
  let [found, next, asked, timer] = [[], null, 0, null];
  const mayWrite = rights(caller, database).write;

  async function load(more) {
    const kind = settings().get("kind") ?? "";
    asked += 1;
    const mine = asked;
    try {
      const answer = await get("/api/v1/sensors", { db: database, contains: settings().get("q"), recent: "true", limit: LIMIT, cursor: more ? next : "", silent: kind === "silent" ? "true" : "", outlier: kind === "outlier" ? "true" : "" });
      if (mine !== asked) return;
      found = more ? [...found, ...answer.sensors] : answer.sensors;
      next = answer.next;
      draw();
    } catch (error) {
      if (mine === asked) show(list, failure(error));
    }
  }

  function draw() {
    const wanted = settings();
    const order = wanted.get("sort") === "latest" ? latestFirst : byName;
    const shown = [...found].sort(order);
    if (shown.length === 0) {
      show(list, card(null, empty(wanted.get("q") ? "No such sensor has this in its key." : "There are no such sensors.")));
      return;
    }
    const rows = shown.map((sensor) => [
      button(visible(sensor.sensor), () => open(sensor, { database, mayWrite }), { class: "link" }),
      latest(sensor),
      spark(sensor),
      h("span", { title: time(sensor.last_seen) }, ago(sensor.last_seen)),
      sensor.outlier ? h("span", { class: "badge warn" }, "outlier") : "",
    ]);
    show(list, card(null, table("Sensors", ["Sensor", "Latest", "Recent", "Heard", "Note"], rows),
      h("p", { class: "hint" }, `${shown.length} ${shown.length === 1 ? "sensor" : "sensors"}${next ? ", and there are more" : ""}`),
      next && button("Load more", () => load(true))));
  }

  const drawFilters = () => show(filters,
    field("Search", h("input", { type: "search", value: settings().get("q") ?? "", on: { input: (event) => {
      change({ q: event.target.value });
      clearTimeout(timer);
      timer = setTimeout(load, 250);
    } } })),
    h("div", { class: "field" }, h("span", { class: "label" }, "Which"), segments("Which", [["", "All"], ["silent", "Silent"], ["outlier", "Outliers"]], settings().get("kind") ?? "", (kind) => {
      change({ kind });
      drawFilters();
      load();
    })),
    h("div", { class: "field" }, h("span", { class: "label" }, "Order"), segments("Order", [["sensor", "By name"], ["latest", "Latest first"]], settings().get("sort") ?? "sensor", (sort) => {
      change({ sort });
      drawFilters();
      draw();
    })));
  show(place, title("Sensors", "Everything that has sent readings to this database."), filters, list);
  drawFilters();
  load();
  return () => clearTimeout(timer);
}

function latest({ latest: reading }) {
  const fields = Object.entries(reading ?? {}).filter(([name]) => name !== "ts");
  return h("span", null, fields.slice(0, 3).map(([name, stored], at) => [at ? " · " : "", `${visible(name)} `, h("b", null, value(stored))]));
}

function spark({ recent, fields, sensor }) {
  const name = Object.keys(fields).find((field) => fields[field] === "number");
  if (!name || !recent) return "";
  return sparkline(svg, recent.map((reading) => reading[name]), `Recent ${visible(name)} of ${visible(sensor)}`) ?? "";
}

/** JSON in which numbers that a double cannot hold stay as they are written, where the browser can do that. */
function parsed(text) {
  return JSON.parse(text, (_, stored, context) => (typeof stored === "number" && JSON.rawJSON && context?.source && String(stored) !== context.source ? JSON.rawJSON(context.source) : stored));
}

function isObject(stored) {
  return typeof stored === "object" && stored !== null && !Array.isArray(stored) && !JSON.isRawJSON?.(stored);
}

/** The merge patch (RFC 7396) that makes `wanted` of `stored`, with nothing in it of what stays as it is; null if all does. */
function patchOf(stored, wanted) {
  const gone = Object.keys(stored).filter((name) => !Object.hasOwn(wanted, name)).map((name) => [name, null]);
  const changed = Object.entries(wanted).flatMap(([name, now]) => {
    const before = Object.hasOwn(stored, name) ? stored[name] : undefined;
    if (JSON.stringify(before) === JSON.stringify(now)) return [];
    const change = isObject(before) && isObject(now) ? patchOf(before, now) : now;
    return change === null && now !== null ? [] : [[name, change]];
  });
  const all = [...gone, ...changed];
  return all.length ? Object.fromEntries(all) : null;
}

/** All of a sensor, with its metadata. */
async function open(sensor, { database, mayWrite }) {
  const body = h("div");
  const close = dialog(visible(sensor.sensor), body);
  const key = encodeURIComponent(sensor.sensor);
  const path = `/api/v1/sensors/${key}/meta`;
  let [meta, tag] = [{}, null];
  try {
    const answer = await send("GET", path, { parameters: { db: database } });
    [meta, tag] = [parsed(await answer.text()), answer.headers.get("etag")];
  } catch (error) {
    show(body, failure(error));
    return;
  }
  const text = h("textarea", { rows: "8", spellcheck: "false", value: JSON.stringify(meta, null, 2), readonly: !mayWrite });
  const problem = h("div");
  const save = async () => {
    try {
      const wanted = parsed(text.value);
      if (!isObject(wanted)) throw new Error("Metadata is a JSON object, such as {\"site\":\"lab\"}.");
      const changes = patchOf(meta, wanted);
      if (changes) await send("PATCH", path, { body: JSON.stringify(changes), parameters: { db: database }, headers: { "Content-Type": "application/json", ...(tag ? { "If-Match": tag } : {}) } });
      close();
      toast("The metadata is kept.");
    } catch (error) {
      show(problem, failure(error));
    }
  };
  const pairs = [["Measurement", sensor.measurement], ...Object.entries(sensor.tags), ["First reading", time(sensor.first_seen)], ["Last reading", time(sensor.last_seen)]];
  show(body,
    h("dl", { class: "pairs" }, pairs.map(([name, stored]) => [h("dt", null, visible(name)), h("dd", null, visible(stored))])),
    latest(sensor),
    field("Metadata, as JSON", text, mayWrite ? "A name, a site, a unit, whatever helps." : "This token may not change it."), problem,
    h("div", { class: "actions" },
      mayWrite && button("Save", save, { class: "primary" }),
      button("Explore", () => {
        close();
        go("explore", { db: database, m: sensor.measurement, sensor: sensor.sensor });
      }),
      button("Live", () => {
        close();
        go("live", { db: database, sensor: sensor.sensor });
      })));
}
