//! Converts values to the types that a mapping names, and to times.

use std::borrow::Cow;

use hourglass_model::reading::time::{self, TIMESTAMP_MAX, TIMESTAMP_MIN};
use hourglass_model::reading::value::RawValue;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::mapping::{FieldType, TimeFormat, TimeRule};

/// The text of a value, as a tag or name.
pub(crate) fn text<'r>(value: &'r RawValue<'_>) -> Cow<'r, str> {
    match value {
        RawValue::String(text) => Cow::Borrowed(text),
        RawValue::Float(v) => Cow::Owned(v.to_string()),
        RawValue::Integer(v) => Cow::Owned(v.to_string()),
        RawValue::Unsigned(v) => Cow::Owned(v.to_string()),
        RawValue::Boolean(v) => Cow::Owned(v.to_string()),
    }
}

/// The value of a field without a type. As in JSON writes, a number is a float unless that would change it: devices print
/// `22` for `22.0`.
pub(crate) fn untyped<'a>(value: &RawValue<'a>) -> RawValue<'a> {
    // A float of this size converts exactly to i128.
    let exact = |float: f64, whole: i128| Some(RawValue::Float(float)).filter(|_| float as i128 == whole);
    let float = match value {
        RawValue::Integer(v) => exact(*v as f64, i128::from(*v)),
        RawValue::Unsigned(v) => exact(*v as f64, i128::from(*v)),
        _ => None,
    };
    float.unwrap_or_else(|| value.clone())
}

/// The value in another type; `None` if that would change it.
pub(crate) fn typed<'a>(value: &RawValue<'a>, wanted: FieldType) -> Option<RawValue<'a>> {
    Some(match (wanted, value) {
        (FieldType::String, RawValue::String(text)) => RawValue::String(text.clone()),
        (FieldType::String, value) => RawValue::String(Cow::Owned(text(value).into_owned())),
        (FieldType::Boolean, RawValue::Boolean(v)) => RawValue::Boolean(*v),
        (FieldType::Boolean, value) => match text(value).trim().to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => RawValue::Boolean(true),
            "false" | "off" | "0" => RawValue::Boolean(false),
            _ => return None,
        },
        (_, RawValue::Boolean(_)) => return None,
        (FieldType::Float, value) => RawValue::Float(text(value).trim().parse().ok().filter(|v: &f64| v.is_finite())?),
        (FieldType::Integer, value) => integer(&text(value))?,
    })
}

/// Parses an integer, which may have a fraction of zeros.
fn integer(text: &str) -> Option<RawValue<'static>> {
    let text = text.trim();
    let text = match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => whole,
        _ => text,
    };
    let signed = text.parse().ok().map(RawValue::Integer);
    signed.or_else(|| text.parse().ok().map(RawValue::Unsigned))
}

/// Parses the time of a message, in nanoseconds. Of the two instants of an ambiguous local time, it is the one nearer to
/// the arrival.
pub(crate) fn timestamp(value: &RawValue<'_>, rule: &TimeRule, arrival_ns: i64) -> Option<i64> {
    let text = text(value);
    let ns = match rule.format {
        TimeFormat::S => decimal_ns(&text, 9)?,
        TimeFormat::Ms => decimal_ns(&text, 6)?,
        TimeFormat::Us => decimal_ns(&text, 3)?,
        TimeFormat::Ns => decimal_ns(&text, 0)?,
        TimeFormat::Rfc3339 => time::parse_rfc3339(&text)?,
        TimeFormat::Local => match time::parse_rfc3339(&text) {
            Some(ns) => ns,
            None => local_ns(&text, rule, arrival_ns)?,
        },
    };
    (TIMESTAMP_MIN..=TIMESTAMP_MAX).contains(&ns).then_some(ns)
}

/// Parses a decimal number of a unit of `10^digits` ns, without the rounding of a float. Digits below a nanosecond are
/// dropped.
fn decimal_ns(text: &str, digits: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_decimal =
        whole.ends_with(|c: char| c.is_ascii_digit()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal {
        return None;
    }
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(digits).collect();
    format!("{whole}{kept}").parse().ok()
}

fn local_ns(text: &str, rule: &TimeRule, arrival_ns: i64) -> Option<i64> {
    // jiff ignores a zone in brackets without an offset.
    let is_plain = !text.contains('[');
    let local: DateTime = text.parse().ok().filter(|_| is_plain)?;
    let instants = TimeZone::get(rule.zone.as_ref()?).ok()?.to_ambiguous_timestamp(local);
    let candidates = [instants.earlier().ok()?, instants.later().ok()?];
    let candidates = candidates.map(|instant| i64::try_from(instant.as_nanosecond()).ok());
    candidates.into_iter().flatten().min_by_key(|ns| ns.abs_diff(arrival_ns))
}
