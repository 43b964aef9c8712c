// Rejections: rejected lines, with the reason and advice.

import { get, send } from "./api.js";
import { button, card, empty, failure, field, h, save, select, show, title } from "./dom.js";
import { time, visible } from "./format.js";
import { change, go, settings } from "./state.js";

/** Advice by rejection code. */
const ADVICE = {
  syntax: "The line is not line protocol. Correct it at the marked column, and try it here.",
  family: "The field had another type before. Send it with that type, or under another name.",
  timestamp: "The timestamp is invalid. Set its unit with the parameter precision.",
  unit: "The timestamp does not match the declared unit. Set the correct unit with the parameter precision.",
  window: "The timestamp is too far in the past or in the future (limits.max_past, limits.max_future). Check the clock of the device.",
  retention: "The reading is older than the retention period of the database.",
  forbidden: "The token cannot write this reading. Check its databases and tags.",
  sensors: "The maximum number of sensors is reached (quota or limits.sensors).",
  limit: "The line exceeds a limit (limits.*): its length, tags or fields.",
  not_finite: "A value is NaN or infinite. Omit the field instead.",
  number_range: "A number does not fit into 64 bits.",
  encoding: "The line is not UTF-8.",
  protobuf: "The message is not valid, or of a kind that is not supported.",
  json: "The body does not have the expected JSON format.",
};

/** Maximum number of rejections on the page. */
const SHOWN = 200;
const PATH = "/api/v1/rejections";

/** The API parameters of the current filters. */
function filterParameters(database) {
  const wanted = settings();
  return { db: database, contains: wanted.get("q"), code: wanted.get("code"), measurement: wanted.get("m") };
}

export function rejections(container, { database }) {
  const list = h("div");
  const filterRow = h("div", { class: "row" });
  let timer = null;
  let newestLoad = 0;
  async function load() {
    newestLoad += 1;
    const thisLoad = newestLoad;
    try {
      const { rejections: all, codes } = await get(PATH, { ...filterParameters(database), limit: SHOWN });
      if (thisLoad !== newestLoad) return;
      const total = Object.values(codes).reduce((sum, count) => sum + count, 0);
      show(list,
        all.length > 0 && summary(codes, total, all[0].id),
        all.length ? all.map((rejection) => rejectionCard(rejection, database))
          : card(null, empty("Nothing was rejected.", h("p", null, "Rejected lines appear here, with the reason."))),
        total > all.length && h("p", { class: "hint" }, `Showing the newest ${all.length} of ${total}.`));
    } catch (error) {
      if (thisLoad === newestLoad) show(list, failure(error));
    }
  }
  const choose = (changes, pause = 0) => {
    change(changes);
    clearTimeout(timer);
    timer = setTimeout(load, pause);
  };
  /** The numbers by code, and actions for all matching rejections. */
  const summary = (codes, total, newest) => {
    const message = h("span", { class: "hint", "aria-live": "polite" });
    const run = (work) => () => work().catch((error) => show(message, failure(error)));
    const exportLines = run(async () => save(`rejections-${database}.lp`, [await exportAll(database)], "text/plain"));
    const remove = run(async () => {
      await send("DELETE", PATH, { parameters: { ...filterParameters(database), through: newest } });
      load();
    });
    return card(null,
      h("p", null, Object.entries(codes).map(([code, count]) => h("span", { class: "badge" }, `${count} ${visible(code)}`))),
      h("div", { class: "actions" }, button("Export", exportLines), button(`Remove ${total === 1 ? "it" : `all ${total}`}`, remove, { class: "quiet" }), message));
  };
  const textInput = (key, type) => h("input", { type, value: settings().get(key) ?? "", autocomplete: "off", spellcheck: "false", on: { input: (event) => choose({ [key]: event.target.value }, 250) } });
  const code = settings().get("code") ?? "";
  const codes = [...new Set([...Object.keys(ADVICE), code])].filter(Boolean).map((name) => [name, visible(name)]);
  show(filterRow, field("Search in lines and reasons", textInput("q", "search")), field("Code", select([["", "all"], ...codes], code, (name) => choose({ code: name }))), field("Measurement", textInput("m", "search")));
  show(container, title("Rejections", "Rejected lines, newest first, with advice. Export the lines, correct them, send them again, then remove them here."), filterRow, list);
  load();
  return () => clearTimeout(timer);
}

/** Fetches all matching lines as line protocol, in parts. */
async function exportAll(database) {
  let text = "";
  let after = "";
  for (;;) {
    const part = await (await send("GET", PATH, { parameters: { ...filterParameters(database), format: "lp", limit: 1000, after } })).text();
    if (!part) return text;
    text += part;
    after = part.trimEnd().split(" ").at(-1);
  }
}

function rejectionCard(rejection, database) {
  const { time: received, code, column, text, reason, token, address, mapping, topic } = rejection;
  return card(null,
    h("div", { class: "rejection-head" }, h("span", { class: "badge bad" }, code), h("strong", null, `${column > 0 ? `Column ${column}: ` : ""}${visible(reason)}`), h("span", { class: "hint" }, time(received))),
    h("pre", { class: "line", tabindex: "0", "aria-label": "The line" }, h("code", null, markFault(text, column))),
    h("p", null, (Object.hasOwn(ADVICE, code) ? ADVICE[code] : null) ?? "Correct the line, and try it here."),
    h("div", { class: "actions" },
      button("Try the line", () => go("explain", { db: database, line: text, ...(mapping && { mapping }), ...(topic && { topic }) })),
      h("span", { class: "hint" }, [token && `token ${visible(token)}`, address && `from ${visible(address)}`, mapping && `mapping ${visible(mapping)}`, topic && `topic ${visible(topic)}`].filter(Boolean).join(" · "))));
}

/** The line with the faulty character marked. Columns count bytes from 1, and may be after the end of the line. */
function markFault(text, column) {
  if (!(column > 0)) return visible(text);
  const before = new TextDecoder().decode(new TextEncoder().encode(text).slice(0, column - 1));
  const [fault = " "] = text.slice(before.length);
  return [visible(before), h("mark", null, visible(fault)), visible(text.slice(before.length + fault.length))];
}
