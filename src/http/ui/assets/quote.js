// Writes any text as a literal of a language, so that a pasted snippet means the text and runs nothing of it. One function per language. Whatever
// steers a terminal, ends a line or turns the reading direction becomes an escape: what one reads is what one pastes.

/** Controls, the marks of direction, separators, what has no width, and what is no character. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]|[\u{e0000}-\u{e007f}]/gu;

function hex(number, digits) {
  return number.toString(16).padStart(digits, "0");
}

/** `\uXXXX`, twice beyond 16 bits. */
function units(letter) {
  return [...Array(letter.length).keys()].map((at) => `\\u${hex(letter.charCodeAt(at), 4)}`).join("");
}

/** A JSON text, with nothing in it that a page could take for a tag. */
export function json(text) {
  return JSON.stringify(String(text)).replace(HIDDEN, units).replace(/[<>&']/g, units);
}

/** A value as JSON of several lines, with nothing hidden in it. */
export function pretty(value) {
  return JSON.stringify(value, null, 2).replace(HIDDEN, (letter) => (letter === "\n" ? letter : units(letter)));
}

/**
 * A word of a POSIX shell, and of fish; of bash, zsh and ksh where it has controls. A shell that does not know `$'…'` reads an ordinary quoted word there,
 * which ends at the first quotation mark: so none stands within.
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

/** A string of C and C++, in octal so that no digit behind an escape counts to it. ESPHome substitutes behind a `$`, also in code. */
export function c(text) {
  const octal = (letter) => [...new TextEncoder().encode(letter)].map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
  return `"${String(text).replace(/[\\"]/g, "\\$&").replace(/\?/g, "\\?").replace(HIDDEN, octal).replaceAll("$", "\\044")}"`;
}

/** A double-quoted scalar of YAML. Its escapes are those of Python: two halves of a letter beyond 16 bits would stay two. */
export function yaml(text) {
  return python(text);
}

/** A basic string of TOML. Telegraf replaces variables behind a `$` in the file before it reads it. */
export function toml(text) {
  return python(text).replaceAll("$", "\\u0024");
}

/** A string of InfluxQL. */
export function influxText(text) {
  return `'${String(text).replace(/[\\']/g, "\\$&").replaceAll("\n", "\\n")}'`;
}

/** A name in InfluxQL. */
export function influxName(text) {
  return `"${String(text).replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n")}"`;
}
