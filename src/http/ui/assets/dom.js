// Builds elements. Strings always become text nodes, because names and values come from senders and must never become markup.

const SVG = "http://www.w3.org/2000/svg";
/** Elements that are never created. */
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

/** Creates an element with attributes, listeners (`on`) and children (elements or strings). */
export function h(tag, options, ...children) {
  if (FORBIDDEN.has(tag)) throw new Error(`element ${tag} is not allowed`);
  return fill(document.createElement(tag), options, children);
}

/** As `h`, for SVG. */
export function svg(tag, options, ...children) {
  return fill(document.createElementNS(SVG, tag), options, children);
}

/** Replaces all children. */
export function show(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
}

/** Updates a live region, unless it already has this text: screen readers would announce it again. */
export function announce(region, text, make) {
  if (region.dataset.announced === text) return;
  region.dataset.announced = text;
  show(region, make());
}

/** The accessible name of a control, without changing values. */
function nameOf(control) {
  if (control.matches(".plot")) return control.className;
  return control.getAttribute("aria-label") ?? (control.querySelector(".legend-name") ?? control.labels?.[0] ?? control).textContent;
}

/**
 * Remembers the focused control before a redraw. Returns a function that restores the focus, to the control with the same name or else at the same
 * position.
 */
export function keepFocus(container) {
  const all = () => [...container.querySelectorAll("button, input, select, textarea, summary, a[href], [tabindex='0']")];
  const focused = document.activeElement;
  if (!container.contains(focused)) return () => {};
  const index = all().indexOf(focused);
  const name = nameOf(focused);
  const { tagName, scrollTop } = focused;
  return () => {
    if (focused.isConnected) return;
    const now = all();
    const successor = now.find((one) => one.tagName === tagName && nameOf(one) === name) ?? now[Math.min(index, now.length - 1)];
    successor?.focus({ preventScroll: true });
    if (successor) successor.scrollTop = scrollTop;
  };
}

let labels = 0;

/** A control with a label, and a hint if there is one. */
export function field(label, control, hint) {
  const id = control.id || `field-${++labels}`;
  control.id = id;
  const below = hint && h("span", { class: "hint", id: `${id}-hint` }, hint);
  if (below) control.setAttribute("aria-describedby", below.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, below);
}

/** A drop-down list. Options are strings, or pairs of value and label. */
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

/** A group of buttons, one of them pressed. Options are `[value, label, hint]`; the hint is optional. */
export function segments(name, options, value, change) {
  const buttons = options.map(([key, text, hint]) => button(text, () => change(key), { "aria-pressed": String(key === value), class: "segment", title: hint }));
  return h("div", { class: "segments", role: "group", "aria-label": name }, buttons);
}

/** A table that scrolls if it is too wide. Rows are lists of cells (elements or strings). */
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

/** The placeholder of an empty view. */
export function empty(text, ...children) {
  return h("div", { class: "empty" }, h("p", null, text), children);
}

export function failure(error) {
  return h("div", { class: "failure", role: "alert" }, h("strong", null, "Error: "), error.message ?? String(error));
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
    // The clipboard API needs TLS; copying a selection does not.
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

/** Downloads a file. */
export function save(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
