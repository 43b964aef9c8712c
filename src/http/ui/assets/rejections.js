// Rejections: what was sent and not taken, why, and what helps.

import { get } from "./api.js";
import { button, card, empty, failure, field, h, show, title } from "./dom.js";
import { time, visible } from "./format.js";
import { change, go, settings } from "./state.js";

/** What helps, by the code of the rejection. */
const ADVICE = {
  syntax: "The line is not line protocol. Look at the column, mend it, and try it here.",
  family: "The field had another type before. Send it with that type, or under another name.",
  timestamp: "The time cannot be read. Say its unit with the parameter precision.",
  unit: "The time looks like another unit than the declared one. Say the right unit with precision.",
  window: "The time is too far in the past or in the future (limits.max_past, limits.max_future). Is the device's clock right?",
  retention: "The reading is older than the database keeps readings.",
  forbidden: "The token may not write this. Its tags or databases say what it may.",
  sensors: "There are as many sensors as may be (quota or limits.sensors).",
  limit: "The line is longer, or has more tags or fields, than limits.* allows.",
  not_finite: "A value is NaN or infinite: leave the field out instead.",
  number_range: "A number does not fit into 64 bits.",
  encoding: "The line is not UTF-8.",
  json: "The body is not the JSON that is expected.",
};

export function rejections(place, { database }) {
  const list = h("div");
  async function load() {
    const wanted = settings();
    try {
      const answer = await get("/api/v1/rejections", { db: database, contains: wanted.get("q"), code: wanted.get("code"), limit: 200 });
      const all = answer.rejections;
      show(list, all.length ? all.map((rejection) => one(rejection, database)) : card(null, empty("Nothing was rejected.", h("p", null, "What does not fit, and why, would stand here."))));
    } catch (error) {
      show(list, failure(error));
    }
  }
  let timer = null;
  const search = h("input", { type: "search", value: settings().get("q") ?? "", on: { input: (event) => {
    change({ q: event.target.value });
    clearTimeout(timer);
    timer = setTimeout(load, 250);
  } } });
  show(place, title("Rejections", "Lines that were sent and not taken, newest first, each with what helps."), h("div", { class: "row" }, field("Search in lines and reasons", search)), list);
  load();
  return () => clearTimeout(timer);
}

function one(rejection, database) {
  const { time: received, code, column, text, reason, token, address, count } = rejection;
  return card(null,
    h("div", { class: "rejection-head" }, h("span", { class: "badge bad" }, code), h("strong", null, visible(reason)), h("span", { class: "hint" }, time(received))),
    h("pre", { class: "line", tabindex: "0", "aria-label": "The line" }, h("code", null, marked(visible(text), column))),
    h("p", null, (Object.hasOwn(ADVICE, code) ? ADVICE[code] : null) ?? "Mend the line, and try it here."),
    h("div", { class: "actions" },
      button("Try the line", () => go("explain", { db: database, line: text })),
      h("span", { class: "hint" }, [count > 1 && `${count} times in one request`, token && `token ${visible(token)}`, address && `from ${visible(address)}`].filter(Boolean).join(" · "))));
}

/** The line with the place of the fault marked. */
function marked(text, column) {
  const at = Number.isInteger(column) && column > 0 ? column - 1 : -1;
  if (at < 0 || at >= text.length) return text;
  return [text.slice(0, at), h("mark", null, text.slice(at, at + 1)), text.slice(at + 1)];
}
