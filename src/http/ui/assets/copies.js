// Exports the query of a view as a curl command, an InfluxQL statement or a Grafana panel. Pure functions.

import { influxName, influxText, pretty, shell } from "./quote.js";
import { partsOf } from "./key.js";

/** A curl command for a URL of this service. The token comes from an environment variable. */
export function curl(url, { token_needed: isGuarded }, flags = "") {
  return `curl ${flags}${isGuarded ? '-H "Authorization: Token $HOURGLASS_TOKEN" ' : ""}${shell(url)}`;
}

/** The measurement, and conditions that match only the chosen sensors. `tags` are all tag keys of the measurement. */
function selectedSensors({ measurement, sensor, filters, tags }) {
  const equal = ([key, wanted]) => `${influxName(key)} = ${influxText(wanted)}`;
  if (!sensor) return [measurement ?? "", filters.map(equal)];
  const parsed = partsOf(sensor);
  // A name without tags means the sensor with this value in its tag `sensor`.
  if (parsed.tags.length === 0 && measurement && parsed.measurement !== measurement) return [measurement, [equal(["sensor", sensor])]];
  const others = (tags ?? []).filter((key) => !parsed.tags.some(([known]) => known === key));
  return [parsed.measurement, [...parsed.tags, ...others.map((key) => [key, ""])].map(equal)];
}

/** The functions of InfluxQL that are named otherwise, or nearest to those of counters. */
const CALLS = {
  avg: "mean(FIELD)", p95: "percentile(FIELD, 95)", "difference(avg)": "difference(mean(FIELD))",
  increase: "non_negative_difference(last(FIELD))", rate: "non_negative_derivative(last(FIELD), 1s)",
};

function statement(query, range, window) {
  const names = query.fields.length ? query.fields : ["*"];
  const selected = names.map((name) => {
    const quoted = name === "*" ? "*" : influxName(name);
    // Strings and booleans have no mean: use the last value, as the chart does.
    const fn = (query.kinds?.get(name) ?? "number") === "number" || query.fn === "first" ? query.fn : "last";
    if (query.fn === "raw") return quoted;
    return (CALLS[fn] ?? `${fn}(FIELD)`).replace("FIELD", () => quoted);
  });
  const [measurement, conditions] = selectedSensors(query);
  const groups = query.fn === "raw" ? [] : [`time(${window})`];
  if (query.group === "none") groups.push("*");
  else if (query.group !== "*") groups.push(influxName(query.group));
  const by = groups.length ? ` GROUP BY ${groups.join(", ")}` : "";
  // Windows of days begin at midnight in the user's time zone, as on the chart.
  const zone = query.fn === "raw" || !query.zone || query.zone === "UTC" ? "" : ` tz(${influxText(query.zone)})`;
  return `SELECT ${selected.join(", ")} FROM ${influxName(measurement)} WHERE ${[...conditions, range].join(" AND ")}${by}${zone}`;
}

export function influx(query) {
  return statement(query, `time >= ${query.from}ms AND time < ${query.to}ms`, `${query.step}s`);
}

export function panel(query) {
  const target = { refId: "A", rawQuery: true, query: statement(query, "$timeFilter", "$__interval"), resultFormat: "time_series" };
  return pretty({ type: "timeseries", title: selectedSensors(query)[0] || "hourglass", datasource: { type: "influxdb" }, targets: [target] });
}
