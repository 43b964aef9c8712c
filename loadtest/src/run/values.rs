//! Generates random tags and field values, the same in every run of a seed; writes them as line protocol; and computes
//! fingerprints to compare what was read back.

use std::collections::BTreeMap;

use super::random::{Random, hash, mix};
use super::scenario::{Constant, Field, Number, Tag};

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number in units of its last decimal, and the number of decimals.
    Decimal(i64, u32),
    Integer(i64),
    Bool(bool),
    Text(String),
    /// A float of the scenario.
    Float(f64),
}

const POWERS: [i64; 10] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

impl From<&Constant> for Value {
    fn from(constant: &Constant) -> Self {
        match constant {
            Constant::Bool(value) => Self::Bool(*value),
            Constant::Integer(value) => Self::Integer(*value),
            Constant::Float(value) => Self::Float(*value),
            Constant::Text(value) => Self::Text(value.clone()),
        }
    }
}

impl Value {
    /// Writes the value as line protocol.
    pub fn write(&self, line: &mut Vec<u8>) {
        match self {
            Self::Decimal(units, decimals) => write_decimal(line, *units, *decimals),
            Self::Integer(value) => {
                write_decimal(line, *value, 0);
                line.push(b'i');
            }
            Self::Bool(value) => line.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Float(value) => line.extend_from_slice(format!("{value:?}").as_bytes()),
            Self::Text(value) => {
                line.push(b'"');
                for byte in value.bytes() {
                    if matches!(byte, b'"' | b'\\') {
                        line.push(b'\\');
                    }
                    line.push(byte);
                }
                line.push(b'"');
            }
        }
    }

    /// A hash that is the same for equal values, regardless of their form.
    pub fn fingerprint(&self) -> u64 {
        match self {
            // Both operands are exact, so the quotient is the float nearest to the decimal number, as when parsing its
            // text.
            Self::Decimal(units, decimals) => number_fingerprint(to_f64(*units) / to_f64(power(*decimals))),
            Self::Integer(value) => number_fingerprint(to_f64(*value)),
            Self::Float(value) => number_fingerprint(*value),
            Self::Bool(value) => bool_fingerprint(*value),
            Self::Text(value) => text_fingerprint(value),
        }
    }
}

/// The fingerprint of a number. Integers and floats are one family, as in the server.
pub fn number_fingerprint(value: f64) -> u64 {
    mix(value.to_bits() ^ 1)
}

pub fn bool_fingerprint(value: bool) -> u64 {
    mix(2 + u64::from(value))
}

pub fn text_fingerprint(value: &str) -> u64 {
    mix(hash(value.as_bytes()) ^ 4)
}

/// The fingerprint of a field. A reading's fingerprint is the sum of these, because the order of fields does not
/// matter.
pub fn field_fingerprint(key: u64, value: u64) -> u64 {
    mix(key ^ value.rotate_left(17))
}

/// A generator of a field's values.
#[derive(Debug)]
pub struct Maker {
    /// The key as in a line, with the equals sign.
    pub key: Vec<u8>,
    /// The hash of the key.
    pub key_hash: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Walk { number: Units, step: i64, changes: f64 },
    Wave { number: Units, period_ns: f64 },
    Uniform { number: Units, changes: f64 },
    Drain { number: Units, step: i64 },
    Choice { values: Vec<Value>, changes: f64 },
    Flag(f64),
    ByTag { tag: String, values: BTreeMap<String, Value> },
    Fixed(Value),
}

/// The bounds of a number, in units of its last decimal.
#[derive(Debug, Clone, Copy)]
struct Units {
    least: i64,
    most: i64,
    decimals: u32,
    integer: bool,
}

impl Units {
    fn new(number: &Number) -> Self {
        let Number { least, most, decimals, integer, .. } = *number;
        Self { least: units(least, decimals), most: units(most, decimals), decimals, integer }
    }

    fn value(self, units: i64) -> Value {
        if self.integer { Value::Integer(units) } else { Value::Decimal(units, self.decimals) }
    }
}

