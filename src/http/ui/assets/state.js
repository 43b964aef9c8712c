// What the address of the page holds: the view and what it shows, so that it can be kept and shared. Never a token.

/** The view and its settings, of the part of the address behind `#`. */
export function parse(hash) {
  const [view, query] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view: view || "", settings: new URLSearchParams(query ?? "") };
}

export function format(view, settings) {
  const text = String(settings ?? "");
  return text ? `#${view}?${text}` : `#${view}`;
}

/** The settings of the view that is shown. */
export function settings() {
  return parse(location.hash).settings;
}

/** Changes settings of the view that is shown; null removes one, a list sets several of one name. Shows them with `push`, so that Back undoes it. */
export function change(changes, { push = false } = {}) {
  const { view, settings } = parse(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    settings.delete(name);
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "") settings.append(name, item);
    }
  }
  const address = format(view, settings);
  if (address === location.hash) return;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

export function go(view, settings) {
  location.hash = format(view, new URLSearchParams(settings ?? {}));
}
