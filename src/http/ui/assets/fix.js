// Fixes in place: rejected lines are written again by a rule, and values that are kept beside a field are moved into it. Each is tried in a
// dry run first, and only what the dry run was about can be written.

import { get, post, send } from "./api.js";
import { button, card, empty, failure, field, h, select, show, table } from "./dom.js";
import { visible } from "./format.js";

const UNITS = [["", "as they were sent"], ["ns", "ns"], ["u", "µs"], ["ms", "ms"], ["s", "s"], ["m", "minutes"], ["h", "hours"], ["auto", "by their size"]];
const TYPES = ["float", "integer", "boolean", "string"];
/** Lines of one part, and of its table. */
const [PART, ROWS] = [1000, 100];
/** Measurements with values of another type that are shown at a time: one request each. */
const MEASUREMENTS = 50;
/** What is kept beside a field, by the end of its name (docs/drift.md). */
const BESIDE = /^(.+)@(number|string|boolean)$/s;
const FAMILY = { number: "numbers", string: "text", boolean: "booleans" };

/** The two buttons of a fix: what it would do, and then do it. A change of what is asked for takes the second one back. */
function tried({ ask, names, told }) {
  let asked = 0;
  const write = button(names[1], () => run(false), { class: "primary", disabled: true });
  const dry = button(names[0], () => run(true));
  const retry = () => {
    asked += 1;
    dry.disabled = false;
    write.disabled = true;
    show(told);
  };
  async function run(isDry) {
    asked += 1;
    const mine = asked;
    // What was written is told even if another rule stands there by now.
    const isOver = () => isDry && mine !== asked;
    [dry, write].forEach((one) => (one.disabled = true));
    try {
      const { shown, count } = await ask(isDry);
      if (isOver()) return;
      show(told, shown);
      write.disabled = !isDry || count === 0;
    } catch (error) {
      if (isOver()) return;
      show(told, failure(error));
    }
    dry.disabled = false;
  }
  return { dry, write, retry };
}

/**
 * The rule for rejected lines. `chosen` gives the parameters that choose them, `written` is called when some are written; what is returned is to be
 * called when the choice changes.
 */
export function replay(place, database, chosen, written) {
  const told = h("div", { "aria-live": "polite" });
  const rows = h("div", { class: "rules" });
  let [precision, cursor, changes] = ["", "", []];
  // From entries, so that a field of any name is one.
  const of = (what) => Object.fromEntries(changes.filter((one) => one.name && one[what]).map((one) => [one.name, one[what]]));
  const rule = () => ({ ...(precision && { precision }), rename: of("rename"), cast: of("cast") });
  const ask = async (isDry) => {
    const part = cursor;
    const answer = await post("/api/v1/rejections/replay", rule(), { parameters: { ...chosen(), db: database, dry_run: String(isDry), limit: PART, cursor: part } });
    if (!isDry && answer.taken > 0) written();
    return { shown: outcome(answer, () => startAt(answer.next), part && (() => startAt(""))), count: answer.taken };
  };
  const { dry, write, retry } = tried({ ask, names: ["What would become of them?", "Write them"], told });
  const startAt = (next) => {
    cursor = next;
    retry();
    dry.click();
  };
  const again = () => {
    cursor = "";
    retry();
  };
  const add = () => {
    const one = { name: "", rename: "", cast: "" };
    changes.push(one);
    const text = (key) => h("input", { autocomplete: "off", spellcheck: "false", on: { input: (event) => {
      one[key] = event.target.value;
      again();
    } } });
    const row = h("div", { class: "row" },
      field("Field, as sent", text("name")), field("New name", text("rename")),
      field("New type", select([["", "as sent"], ...TYPES], "", (type) => {
        one.cast = type;
        again();
      })),
      button("Remove", () => {
        changes = changes.filter((other) => other !== one);
        row.remove();
        again();
      }, { class: "quiet" }));
    rows.append(row);
  };
  add();
  show(place, card(null, h("details", null, h("summary", null, "Fix and write again"), h("div", { class: "fix" },
    h("p", { class: "hint" }, "The lines that are chosen above are changed by this rule, and judged by the rights that their senders have now. Lines that were not kept whole cannot be fixed here."),
    h("div", { class: "row" }, field("Unit of the times", select(UNITS, "", (unit) => {
      precision = unit;
      again();
    }))),
    rows, h("div", { class: "actions" }, button("Another field", add, { class: "quiet" }), dry, write), told))));
  return again;
}

