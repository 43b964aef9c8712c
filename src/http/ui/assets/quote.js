// Quotes strings as literals, with one function per language, so that a pasted snippet never runs a part of a name. Control characters, line ends and
// marks of direction become escapes, so that the visible text is the pasted text.

/** Control characters, marks of direction, separators, zero-width characters and noncharacters. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]|[\u{e0000}-\u{e007f}]/gu;

function hex(number, digits) {
  return number.toString(16).padStart(digits, "0");
}

/** `\uXXXX` per UTF-16 code unit. */
function units(letter) {
  return [...Array(letter.length).keys()].map((index) => `\\u${hex(letter.charCodeAt(index), 4)}`).join("");
}

/** A JSON string in which the characters of HTML markup are escaped. */
export function json(text) {
  return JSON.stringify(String(text)).replace(HIDDEN, units).replace(/[<>&']/g, units);
}

/** A value as indented JSON, with hidden characters escaped. */
export function pretty(value) {
  return JSON.stringify(value, null, 2).replace(HIDDEN, (letter) => (letter === "\n" ? letter : units(letter)));
}

/**
 * A word of a POSIX shell and of fish. Text with control characters uses `$'…'` of bash, zsh and ksh. Other shells read `$` and a quoted word there, so
 * quotation marks inside are escaped as `\047`, which cannot end the word.
 */
export function shell(text) {
  text = String(text);
  HIDDEN.lastIndex = 0;
  if (!HIDDEN.test(text)) return `'${text.replace(/[\\']/g, "'\\$&'")}'`;
  const bytes = (letter) => [...new TextEncoder().encode(letter)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
  return `$'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\047").replace(HIDDEN, bytes)}'`;
}

export function python(text) {
  const escape = (letter) => {
    const point = letter.codePointAt(0);
    return point > 0xffff ? `\\U${hex(point, 8)}` : `\\u${hex(point, 4)}`;
  };
  return `"${String(text).replace(/[\\"]/g, "\\$&").replace(HIDDEN, escape)}"`;
}

export function javascript(text) {
  return json(text);
}

/** A string of C and C++. Escapes are octal with three digits, so that a following digit is not part of them. `$` is escaped, because ESPHome expands it. */
export function c(text) {
  const octal = (letter) => [...new TextEncoder().encode(letter)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
  return `"${String(text).replace(/[\\"]/g, "\\$&").replace(/\?/g, "\\?").replace(HIDDEN, octal).replaceAll("$", "\\044")}"`;
}

/** A double-quoted scalar of YAML. As in Python, a character beyond 16 bits needs one `\U` escape, not two surrogates. */
export function yaml(text) {
  return python(text);
}

/** A basic string of TOML. `$` is escaped, because Telegraf expands variables before it parses the file. */
export function toml(text) {
  return python(text).replaceAll("$", "\\u0024");
}

/** A string literal of InfluxQL. */
export function influxText(text) {
  return `'${String(text).replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n")}'`;
}

/** A quoted identifier of InfluxQL. */
export function influxName(text) {
  return `"${String(text).replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n")}"`;
}
