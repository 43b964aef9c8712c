// Builds elements. Every text becomes a text node: names and values come from whoever sends readings, and none of them is ever markup.

const SVG = "http://www.w3.org/2000/svg";
/** Elements that a name of somebody else must never choose. */
const FORBIDDEN = new Set(["script", "style", "iframe", "object", "embed", "base", "link", "meta"]);

function fill(element, options, children) {
  for (const [name, value] of Object.entries(options ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "value") {
      element.value = value;
    } else if (name.startsWith("on") || name === "style" || (name === "href" && !/^(#|\/ui\/)/.test(value))) {
      throw new Error(`attribute ${name} is not allowed`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

/** An element with attributes, listeners (`on`) and children, which are elements or texts. */
export function h(tag, options, ...children) {
  if (FORBIDDEN.has(tag)) throw new Error(`element ${tag} is not allowed`);
  return fill(document.createElement(tag), options, children);
}

/** The same of SVG. */
export function svg(tag, options, ...children) {
  return fill(document.createElementNS(SVG, tag), options, children);
}

/** Replaces all children. */
export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
}

/** Shows what is to be heard, unless it is there already: then it is not spoken again. */
export function tell(place, text, make) {
  if (place.dataset.told === text) return;
  place.dataset.told = text;
  show(place, make());
}

/** What one hears of a control, without what changes as readings come. */
function nameOf(control) {
  if (control.matches(".plot")) return "plot";
  return control.getAttribute("aria-label") ?? (control.querySelector(".legend-name") ?? control.labels?.[0] ?? control).textContent;
}

/**
 * Remembers which control within a place has the focus, before the place is drawn anew. Returns what gives the focus back, to the control of the same
 * name, or else to the one that stands there now.
 */
export function keepFocus(place) {
  const all = () => [...place.querySelectorAll("button, input, select, textarea, summary, a[href], [tabindex='0']")];
  const had = document.activeElement;
  if (!place.contains(had)) return () => {};
  const [at, name, { tagName, scrollTop }] = [all().indexOf(had), nameOf(had), had];
  return () => {
    if (had.isConnected) return;
    const now = all();
    const again = now.find((one) => one.tagName === tagName && nameOf(one) === name) ?? now[Math.min(at, now.length - 1)];
    again?.focus({ preventScroll: true });
    if (again) again.scrollTop = scrollTop;
  };
}

let labels = 0;

/** A control below its label. */
export function field(label, control, hint) {
  const id = control.id || `field-${++labels}`;
  control.id = id;
  const below = hint && h("span", { class: "hint", id: `${id}-hint` }, hint);
  if (below) control.setAttribute("aria-describedby", below.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, below);
}

/** A list to choose from: of texts, or of pairs of value and text. */
export function select(options, value, change, more) {
  const items = options.map((option) => {
    const [key, text] = Array.isArray(option) ? option : [option, option];
    const item = h("option", { value: key }, text);
    item.selected = key === value;
    return item;
  });
  return h("select", { ...more, on: { change: (event) => change(event.target.value) } }, items);
}

export function button(text, click, more) {
  return h("button", { type: "button", ...more, on: { click } }, text);
}

/** Buttons of which one is pressed: of pairs of value and text, which a hint may follow. */
export function segments(name, options, value, change) {
  const buttons = options.map(([key, text, hint]) => button(text, () => change(key), { "aria-pressed": String(key === value), class: "segment", title: hint }));
  return h("div", { class: "segments", role: "group", "aria-label": name }, buttons);
}

/** A table whose rows are lists of cells: elements or texts. It scrolls by itself where it is too wide. */
export function table(name, heads, rows, more) {
  const head = heads.map((text) => h("th", { scope: "col" }, text));
  const body = rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name, ...more },
    h("table", null, h("thead", null, h("tr", null, head)), h("tbody", null, body)));
}

export function title(text, about) {
  return h("header", { class: "title" }, h("h1", null, text), about && h("p", null, about));
}

export function card(heading, ...children) {
  return h("section", { class: "card" }, heading && h("h2", null, heading), children);
}

/** What is shown where there is nothing. */
export function empty(text, ...children) {
  return h("div", { class: "empty" }, h("p", null, text), children);
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" }, h("strong", null, "That did not work. "), error.message ?? String(error));
}

/** A short message at the edge of the page. */
export function toast(text) {
  const message = h("div", { class: "toast" }, text);
  document.getElementById("toasts").append(message);
  setTimeout(() => message.remove(), 4000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS there is no clipboard for scripts, but for a selection there is.
    const area = h("textarea", { class: "off-screen", "aria-hidden": "true", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied.");
}

/** A dialog with a heading; returns a function that closes it. */
export function dialog(heading, ...children) {
  const box = h("dialog", { "aria-labelledby": "dialog-title", on: { close: () => box.remove() } });
  const close = () => box.close();
  box.append(h("header", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, heading), button("Close", close, { class: "quiet" })), ...children);
  document.body.append(box);
  box.showModal();
  return close;
}

/** Has the browser save a file. */
export function save(name, parts, type) {
  const place = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = place;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(place), 1000);
}