function outcome({ dry_run: isDry, taken, refused, next, lines }, more, first) {
  if (lines.length === 0) return [empty("No kept line is chosen.", h("p", null, "Lines that were written again are not offered twice.")), first && button("From the first line", first)];
  const said = isDry ? `${taken} would be written, ${refused} would not.` : `${taken} ${taken === 1 ? "is" : "are"} written, ${refused} ${refused === 1 ? "is" : "are"} not.`;
  const rows = lines.slice(0, ROWS).map((line) => [
    h("span", { class: line.taken ? "badge good" : "badge bad" }, line.taken ? (isDry ? "would be written" : "written") : "refused"),
    h("code", null, visible(line.before)),
    line.after ? h("code", null, visible(line.after)) : "–",
    line.refused.map(visible).join("; ") || "–",
  ]);
  return [h("p", null, h("strong", null, said)), table("What becomes of the lines", ["Verdict", "Before", "After", "Why not"], rows, { class: "scroll tall" }),
    lines.length > ROWS && h("p", { class: "hint" }, `The first ${ROWS} of ${lines.length} lines.`),
    h("div", { class: "actions" }, next && button("Try the next lines", more), first && button("From the first line", first))];
}

/** Fields beside which values of another type are kept, and the move into them. */
export async function drift(place, database) {
  try {
    const measurements = await drifted(database);
    if (measurements.length === 0) return;
    const [list, more] = [h("div", { class: "drifts" }), h("div", { class: "actions" })];
    const showNext = async (first) => {
      const found = await driftedOf(database, measurements.slice(first, first + MEASUREMENTS));
      list.append(...found.map((one) => move(database, one)));
      const left = measurements.length - first - MEASUREMENTS;
      show(more, left > 0 && button(`Show more: ${left} further ${left === 1 ? "measurement" : "measurements"}`, () => showNext(first + MEASUREMENTS).catch((error) => show(more, failure(error)))));
    };
    await showNext(0);
    show(place, card("Values of another type",
      h("p", { class: "hint" }, "They are kept beside their field. Those that say the same as another type can move; the rest stays. A field stays in this list when all of its values have moved."),
      list, more));
  } catch (error) {
    show(place, card("Values of another type", failure(error)));
  }
}

/** The measurements that have such values, by one request for all of them. */
async function drifted(database) {
  const fields = await get("/api/v1/fields", { db: database });
  if (!fields.fields.some(({ field: name }) => BESIDE.test(name))) return [];
  const { results } = await get("/query", { db: database, q: "SHOW FIELD KEYS" });
  if (results?.[0]?.error) throw new Error(results[0].error);
  return (results?.[0]?.series ?? []).filter(({ values }) => values.some(([name]) => BESIDE.test(name))).map(({ name }) => name);
}

async function driftedOf(database, measurements) {
  const isBeside = ({ field: name }) => BESIDE.test(name);
  const found = [];
  for (const measurement of measurements) {
    const { fields } = await get("/api/v1/fields", { db: database, measurement });
    for (const { field: beside, sensors } of fields.filter(isBeside)) {
      const [, name, family] = BESIDE.exec(beside);
      const own = fields.find((one) => one.field === name)?.type;
      if (!found.some((one) => one.measurement === measurement && one.name === name && one.family === family)) found.push({ measurement, name, family, sensors, own });
    }
  }
  return found;
}

function move(database, { measurement, name, family, sensors, own }) {
  const told = h("div", { "aria-live": "polite" });
  let to = { string: "string", boolean: "boolean" }[own] ?? "float";
  const ask = async (isDry) => {
    const parameters = { db: database, measurement, field: name, to, dry_run: String(isDry) };
    const { sensors: of, families, readings, left } = await (await send("POST", "/api/v1/drift/resolve", { parameters })).json();
    return { shown: h("p", null, h("strong", null, isDry ? `${readings} values of ${of} sensors would move, ${left} would stay.` : `${readings} values of ${of} sensors moved, ${left} stay.`),
      families > 0 ? ` The field of ${families} sensors ${isDry ? "would become" : "is now"} ${to}.` : null), count: readings + families };
  };
  const { dry, write, retry } = tried({ ask, names: ["What would move?", "Move them"], told });
  const label = `${visible(name)} of ${visible(measurement)}`;
  return h("div", { class: "drifted", role: "group", "aria-label": label },
    h("p", null, h("b", null, label), ` has ${FAMILY[family]} beside it, of ${sensors} ${sensors === 1 ? "sensor" : "sensors"}`),
    h("div", { class: "row" }, field("Move as", select(TYPES, to, (type) => {
      to = type;
      retry();
    })), h("div", { class: "actions" }, dry, write)), told);
}
