// A sensor key: the measurement and the sorted tags as in line protocol. A backslash escapes separators only.

/** Parses a key to `{ measurement, tags }`, where tags are pairs of name and value. */
export function partsOf(key) {
  const [measurement, tail] = part(key, [",", " "]);
  const tags = [];
  let rest = tail;
  while (rest.startsWith(",")) {
    const [name, equals] = part(rest.slice(1), [",", "=", " "]);
    const [value, next] = part(equals.slice(1), [",", "=", " "]);
    tags.push([name, value]);
    rest = next;
  }
  return { measurement, tags };
}

/** Splits a text at the first unescaped separator. Returns the unescaped start, and the rest from the separator on. */
function part(text, marks) {
  let end = 0;
  for (let escaped = false; end < text.length && (escaped || !marks.includes(text[end])); end += 1) escaped = text[end] === "\\" && !escaped;
  const plain = [...text.slice(0, end)].filter((letter, place, all) => letter !== "\\" || !marks.includes(all[place + 1])).join("");
  return [plain, text.slice(end)];
}
