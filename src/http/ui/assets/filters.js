// Which sensors a view is about: by key, or by measurement, tags and metadata. The address holds each condition as JSON.

import { get } from "./api.js";
import { button, dialog, failure, h, show } from "./dom.js";
import { visible } from "./format.js";

/** Values of a tag, or of metadata, that are offered. */
const VALUES = 200;
/** What stands before a name of metadata, where a tag could stand. */
const META = "meta.";

/** The conditions in the address: pairs of a key and a value, each as JSON. Whatever else stands there is left out. */
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

/** The sensors that are chosen, as parameters of the API, which takes what follows `~` for a regular expression. */
export function selection({ database, sensor, measurement, filters }) {
  if (sensor) return [["db", database], ["sensor", sensor]];
  const exactly = (wanted) => (wanted.startsWith("~") ? `~^${wanted.replace(/[\\.+*?()|[\]{}^$#&~-]/g, "\\$&")}$` : wanted);
  return [["db", database], ["measurement", measurement], ...filters.map(([key, wanted]) => [`tag.${key}`, exactly(wanted)])];
}

/** Whether a list of names, which commas part, can have this one. */
export function isListed(name) {
  return !name.includes(",");
}

/** Whether a parameter can ask for a key: with a `!` before its `=`, it would mean what is not so. */
function isAskedFor(key) {
  return !key.endsWith("!") && !key.includes("!~");
}

/** What is chosen, with what takes it back, and a button for more. `set` is called with changes of the address. */
export function chosenBy({ database, measurement, sensor, filters, tags, withMeta }, set) {
  const dropped = (at) => set({ where: filters.filter((_, place) => place !== at).map((filter) => JSON.stringify(filter)) });
  const add = (filter) => set({ sensor: null, where: [...filters, filter].map((one) => JSON.stringify(one)) });
  return h("div", { class: "chips", role: "group", "aria-label": "Filters" }, h("span", { class: "label" }, "Where"),
    sensor && removable(`sensor is ${visible(sensor)}`, () => set({ sensor: null })),
    filters.map(([key, stored], at) => removable(`${visible(key)} = ${visible(stored)}`, () => dropped(at))),
    button("Add a filter", () => addFilter({ database, measurement, tags, withMeta }, add), { class: "quiet" }));
}

function removable(text, remove) {
  return h("span", { class: "chip on" }, text, button("×", remove, { class: "remove", "aria-label": `Remove ${text}` }));
}

/** Names of metadata that sensors of a measurement have, as `meta.NAME`. A tag may have such a name, too: then it is meant. */
async function metadata(database, measurement) {
  const { tags } = await get("/api/v1/tags", { db: database, measurement, metadata: "true" });
  return tags.map(({ tag }) => tag).filter((name) => name.startsWith(META));
}

/** Lets one choose a name of metadata, as `meta.NAME`. `left` is called if nothing was chosen. */
export async function chooseMeta({ database, measurement }, choose, left) {
  const body = h("div");
  const close = dialog("One line per value of", body);
  let end = left;
  body.closest("dialog").addEventListener("close", () => end());
  try {
    const names = (await metadata(database, measurement)).filter(isListed);
    show(body, names.length ? h("div", { class: "chips" }, names.map((name) => button(visible(name.slice(META.length)), () => {
      end = () => choose(name);
      close();
    }, { class: "chip" }))) : h("p", null, "None of these sensors has metadata. The view Sensors gives it some."));
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
      }, { class: "chip" }))), all.length > VALUES && h("p", { class: "hint" }, `The first ${VALUES} of ${all.length}.`));
  };
  const fail = (error) => show(body, failure(error));
  const chip = (key, name) => button(name, () => values(key, name).catch(fail), { class: "chip" });
  try {
    const names = withMeta ? await metadata(database, measurement) : [];
    show(body,
      h("p", null, "A tag"), h("div", { class: "chips" }, tags.filter(({ tag }) => isAskedFor(tag)).map(({ tag }) => chip(tag, visible(tag)))),
      names.length > 0 && [h("p", null, "or metadata"), h("div", { class: "chips" }, names.filter(isAskedFor).map((key) => chip(key, visible(key.slice(META.length)))))]);
  } catch (error) {
    fail(error);
  }
}
