// The URL of the page holds the view and its settings, so that users can bookmark and share it. It never holds a token.

/** Parses the fragment of the URL into the view and its settings. */
export function parse(hash) {
  const [view, query] = hash.replace(/^#/, "").split(/\?(.*)/s);
  return { view: view || "", settings: new URLSearchParams(query ?? "") };
}

export function format(view, settings) {
  const text = String(settings ?? "");
  return text ? `#${view}?${text}` : `#${view}`;
}

/** The settings of the current view. */
export function settings() {
  return parse(location.hash).settings;
}

/** Changes settings of the current view. Null removes a setting; a list sets it several times. `push` adds an entry to the history, from which the view can go back. */
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
  if (push) history.pushState({ isNarrowed: true }, "", address);
  else history.replaceState(history.state, "", address);
}

export function go(view, settings) {
  location.hash = format(view, new URLSearchParams(settings ?? {}));
}
