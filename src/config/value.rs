//! The kinds of values, each with its parser and a description of accepted values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::layers::WrittenValue;
use super::problem::show_text;
use super::store_uri::StoreUri;
use super::units::{parse_duration, parse_size, show_size};
use crate::reading::Precision;
use crate::reading::duration::show_duration;

/// The placeholder for a count or size with the value "auto", which is derived from `server.memory`.
pub const AUTO: usize = usize::MAX;

/// Faults of values of several kinds.
pub const OUT_OF_BOUNDS: &str = "out of bounds";
pub const EMPTY: &str = "empty";
pub const UNKNOWN_STORE: &str = "unknown store";
const WRONG_TYPE: &str = "wrong type";
const UNKNOWN_WORD: &str = "not one of the allowed words";

/// A parser of a value, or a description of its fault.
type Parse<T> = Box<dyn Fn(&WrittenValue) -> Result<T, String>>;

/// The kind of a key's values.
pub struct Kind<T> {
    /// A description of accepted values, with their bounds.
    pub expected: String,
    pub parse: Parse<T>,
}

fn kind<T>(expected: impl Into<String>, parse: impl Fn(&WrittenValue) -> Result<T, String> + 'static) -> Kind<T> {
    Kind { expected: expected.into(), parse: Box::new(parse) }
}

pub fn flag() -> Kind<bool> {
    kind("true or false", |value| match value {
        WrittenValue::Bool(flag) => Ok(*flag),
        WrittenValue::Bare(text) => text.parse().map_err(|_| UNKNOWN_WORD.to_owned()),
        _ => Err(WRONG_TYPE.to_owned()),
    })
}

pub fn count(bounds: RangeInclusive<usize>) -> Kind<usize> {
    kind(format!("a whole number, {} to {}", bounds.start(), bounds.end()), move |value| {
        let number = match value {
            WrittenValue::Integer(number) => *number,
            WrittenValue::Bare(text) => text.parse().map_err(|_| "not a whole number".to_owned())?,
            _ => return Err(WRONG_TYPE.to_owned()),
        };
        check_bounds(usize::try_from(number).map_err(|_| OUT_OF_BOUNDS.to_owned())?, &bounds)
    })
}

pub fn size(bounds: RangeInclusive<usize>) -> Kind<usize> {
    let expected = format!("a size, {} to {}", show_size(*bounds.start()), show_size(*bounds.end()));
    kind(expected, move |value| {
        let bytes = match value {
            WrittenValue::Integer(number) => u64::try_from(*number).map_err(|_| OUT_OF_BOUNDS.to_owned())?,
            WrittenValue::Text(text) | WrittenValue::Bare(text) => parse_size(text)?,
            _ => return Err(WRONG_TYPE.to_owned()),
        };
        check_bounds(usize::try_from(bytes).map_err(|_| OUT_OF_BOUNDS.to_owned())?, &bounds)
    })
}

pub fn auto_count(bounds: RangeInclusive<usize>) -> Kind<usize> {
    or_auto(count(bounds))
}

pub fn auto_size(bounds: RangeInclusive<usize>) -> Kind<usize> {
    or_auto(size(bounds))
}

fn or_auto(number: Kind<usize>) -> Kind<usize> {
    kind(format!("\"auto\" or {}", number.expected), move |value| match value {
        WrittenValue::Text(text) | WrittenValue::Bare(text) if text == "auto" => Ok(AUTO),
        value => (number.parse)(value),
    })
}

pub fn duration(bounds: RangeInclusive<Duration>) -> Kind<Duration> {
    let expected = format!("a duration, {} to {}", show_duration(*bounds.start()), show_duration(*bounds.end()));
    kind(expected, move |value| {
        let text = match value {
            WrittenValue::Text(text) | WrittenValue::Bare(text) => text.clone(),
            // A number without a unit fails, as it does in a variable.
            WrittenValue::Integer(number) => number.to_string(),
            _ => return Err(WRONG_TYPE.to_owned()),
        };
        check_bounds(parse_duration(&text).map_err(|fault| fault.to_string())?, &bounds)
    })
}

fn check_bounds<T: PartialOrd>(value: T, bounds: &RangeInclusive<T>) -> Result<T, String> {
    if bounds.contains(&value) { Ok(value) } else { Err(OUT_OF_BOUNDS.to_owned()) }
}

/// One of several words.
pub fn word<T: Copy>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let quoted: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    let (last, others) = quoted.split_last().expect("a word");
    kind(format!("{} or {last}", others.join(", ")), |value| {
        let text = as_text(value)?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| UNKNOWN_WORD.to_owned())
    })
}

pub fn precision() -> Kind<Precision> {
    kind(r#""auto", "ns", "us", "ms", "s", "m" or "h""#, |value| {
        Precision::from_name(as_text(value)?).ok_or_else(|| UNKNOWN_WORD.to_owned())
    })
}

