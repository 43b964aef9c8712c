// Health: the state of the service, for operators.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { announce, card, failure, h, show, title } from "./dom.js";
import { ago, bytes, number, seconds, short, time, visible } from "./format.js";

/** Refresh interval, in milliseconds. */
const PAUSE = 5000;

export function health(container) {
  const alerts = h("div");
  const body = h("div");
  let timer = null;
  let charts = [];
  let isStopped = false;
  async function load() {
    try {
      if (!document.hidden) {
        const overview = await get("/api/v1/overview");
        if (isStopped) return;
        charts.forEach((drawn) => drawn.destroy());
        charts = draw(alerts, body, overview);
      }
    } catch (error) {
      if (!isStopped) {
        announce(alerts, error.message, () => failure(error));
        show(body);
      }
    }
    if (!isStopped) timer = setTimeout(load, PAUSE);
  }
  show(container, title("Health", "The state of the service, now and in the last half hour."), alerts, body);
  load();
  return () => {
    isStopped = true;
    clearTimeout(timer);
    charts.forEach((drawn) => drawn.destroy());
  };
}

function draw(alerts, container, overview) {
  const { rates, acks, store, log, memory, disk, jobs, backup, tokens, samples } = overview;
  const problems = [
    overview.refusing && `Writes are refused: ${visible(overview.refusing)}`,
    store.away && `The store is unavailable: ${visible(store.away)}. Readings are kept in the write-ahead log.`,
    store.blocked && visible(store.blocked),
    store.failing_databases > 0 && `${store.failing_databases} ${store.failing_databases === 1 ? "database" : "databases"} cannot be written to the store. See /metrics and the log for the cause.`,
    store.dead_letters > 0 && `${store.dead_letters} readings could not be stored. List them with hourglass dead-letters.`,
    log.damaged > 0 && "The write-ahead log was damaged. Acknowledged readings may be missing.",
    ...jobs.filter((job) => job.state === "failing").map((job) => `The job ${job.name} is failing: ${visible(job.last_error)}`),
    disk.days_left !== null && disk.days_left < 7 && `The disk of the store will be full in about ${number(disk.days_left)} days.`,
    ...Object.entries(overview.early_timestamps ?? {}).map(([sender, count]) => `${visible(sender)} has sent ${number(count)} ${count === 1 ? "timestamp" : "timestamps"} before 2000. A device without a clock should send none.`),
    tokens.first_ends_in_seconds !== null && tokens.first_ends_in_seconds < 7 * 86400 && `A token expires in ${seconds(tokens.first_ends_in_seconds)}.`,
  ].filter(Boolean);
  const plots = [h("div", { class: "plot" }), h("div", { class: "plot" }), h("div", { class: "plot" })];
  announce(alerts, problems.join("\n"), () => (problems.length ? h("div", { role: "alert" }, h("ul", { class: "notices bad" }, problems.map((text) => h("li", null, text)))) : h("p", { class: "fine" }, h("span", { class: "pulse", "aria-hidden": "true" }), "Writes are acknowledged and stored.")));
  show(container,
    h("div", { class: "figures" },
      figure("Readings", `${number(Math.round(rates.readings_per_second * 10) / 10)}/s`, `${short(rates.readings)} since the start`),
      figure("Ack latency", seconds(acks.p99_seconds), acks.p50_seconds === null ? "no recent writes" : `99th percentile; median ${seconds(acks.p50_seconds)}`),
      figure("Not stored yet", number(store.pending_readings), store.pending_readings ? `oldest: ${seconds(store.oldest_pending_seconds)}` : "everything is stored"),
      figure("WAL", bytes(log.bytes), `of ${bytes(log.budget_bytes)}`, log.bytes / log.budget_bytes),
      figure("Memory", bytes(memory.resident_bytes), `of ${bytes(memory.limit_bytes)}`, memory.resident_bytes / memory.limit_bytes),
      figure("Store", bytes(disk.store_bytes), `${bytes(disk.store_free_bytes)} free`),
      figure("Disk lasts", disk.days_left === null ? "–" : `${number(Math.round(disk.days_left))} days`, disk.days_left === null ? "not growing, or not enough data yet" : "at the recent growth rate"),
      figure("Sealed", number(jobs.find((job) => job.name === "seal").progress.days ?? 0), "sensor days since the start"),
      figure("Proved backup", backup.proved ? ago(backup.proved) : "none", backup.proved ? time(backup.proved) : "create one with hourglass backup create"),
      figure("Uptime", seconds(overview.uptime_seconds), `version ${overview.version}`)),
    h("div", { class: "columns" }, card("Readings per second", plots[0]), card("Ack latency, 99th percentile", plots[1]), card("Not stored yet", plots[2])));
  const times = samples.map((sample) => sample.time_ms / 1000);
  const column = (name, scale = 1) => samples.map((sample) => (sample[name] === null ? null : sample[name] * scale));
  const small = { height: 150 };
  return [
    chart(plots[0], times, [{ label: "per second", values: column("readings_per_second") }], { ...small, name: "Readings per second, last half hour" }),
    chart(plots[1], times, [{ label: "", hue: 1, unit: " ms", values: column("ack_p99_seconds", 1000) }], { ...small, name: "Ack latency, 99th percentile, in milliseconds" }),
    chart(plots[2], times, [{ label: "readings", hue: 2, values: column("pending_readings") }], { ...small, name: "Readings not stored yet" }),
  ];
}

function figure(name, value, note, share) {
  const meter = share !== undefined && Number.isFinite(share) && h("meter", { min: "0", max: "1", high: "0.85", value: String(share), "aria-label": `${name}, share used` });
  return h("div", { class: "figure" }, h("span", { class: "figure-name" }, name), h("span", { class: "figure-value" }, value), h("span", { class: "hint" }, note), meter);
}
