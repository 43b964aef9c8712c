// Rejections: what was sent and not taken, why, and what helps.

import { get } from "./api.js";
import { button, card, empty, failure, field, h, select, show, title } from "./dom.js";
import { drift, replay } from "./fix.js";
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

/** Most that are asked for, as many as the service keeps by default, and most that are shown. */
const [ASKED, SHOWN] = [1000, 200];

/** The parameters that choose rejections, for the list and for the fix. */
function chosen() {
  const wanted = settings();
  return { contains: wanted.get("q"), code: wanted.get("code"), measurement: wanted.get("m") };
}

export function rejections(place, { database }) {
  const [list, fix, beside, choice] = [h("div"), h("div"), h("div"), h("div", { class: "row" })];
  let [timer, again, asked, withReplayed] = [null, null, 0, false];
  async function load() {
    asked += 1;
    const mine = asked;
    try {
      const { rejections: all } = await get("/api/v1/rejections", { ...chosen(), db: database, limit: ASKED });
      if (mine !== asked) return;
      const open = withReplayed ? all : all.filter(({ replayed, count }) => replayed < count);
      const done = all.length - open.length;
      show(list,
        done > 0 && h("p", { class: "hint" }, `${done} that ${done === 1 ? "was" : "were"} written again ${done === 1 ? "is" : "are"} left out. `, button("Show them, too", () => {
          withReplayed = true;
          load();
        }, { class: "link" })),
        open.length ? open.slice(0, SHOWN).map((rejection) => one(rejection, database, like))
          : card(null, empty(done ? "Everything that was rejected is written by now." : "Nothing was rejected.", h("p", null, "What does not fit, and why, would stand here."))),
        open.length > SHOWN && h("p", { class: "hint" }, `The newest ${SHOWN} of ${open.length}.`));
    } catch (error) {
      if (mine === asked) show(list, failure(error));
    }
  }
  const choose = (changes, pause = 0) => {
    change(changes);
    again();
    clearTimeout(timer);
    timer = setTimeout(load, pause);
  };
  const like = (code) => {
    choose({ code });
    drawChoice();
    fix.querySelector("details").open = true;
    fix.scrollIntoView();
    fix.querySelector("select").focus();
  };
  const typed = (key, type) => h("input", { type, value: settings().get(key) ?? "", autocomplete: "off", spellcheck: "false", on: { input: (event) => choose({ [key]: event.target.value }, 250) } });
  const drawChoice = () => {
    const code = settings().get("code") ?? "";
    const codes = [...new Set([...Object.keys(ADVICE), code])].filter(Boolean).map((name) => [name, visible(name)]);
    show(choice, field("Search in lines and reasons", typed("q", "search")), field("Code", select([["", "all"], ...codes], code, (name) => choose({ code: name }))), field("Measurement", typed("m", "search")));
  };
  show(place, title("Rejections", "Lines that were sent and not taken, newest first, each with what helps."), choice, fix, beside, list);
  drawChoice();
  again = replay(fix, database, chosen, load);
  drift(beside, database);
  load();
  return () => clearTimeout(timer);
}

function one(rejection, database, like) {
  const { time: received, code, column, text, reason, token, address, count, replayed } = rejection;
  const isDone = replayed >= count;
  return card(null,
    h("div", { class: "rejection-head" }, h("span", { class: "badge bad" }, code), h("strong", null, `${column > 0 ? `Column ${column}: ` : ""}${visible(reason)}`), h("span", { class: "hint" }, time(received))),
    h("pre", { class: "line", tabindex: "0", "aria-label": "The line" }, h("code", null, marked(text, column))),
    replayed > 0 && h("p", null, h("span", { class: "badge good" }, isDone ? "written again" : `${replayed} of ${count} written again`)),
    !isDone && h("p", null, (Object.hasOwn(ADVICE, code) ? ADVICE[code] : null) ?? "Mend the line, and try it here."),
    h("div", { class: "actions" },
      button("Try the line", () => go("explain", { db: database, line: text })),
      // No rule mends what cannot be read.
      !isDone && code !== "syntax" && button("Fix lines like this", () => like(code)),
      h("span", { class: "hint" }, [count > 1 && `${count} times in one request`, token && `token ${visible(token)}`, address && `from ${visible(address)}`].filter(Boolean).join(" · "))));
}

/** The line with the place of the fault marked: a column of its bytes, from 1, which may be behind its end. */
function marked(text, column) {
  if (!(column > 0)) return visible(text);
  const before = new TextDecoder().decode(new TextEncoder().encode(text).slice(0, column - 1));
  const [fault = " "] = text.slice(before.length);
  return [visible(before), h("mark", null, visible(fault)), visible(text.slice(before.length + fault.length))];
}
