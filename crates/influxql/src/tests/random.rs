//! On random input, the parser and the checks do not panic, and what parses prints as text that parses to the same
//! tree.

use super::super::{Statement, check, split};
use super::display::Printed;
use super::{parsed, utc};

/// xorshift with a fixed seed, so that all runs are equal.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const WORDS: [&str; 72] = [
    "select",
    "from",
    "where",
    "group by",
    "order by",
    "limit",
    "offset",
    "slimit",
    "soffset",
    "fill(",
    "tz('UTC')",
    "time(",
    "time",
    "now()",
    "mean(",
    "distinct",
    "count(",
    "top(",
    "as",
    "and",
    "or",
    "=",
    "!=",
    "=~",
    "!~",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "(",
    ")",
    ",",
    ";",
    ".",
    "..",
    "::",
    ":",
    "float",
    "tag",
    "'text'",
    "'2024-01-01'",
    "\"name\"",
    "v",
    "m",
    "1",
    "1.5",
    "18446744073709551615",
    "9223372036854775807",
    "1h",
    "106751d",
    "/re/",
    "true",
    "show",
    "tag",
    "values",
    "with key",
    "in",
    "cardinality",
    "series",
    "measurements",
    "desc",
    "into",
    "$p",
    "--",
    "/*",
    "*/",
];

/// Checks the statements of a text, and asserts that their printed forms parse to the same trees.
fn check_text(text: &str) {
    for statement in parsed(text).unwrap_or_default() {
        match &statement {
            Statement::Select(select) => drop(check(select, &utc())),
            Statement::Delete { condition, .. } => drop(split(condition.as_ref(), &utc())),
            Statement::Unsupported { .. } => continue,
            _ => {}
        }
        let printed = Printed(&statement).to_string();
        assert_eq!(parsed(&printed), Ok(vec![statement]), "{text:?} prints {printed:?}");
    }
}

#[test]
fn statements_of_random_words_are_answered() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let count = random.below(20) + 1;
        let words: Vec<&str> = (0..count).map(|_| random.pick(&WORDS)).collect();
        check_text(&words.join(random.pick(&[" ", " ", ""])));
        check_text(&format!("select {} from m where {}", words[..count / 2].join(" "), words[count / 2..].join(" ")));
    }
}

#[test]
fn broken_statements_are_answered() {
    let table = include_str!("clauses.txt").lines().chain(include_str!("functions_and_times.txt").lines());
    let statements: Vec<&str> =
        table.filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next()).collect();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..10_000 {
        let mut text: Vec<char> = random.pick(&statements).chars().collect();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            match random.below(4) {
                0 if !text.is_empty() => drop(text.remove(at)),
                1 => text.truncate(at),
                2 => {
                    let word: Vec<char> = random.pick(&WORDS).chars().collect();
                    text.splice(at..at, word);
                }
                _ => text.insert(at, char::from_u32(u32::try_from(random.below(0x300)).unwrap_or(0)).unwrap_or('\0')),
            }
        }
        check_text(&text.into_iter().collect::<String>());
    }
}
