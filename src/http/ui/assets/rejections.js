// Rejections: what was sent and not taken, why, and what helps.

import { get, send } from "./api.js";
import { button, card, empty, failure, field, h, save, select, show, title } from "./dom.js";
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

/** The number of rejections that are shown. */
const SHOWN = 200;
const PATH = "/api/v1/rejections";

/** The parameters that choose rejections. */
function chosen(database) {
  const wanted = settings();
  return { db: database, contains: wanted.get("q"), code: wanted.get("code"), measurement: wanted.get("m") };
}

export function rejections(place, { database }) {
  const [list, choice] = [h("div"), h("div", { class: "row" })];
  let [timer, asked] = [null, 0];
  async function load() {
    asked += 1;
    const mine = asked;
    try {
      const { rejections: all, codes } = await get(PATH, { ...chosen(database), limit: SHOWN });
      if (mine !== asked) return;
      const total = Object.values(codes).reduce((sum, count) => sum + count, 0);
      show(list,
        all.length > 0 && summary(codes, total, all[0].id),
        all.length ? all.map((rejection) => one(rejection, database))
          : card(null, empty("Nothing was rejected.", h("p", null, "What does not fit, and why, would stand here."))),
        total > all.length && h("p", { class: "hint" }, `The newest ${all.length} of ${total}.`));
    } catch (error) {
      if (mine === asked) show(list, failure(error));
    }
  }
  const choose = (changes, pause = 0) => {
    change(changes);
    clearTimeout(timer);
    timer = setTimeout(load, pause);
  };
  /** How many there are, and what can be done with all of them. */
  const summary = (codes, total, newest) => {
    const told = h("span", { class: "hint", "aria-live": "polite" });
    const run = (work) => () => work().catch((error) => show(told, failure(error)));
    const exported = run(async () => save(`rejections-${database}.lp`, [await exportAll(database)], "text/plain"));
    const done = run(async () => {
      await send("DELETE", PATH, { parameters: { ...chosen(database), through: newest } });
      load();
    });
    return card(null,
      h("p", null, Object.entries(codes).map(([code, count]) => h("span", { class: "badge" }, `${count} ${visible(code)}`))),
      h("div", { class: "actions" }, button("Export", exported), button(`Done: remove ${total === 1 ? "it" : `all ${total}`}`, done, { class: "quiet" }), told));
  };
  const typed = (key, type) => h("input", { type, value: settings().get(key) ?? "", autocomplete: "off", spellcheck: "false", on: { input: (event) => choose({ [key]: event.target.value }, 250) } });
  const code = settings().get("code") ?? "";
  const codes = [...new Set([...Object.keys(ADVICE), code])].filter(Boolean).map((name) => [name, visible(name)]);
  show(choice, field("Search in lines and reasons", typed("q", "search")), field("Code", select([["", "all"], ...codes], code, (name) => choose({ code: name }))), field("Measurement", typed("m", "search")));
  show(place, title("Rejections", "Lines that were sent and not taken, newest first, each with what helps. Export them, correct them, send them again, and remove them here."), choice, list);
  load();
  return () => clearTimeout(timer);
}

/** All chosen lines as line protocol, asked for in parts. */
async function exportAll(database) {
  let [text, after] = ["", ""];
  for (;;) {
    const part = await (await send("GET", PATH, { parameters: { ...chosen(database), format: "lp", limit: 1000, after } })).text();
    if (!part) return text;
    text += part;
    after = part.trimEnd().split(" ").at(-1);
  }
}

function one(rejection, database) {
  const { time: received, code, column, text, reason, token, address } = rejection;
  return card(null,
    h("div", { class: "rejection-head" }, h("span", { class: "badge bad" }, code), h("strong", null, `${column > 0 ? `Column ${column}: ` : ""}${visible(reason)}`), h("span", { class: "hint" }, time(received))),
    h("pre", { class: "line", tabindex: "0", "aria-label": "The line" }, h("code", null, marked(text, column))),
    h("p", null, (Object.hasOwn(ADVICE, code) ? ADVICE[code] : null) ?? "Mend the line, and try it here."),
    h("div", { class: "actions" },
      button("Try the line", () => go("explain", { db: database, line: text })),
      h("span", { class: "hint" }, [token && `token ${visible(token)}`, address && `from ${visible(address)}`].filter(Boolean).join(" · "))));
}

/** The line with the place of the fault marked: a column of its bytes, from 1, which may be behind its end. */
function marked(text, column) {
  if (!(column > 0)) return visible(text);
  const before = new TextDecoder().decode(new TextEncoder().encode(text).slice(0, column - 1));
  const [fault = " "] = text.slice(before.length);
  return [visible(before), h("mark", null, visible(fault)), visible(text.slice(before.length + fault.length))];
}
