// A sensor's key: its measurement and its sorted tags as in line protocol, where a backslash stands before separators only.

/** `{ measurement, tags }` of a key; the tags are pairs of a name and a value. */
export function partsOf(key) {
  const [measurement, behind] = part(key, [",", " "]);
  const tags = [];
  let rest = behind;
  while (rest.startsWith(",")) {
    const [name, equals] = part(rest.slice(1), [",", "=", " "]);
    const [value, next] = part(equals.slice(1), [",", "=", " "]);
    tags.push([name, value]);
    rest = next;
  }
  return { measurement, tags };
}

/** The text before the first of these marks that no backslash stands before, without such backslashes; and what follows. */
function part(text, marks) {
  let at = 0;
  for (let escaped = false; at < text.length && (escaped || !marks.includes(text[at])); at += 1) escaped = text[at] === "\\" && !escaped;
  const plain = [...text.slice(0, at)].filter((letter, place, all) => letter !== "\\" || !marks.includes(all[place + 1])).join("");
  return [plain, text.slice(at)];
}