impl Maker {
    pub fn new(key: &str, field: &Field) -> Self {
        let step = |number: &Number| units(number.step.unwrap_or(1.0), number.decimals).max(1);
        let changes = |number: &Number| number.changes.unwrap_or(1.0);
        let kind = match field {
            Field::Walk(number) => {
                Kind::Walk { number: Units::new(number), step: step(number), changes: changes(number) }
            }
            Field::Wave(number) => {
                let period_ns = number.period.unwrap_or_default().0.as_secs_f64() * 1e9;
                Kind::Wave { number: Units::new(number), period_ns }
            }
            Field::Uniform(number) => Kind::Uniform { number: Units::new(number), changes: changes(number) },
            Field::Drain(number) => Kind::Drain { number: Units::new(number), step: step(number) },
            Field::Choice { values, changes } => {
                Kind::Choice { values: values.iter().map(Value::from).collect(), changes: *changes }
            }
            Field::Flag { share } => Kind::Flag(*share),
            Field::ByTag { tag, values } => {
                let values = values.iter().map(|(key, value)| (key.clone(), Value::from(value))).collect();
                Kind::ByTag { tag: tag.clone(), values }
            }
            Field::Fixed { value } => Kind::Fixed(Value::from(value)),
        };
        let mut in_line = escaped(key, b",= ");
        in_line.push(b'=');
        Self { key: in_line, key_hash: hash(key.as_bytes()), kind }
    }

    /// The state of a device before its first reading. `tags` are those of the device.
    pub fn first_state(&self, random: &mut Random, tags: &[(String, String)]) -> i64 {
        match &self.kind {
            Kind::Walk { number, .. } | Kind::Uniform { number, .. } | Kind::Drain { number, .. } => {
                random.between(number.least, number.most)
            }
            // The phase, in millionths.
            Kind::Wave { .. } => random.between(0, 999_999),
            Kind::Choice { values, .. } => place(random, values.len()),
            Kind::ByTag { tag, values } => {
                let own = tags.iter().find(|(key, _)| key == tag).map(|(_, value)| value);
                let at = values.keys().position(|value| Some(value) == own).unwrap_or(0);
                i64::try_from(at).unwrap_or(0)
            }
            Kind::Flag(_) | Kind::Fixed(_) => 0,
        }
    }

    /// The next value of a device at this time. Updates its state.
    pub fn next(&self, state: &mut i64, random: &mut Random, time_ns: i64) -> Value {
        match &self.kind {
            Kind::Walk { number, step, changes } => {
                if random.is(*changes) {
                    *state = (*state + random.between(-step, *step)).clamp(number.least, number.most);
                }
                number.value(*state)
            }
            Kind::Uniform { number, changes } => {
                if random.is(*changes) {
                    *state = random.between(number.least, number.most);
                }
                number.value(*state)
            }
            Kind::Drain { number, step } => {
                let full = *state <= number.least;
                *state = if full { number.most } else { (*state - random.between(0, *step)).max(number.least) };
                number.value(*state)
            }
            Kind::Wave { number, period_ns } => {
                let turns = to_f64(time_ns) / period_ns + to_f64(*state) / 1e6;
                let height = f64::midpoint((turns * std::f64::consts::TAU).sin(), 1.0);
                number.value(number.least + rounded(height * to_f64(number.most - number.least)))
            }
            Kind::Choice { values, changes } => {
                if random.is(*changes) {
                    *state = place(random, values.len());
                }
                usize::try_from(*state).ok().and_then(|at| values.get(at)).cloned().unwrap_or(Value::Bool(false))
            }
            Kind::Flag(share) => Value::Bool(random.is(*share)),
            Kind::ByTag { values, .. } => {
                let at = usize::try_from(*state).unwrap_or(0);
                values.values().nth(at).cloned().unwrap_or(Value::Bool(false))
            }
            Kind::Fixed(value) => value.clone(),
        }
    }
}

