// Try a line: what a write would do, without keeping anything.

import { send } from "./api.js";
import { button, card, empty, failure, field, h, select, show, table, title } from "./dom.js";
import { value, visible } from "./format.js";
import { change, settings } from "./state.js";

const EXAMPLE = "climate,sensor=temp-01,site=lab temp=22.4,humidity=45i";
const UNITS = [["", "not said: lines in ns, JSON by size"], ["ns", "ns"], ["us", "µs"], ["ms", "ms"], ["s", "s"]];

export function explain(place, { database }) {
  const wanted = settings();
  const text = h("textarea", { rows: "6", spellcheck: "false", value: wanted.get("line") ?? EXAMPLE });
  const result = h("div", { "aria-live": "polite" });
  let precision = wanted.get("precision") ?? "";
  const run = async () => {
    change({ line: text.value, precision });
    try {
      const answer = await (await send("POST", "/api/v1/explain", { parameters: { db: database, precision }, body: text.value })).json();
      show(result, verdict(answer), answer.lines.map(line));
    } catch (error) {
      show(result, failure(error));
    }
  };
  show(place, title("Try a line", "Line protocol or JSON: what a write of it would do. Nothing is kept."),
    card(null, field("Lines", text),
      h("div", { class: "row" }, field("Unit of the times", select(UNITS, precision, (unit) => (precision = unit))), button("Try", run, { class: "primary" }))),
    result);
  if (wanted.get("line")) run();
  return null;
}

function verdict({ write, accepted, rejected, warnings, new_database: isNew }) {
  const good = write.status < 300;
  return card(null, h("div", { class: "rejection-head" }, h("span", { class: good ? "badge good" : "badge bad" }, `${write.status}`),
    h("strong", null, good ? `All ${accepted} would be kept.` : rejected ? `${accepted} would be kept, ${rejected} rejected.` : visible(write.error ?? ""))),
    isNew && h("p", null, "The database would be new."),
    warnings.map((warning) => h("p", { class: "warning" }, visible(warning))));
}

function line({ line: number, kept, rejected, warnings, sensor, new_sensor: isNew, time, undated, bucket, fields }) {
  const rows = (fields ?? []).map((field) => [visible(field.name), value(field.value), field.type, field.conflict ? h("span", { class: "badge bad" }, `was ${field.known_family}`) : field.kept ? "kept" : "left out"]);
  return card(`Line ${number}`,
    h("p", null, h("span", { class: kept ? "badge good" : "badge bad" }, kept ? "kept" : "rejected"), sensor ? ` ${visible(sensor)}` : "", isNew ? h("span", { class: "badge" }, "new sensor") : ""),
    time && h("p", { class: "hint" }, `${time}${undated ? ", the time of arrival" : ""} · bucket ${visible(bucket.id)}`),
    rejected.map((fault) => h("p", { class: "warning" }, `Column ${fault.column}: ${visible(fault.reason)}`)),
    warnings.map((warning) => h("p", { class: "warning" }, visible(warning.text ?? warning))),
    rows.length ? table(`Fields of line ${number}`, ["Field", "Value", "Type", "Verdict"], rows) : !sensor && rejected.length === 0 && empty("Nothing is in it."));
}
