// Exports the query of a view as a curl command, an InfluxQL statement or a Grafana panel. Pure functions.

import { influxName, influxText, pretty, shell } from "./quote.js";
import { partsOf } from "./key.js";

/** A curl command for a URL of this service. The token comes from an environment variable. */
export function curl(url, { token_needed: isGuarded }, flags = "") {
  return `curl ${flags}${isGuarded ? '-H "Authorization: Token $HOURGLASS_TOKEN" ' : ""}${shell(url)}`;
}

/** The measurement, and conditions that match only the chosen sensors. `tags` are all tag keys of the measurement. */
function chosen({ measurement, sensor, filters, tags }) {
  const equal = ([key, wanted]) => `${influxName(key)} = ${influxText(wanted)}`;
  if (!sensor) return [measurement ?? "", filters.map(equal)];
  const of = partsOf(sensor);
  // A name without tags means the sensor with this value in its tag `sensor`.
  if (of.tags.length === 0 && measurement && of.measurement !== measurement) return [measurement, [equal(["sensor", sensor])]];
  const others = (tags ?? []).filter((key) => !of.tags.some(([known]) => known === key));
  return [of.measurement, [...of.tags, ...others.map((key) => [key, ""])].map(equal)];
}

function statement(asked, range, window) {
  const names = asked.fields.length ? asked.fields : ["*"];
  const selected = names.map((name) => {
    const quoted = name === "*" ? "*" : influxName(name);
    // Strings and booleans have no mean: use the last value, as the chart does.
    const fn = (asked.kinds?.get(name) ?? "number") === "number" || asked.fn === "first" ? asked.fn : "last";
    const call = { avg: "mean", p95: "percentile" }[fn] ?? fn;
    return asked.fn === "raw" ? quoted : `${call}(${quoted}${fn === "p95" ? ", 95" : ""})`;
  });
  const [measurement, wheres] = chosen(asked);
  const groups = asked.fn === "raw" ? [] : [`time(${window})`];
  if (asked.group === "none") groups.push("*");
  else if (asked.group !== "*") groups.push(influxName(asked.group));
  const by = groups.length ? ` GROUP BY ${groups.join(", ")}` : "";
  // Windows of days begin at midnight in the user's time zone, as on the chart.
  const zone = asked.fn === "raw" || !asked.zone || asked.zone === "UTC" ? "" : ` tz(${influxText(asked.zone)})`;
  return `SELECT ${selected.join(", ")} FROM ${influxName(measurement)} WHERE ${[...wheres, range].join(" AND ")}${by}${zone}`;
}

export function influx(asked) {
  return statement(asked, `time >= ${asked.from}ms AND time < ${asked.to}ms`, `${asked.step}s`);
}

export function panel(asked) {
  const target = { refId: "A", rawQuery: true, query: statement(asked, "$timeFilter", "$__interval"), resultFormat: "time_series" };
  return pretty({ type: "timeseries", title: chosen(asked)[0] || "hourglass", datasource: { type: "influxdb" }, targets: [target] });
}