pub fn tag_value(tag: &Tag, device: u32, random: &mut Random) -> String {
    match tag {
        Tag::Numbered { prefix, digits } => format!("{prefix}{device:0digits$}"),
        Tag::Choice { values } => {
            let at = usize::try_from(place(random, values.len())).unwrap_or(0);
            values.get(at).cloned().unwrap_or_default()
        }
        Tag::Fixed { value } => value.clone(),
    }
}

/// Escapes each of the special characters with a backslash.
pub fn escaped(text: &str, special: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for byte in text.bytes() {
        if special.contains(&byte) {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    escaped
}

/// Writes a whole number with a decimal point before its last digits.
fn write_decimal(line: &mut Vec<u8>, units: i64, decimals: u32) {
    /// The length of the longest i64 with its sign and a decimal point, rounded up.
    const LONGEST: usize = 24;
    let mut digits = [b'0'; LONGEST];
    let (mut at, mut rest, mut written) = (LONGEST, units.unsigned_abs(), 0);
    while rest > 0 || written <= decimals {
        if written == decimals && decimals > 0 {
            at -= 1;
            digits[at] = b'.';
        }
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        written += 1;
    }
    if units < 0 {
        line.push(b'-');
    }
    line.extend_from_slice(&digits[at..]);
}

fn power(decimals: u32) -> i64 {
    POWERS.get(decimals as usize).copied().unwrap_or(1)
}

fn units(value: f64, decimals: u32) -> i64 {
    rounded(value * to_f64(power(decimals)))
}

fn place(random: &mut Random, count: usize) -> i64 {
    i64::try_from(random.below(u64::try_from(count).unwrap_or(0))).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 where it matters, which is checked")]
fn to_f64(whole: i64) -> f64 {
    whole as f64
}

#[expect(clippy::cast_possible_truncation, reason = "in the bounds of the scenario, which are checked")]
fn rounded(value: f64) -> i64 {
    value.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Value) -> String {
        let mut line = Vec::new();
        value.write(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn values_are_written_as_line_protocol_and_known_again() {
        let shown = [(2150, 2), (-5, 2), (0, 1), (7, 0), (i64::MIN + 1, 9)].map(|(units, decimals)| {
            let value = Value::Decimal(units, decimals);
            let text = written(&value);
            assert_eq!(value.fingerprint(), number_fingerprint(text.parse().unwrap()), "{text}");
            text
        });
        assert_eq!(shown, ["21.50", "-0.05", "0.0", "7", "-9223372036.854775807"]);
        assert_eq!(written(&Value::Integer(-3)), "-3i");
        assert_eq!(written(&Value::Text("a \"b\" \\".into())), r#""a \"b\" \\""#);
        assert_eq!(written(&Value::Float(2.0)), "2.0");
        assert_eq!(Value::Integer(2).fingerprint(), Value::Float(2.0).fingerprint());
    }

    #[test]
    fn values_keep_to_their_bounds() {
        let number = |step, changes, period: Option<&str>| Number {
            least: -1.0,
            most: 2.5,
            decimals: 1,
            integer: false,
            step,
            changes,
            period: period.map(|period| period.parse().unwrap()),
        };
        let fields = [
            Field::Walk(number(Some(0.4), Some(0.5), None)),
            Field::Drain(number(Some(0.4), None, None)),
            Field::Uniform(number(None, None, None)),
            Field::Wave(number(None, None, Some("90s"))),
        ];
        for field in fields {
            let (maker, mut random) = (Maker::new("f", &field), Random::new(1, &[]));
            let mut state = maker.first_state(&mut random, &[]);
            let mut seen = std::collections::BTreeSet::new();
            for tick in 0..2000 {
                let Value::Decimal(units, 1) = maker.next(&mut state, &mut random, tick * 1_000_000_000) else {
                    panic!("{field:?}")
                };
                seen.insert(units);
            }
            assert!(seen.first() >= Some(&-10) && seen.last() <= Some(&25) && seen.len() > 20, "{field:?}: {seen:?}");
        }
    }
}
