// The sensors of a view: by key, or by measurement, tags and metadata. The URL holds each condition as JSON.

import { get } from "./api.js";
import { button, dialog, failure, h, show } from "./dom.js";
import { visible } from "./format.js";

/** Maximum number of values in the list of a tag or of metadata. */
const VALUES = 200;
/** The prefix of metadata names in place of tag keys. */
const META = "meta.";

/** The conditions in the URL, as pairs of key and value. Invalid ones are ignored. */
export function conditions(wanted) {
  return wanted.getAll("where").flatMap((text) => {
    try {
      const [key, stored] = JSON.parse(text);
      return typeof key === "string" && typeof stored === "string" ? [[key, stored]] : [];
    } catch {
      return [];
    }
  });
}

/** The API parameters that select the chosen sensors. The API reads a value after `~` as a regular expression, so such values are escaped. */
export function selection({ database, sensor, measurement, filters }) {
  if (sensor) return [["db", database], ["sensor", sensor]];
  const exactly = (wanted) => (wanted.startsWith("~") ? `~^${wanted.replace(/[\\.+*?()|[\]{}^$#&~-]/g, "\\$&")}$` : wanted);
  return [["db", database], ["measurement", measurement], ...filters.map(([key, wanted]) => [`tag.${key}`, exactly(wanted)])];
}

/** True if the name can be in a comma-separated list. */
export function isListed(name) {
  return !name.includes(",");
}

/** True if the API can filter by the key. A `!` before the `=` would negate the condition. */
function isFilterable(key) {
  return !key.endsWith("!") && !key.includes("!~");
}

/** The active filters, each with a remove button, and, once the tags are known, a button that adds one. Calls `set` with the changed settings. */
export function filterBar({ database, measurement, sensor, filters, tags, withMeta }, set) {
  const drop = (index) => set({ where: filters.filter((_, position) => position !== index).map((filter) => JSON.stringify(filter)) });
  const add = (filter) => set({ sensor: null, where: [...filters, filter].map((one) => JSON.stringify(one)) });
  return h("div", { class: "chips", role: "group", "aria-label": "Filters" }, h("span", { class: "label" }, "Where"),
    sensor && removable(`sensor is ${visible(sensor)}`, () => set({ sensor: null })),
    filters.map(([key, stored], index) => removable(`${visible(key)} = ${visible(stored)}`, () => drop(index))),
    tags && button("Add a filter", () => addFilter({ database, measurement, tags, withMeta }, add), { class: "quiet" }));
}

function removable(text, remove) {
  return h("span", { class: "chip on" }, text, button("×", remove, { class: "remove", "aria-label": `Remove ${text}` }));
}

/** Metadata names of a measurement's sensors, as `meta.NAME`. A tag with such a key takes precedence. */
async function metadata(database, measurement) {
  const { tags } = await get("/api/v1/tags", { db: database, measurement, metadata: "true" });
  return tags.map(({ tag }) => tag).filter((name) => name.startsWith(META));
}

/** Opens a dialog to choose a metadata name. Calls `choose` with `meta.NAME`, or `cancel`. */
export async function chooseMeta({ database, measurement }, choose, cancel) {
  const body = h("div");
  const close = dialog("One line per value of", body);
  let end = cancel;
  body.closest("dialog").addEventListener("close", () => end());
  try {
    const names = (await metadata(database, measurement)).filter(isListed);
    show(body, names.length ? h("div", { class: "chips" }, names.map((name) => button(visible(name.slice(META.length)), () => {
      end = () => choose(name);
      close();
    }, { class: "chip" }))) : h("p", null, "None of these sensors has metadata. Add it in the view Sensors."));
  } catch (error) {
    show(body, failure(error));
  }
}

async function addFilter({ database, measurement, tags, withMeta }, add) {
  const body = h("div");
  const close = dialog("Add a filter", body);
  const values = async (key, name) => {
    const { values: all } = await get(`/api/v1/tags/${encodeURIComponent(key)}`, { db: database, measurement });
    show(body, h("p", null, `${name} is`), h("div", { class: "chips" }, all.slice(0, VALUES).map(({ value: stored, sensors }) =>
      button(`${visible(stored)} (${sensors})`, () => {
        close();
        add([key, stored]);
      }, { class: "chip" }))), all.length > VALUES && h("p", { class: "hint" }, `Showing the first ${VALUES} of ${all.length}.`));
  };
  const fail = (error) => show(body, failure(error));
  const chip = (key, name) => button(name, () => values(key, name).catch(fail), { class: "chip" });
  try {
    const names = withMeta ? await metadata(database, measurement) : [];
    show(body,
      h("p", null, "Tag"), h("div", { class: "chips" }, tags.filter(({ tag }) => isFilterable(tag)).map(({ tag }) => chip(tag, visible(tag)))),
      names.length > 0 && [h("p", null, "Metadata"), h("div", { class: "chips" }, names.filter(isFilterable).map((key) => chip(key, visible(key.slice(META.length)))))]);
  } catch (error) {
    fail(error);
  }
}
