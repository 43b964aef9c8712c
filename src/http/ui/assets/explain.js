// Try a line: a dry run of a write.

import { get, rights, send } from "./api.js";
import { button, card, empty, failure, field, h, select, show, table, title } from "./dom.js";
import { value, visible } from "./format.js";
import { change, settings } from "./state.js";

const EXAMPLE = "climate,sensor=temp-01,site=lab temp=22.4,humidity=45i";
const UNITS = [["", "default: ns for lines, by magnitude for JSON"], ["ns", "ns"], ["us", "µs"], ["ms", "ms"], ["s", "s"]];

export function explain(container, { caller, database }) {
  const wanted = settings();
  const input = (key, more) => h("input", { value: wanted.get(key) ?? "", autocomplete: "off", spellcheck: "false", ...more });
  const mapping = input("mapping", { list: "mappings" });
  const topic = input("topic", { class: "topic" });
  const names = h("datalist", { id: "mappings" });
  const fillNames = async () => show(names, (await get("/api/v1/mappings", { db: database })).mappings.map(({ name }) => h("option", { value: name })));
  // Without the list, the name can still be typed.
  if (rights(caller, database).manage) fillNames().catch(() => {});
  const text = h("textarea", { rows: "6", spellcheck: "false", value: wanted.get("line") ?? EXAMPLE });
  const result = h("div", { "aria-live": "polite" });
  let precision = wanted.get("precision") ?? "";
  const run = async () => {
    const message = { mapping: mapping.value.trim(), topic: topic.value.trim() };
    change({ line: text.value, precision, ...message });
    try {
      const answer = await (await send("POST", "/api/v1/explain", { parameters: { db: database, precision, ...message }, body: text.value })).json();
      show(result, verdict(answer), answer.lines.map(line));
    } catch (error) {
      show(result, failure(error));
    }
  };
  show(container, title("Try a line", "Shows how the service would handle line protocol, JSON, or a device's message through a mapping. Nothing is stored."),
    card(null, field("Lines", text), names,
      h("div", { class: "row" }, field("Mapping", mapping), field("Topic", topic), field("Timestamp unit", select(UNITS, precision, (unit) => (precision = unit))), button("Try", run, { class: "primary" }))),
    result);
  if (wanted.get("line")) run();
  return null;
}

function verdict({ write, accepted, rejected, warnings, new_database: isNew }) {
  const good = write.status < 300;
  return card(null, h("div", { class: "rejection-head" }, h("span", { class: good ? "badge good" : "badge bad" }, `${write.status}`),
    h("strong", null, good ? `All ${accepted} would be stored.` : rejected ? `${accepted} would be stored, ${rejected} rejected.` : visible(write.error ?? ""))),
    isNew && h("p", null, "The write would create the database."),
    warnings.map((warning) => h("p", { class: "warning" }, visible(warning))));
}

function line({ line: number, kept, rejected, warnings, sensor, new_sensor: isNew, time, undated, bucket, fields }) {
  const rows = (fields ?? []).map((field) => [visible(field.name), value(field.value), field.type, field.conflict ? h("span", { class: "badge bad" }, `was ${field.known_family}`) : field.kept ? "stored" : "dropped"]);
  return card(`Line ${number}`,
    h("p", null, h("span", { class: kept ? "badge good" : "badge bad" }, kept ? "stored" : "rejected"), sensor ? ` ${visible(sensor)}` : "", isNew ? h("span", { class: "badge" }, "new sensor") : ""),
    time && h("p", { class: "hint" }, `${time}${undated ? " (time of arrival)" : ""} · bucket ${visible(bucket.id)}`),
    rejected.map((fault) => h("p", { class: "warning" }, `Column ${fault.column}: ${visible(fault.reason)}`)),
    warnings.map((warning) => h("p", { class: "warning" }, visible(warning.text ?? warning))),
    rows.length ? table(`Fields of line ${number}`, ["Field", "Value", "Type", "Result"], rows) : !sensor && rejected.length === 0 && empty("The line is empty."));
}