pub fn text() -> Kind<String> {
    kind("text", |value| match as_text(value)? {
        "" => Err(EMPTY.to_owned()),
        text => Ok(text.to_owned()),
    })
}

pub fn optional_text() -> Kind<String> {
    kind("text, or nothing", |value| as_text(value).map(str::to_owned))
}

pub fn path() -> Kind<PathBuf> {
    kind("a path", |value| match as_text(value)? {
        "" => Err(EMPTY.to_owned()),
        path => Ok(PathBuf::from(path)),
    })
}

pub fn optional_path() -> Kind<PathBuf> {
    kind("a path, or nothing", |value| as_text(value).map(PathBuf::from))
}

/// The address of a listener. An empty text is `None`.
pub fn address() -> Kind<Option<SocketAddr>> {
    let expected = "an IP address and port, or a port of localhost, such as localhost:8086, or nothing";
    kind(expected, |value| match as_text(value)? {
        "" => Ok(None),
        text => parse_address(text).map(Some).ok_or_else(|| "not an address and port".to_owned()),
    })
}

/// A comma-separated list, which may be empty. `items` describes the items.
fn list<T: 'static>(items: &str, fault: &'static str, parse: fn(&str) -> Option<T>) -> Kind<Vec<T>> {
    kind(format!("{items}, comma-separated, or nothing"), move |value| {
        let items = as_text(value)?.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| parse(item).ok_or_else(|| fault.to_owned())).collect()
    })
}

pub fn origins() -> Kind<Vec<String>> {
    list("origins", "not a scheme and a host in lower case, such as https://example.org", |text| {
        is_origin(text).then(|| text.to_owned())
    })
}

/// Networks: canonical addresses, each with its prefix length in bits.
pub fn networks() -> Kind<Vec<(IpAddr, u8)>> {
    let fault = "not IP addresses or networks such as 10.0.0.0/8, whose other bits are zero";
    list("IP addresses and networks", fault, parse_network)
}

/// Host names, converted to lower case.
pub fn hosts() -> Kind<Vec<String>> {
    list("host names without ports", "not a host name without a port, such as hourglass.example.org", |text| {
        is_host(text).then(|| text.to_ascii_lowercase())
    })
}

pub fn store_uri() -> Kind<StoreUri> {
    kind(r#""embedded", mongodb://… or mongodb+srv://…"#, |value| {
        StoreUri::parse(as_text(value)?).ok_or_else(|| UNKNOWN_STORE.to_owned())
    })
}

pub fn log_level() -> Kind<String> {
    kind("a level (off, error, warn, info, debug, trace) or target=level, comma-separated", |value| {
        let directives: Vec<&str> = as_text(value)?.split(',').map(str::trim).collect();
        match directives.iter().find(|directive| !is_log_directive(directive)) {
            Some(directive) => Err(format!("{} is not understood", show_text(directive))),
            None => Ok(directives.join(",")),
        }
    })
}

fn as_text(value: &WrittenValue) -> Result<&str, String> {
    match value {
        WrittenValue::Text(text) | WrittenValue::Bare(text) => Ok(text),
        _ => Err(WRONG_TYPE.to_owned()),
    }
}

/// Parses an address and a port. `localhost`, or a port alone with or without a colon, stands for 127.0.0.1, never for
/// all addresses.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let loopback = |port: &str| Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
    let short = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if !short.is_empty() && short.bytes().all(|byte| byte.is_ascii_digit()) {
        loopback(short)
    } else {
        text.parse().ok()
    }
}

/// Returns true for a scheme, a host and an optional port, in the characters that browsers use in an origin.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_allowed))
}

/// Parses an address, or a network with a slash and its prefix length, whose other bits must be zero.
fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let (most, zeros) = match address {
        IpAddr::V4(address) => (32_u8, address.to_bits().trailing_zeros()),
        IpAddr::V6(address) => (128, address.to_bits().trailing_zeros()),
    };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
    let canonical = address.to_canonical();
    match (address, canonical) {
        _ if u32::from(most - bits) > zeros => None,
        (IpAddr::V6(_), IpAddr::V4(_)) => Some((canonical, bits.checked_sub(96)?)),
        _ => Some((address, bits)),
    }
}

/// Returns true for a name such as `hourglass`, a pattern such as `*.example.org`, or `*`.
fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text == "*" || (!name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.bytes().all(is_allowed))
}

/// Returns true for a valid directive. Stricter than `tracing_subscriber`, which takes a mistyped level for a target
/// and then logs nothing.
fn is_log_directive(directive: &str) -> bool {
    let is_level = |text: &str| {
        ["off", "error", "warn", "info", "debug", "trace"].iter().any(|level| level.eq_ignore_ascii_case(text))
    };
    match directive.split_once('=') {
        None => is_level(directive),
        Some((target, level)) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
            !target.is_empty() && target.bytes().all(is_name) && is_level(level)
        }
    }
}
