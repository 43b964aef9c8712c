//! The format of an answer: by `format=`, or else by the `Accept` header.

use axum::http::{HeaderMap, header};

use super::guard::Guard;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object.
    Json,
    /// A JSON object per line.
    Lines,
    /// RFC 4180, with a header row.
    Csv(Guard),
}

/// The names of each format in `format=` and in headers. Among equally preferred formats the first one wins.
const NAMES: [(Format, &str, &[&str]); 3] = [
    (Format::Json, "json", &["application/json"]),
    (Format::Lines, "ndjson", &["application/x-ndjson", "application/ndjson", "application/jsonl"]),
    (Format::Csv(Guard::Off), "csv", &["text/csv", "application/csv"]),
];

impl Format {
    /// The format that a request asks for. `format=` has precedence; a client that accepts none of them gets JSON, the
    /// format of errors.
    pub fn of(parameters: &Parameters, headers: &HeaderMap) -> ApiResult<Self> {
        let guard = Guard::named(parameters.get("guard"))?;
        let format = match parameters.get("format") {
            None => {
                let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
                accepted(&accept.collect::<Vec<_>>().join(","))
            }
            Some(name) => {
                let named = NAMES.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format);
                let unknown = || format!("parameter format: {name:?} is not one of json, ndjson, csv");
                named.ok_or_else(|| ApiError::Bad(unknown()))?
            }
        };
        Ok(if let Self::Csv(_) = format { Self::Csv(guard) } else { format })
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Csv(_) => "text/csv; charset=utf-8; header=present",
        }
    }
}

/// The format with the highest weight in an `Accept` header.
fn accepted(accept: &str) -> Format {
    preferred(accept, Format::Json, NAMES.map(|(format, _, types)| (format, types)))
}

/// The first of those with the highest weight in an `Accept` header, `default` if none is accepted. A specific type has
/// precedence over a range such as `text/*` (RFC 9110, 12.5.1).
pub(crate) fn preferred<T: Copy>(
    accept: &str,
    default: T,
    choices: impl IntoIterator<Item = (T, &'static [&'static str])>,
) -> T {
    let ranges: Vec<(&str, f32)> = accept.split(',').map(weighed).collect();
    let liking = |types: &[&str]| {
        let of_type = |name: &str| {
            let fits = |(range, weight): &(&str, f32)| Some((specificity(range, name)?, *weight));
            let best = ranges.iter().filter_map(fits).max_by(|a, b| a.0.cmp(&b.0));
            best.map_or(0.0, |(_, weight)| weight)
        };
        types.iter().map(|name| of_type(name)).fold(0.0, f32::max)
    };
    let (mut best, mut most) = (default, 0.0);
    for (choice, types) in choices {
        let liking = liking(types);
        if liking > most {
            (best, most) = (choice, liking);
        }
    }
    best
}

/// A media range and its weight, 1 by default.
fn weighed(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
}

/// How specifically a range matches a type; `None` if it does not.
fn specificity(range: &str, name: &str) -> Option<u8> {
    let family = |text: &str| text.split('/').next().unwrap_or_default().to_ascii_lowercase();
    if range.eq_ignore_ascii_case(name) {
        Some(2)
    } else if range.ends_with("/*") && family(range) == family(name) {
        Some(1)
    } else {
        (range == "*/*").then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_decides() {
        for (accept, expected) in [
            ("", Format::Json),
            ("*/*", Format::Json),
            ("text/csv", Format::Csv(Guard::Off)),
            ("Text/CSV; charset=utf-8", Format::Csv(Guard::Off)),
            ("text/*", Format::Csv(Guard::Off)),
            ("application/*", Format::Json),
            ("application/x-ndjson", Format::Lines),
            ("application/jsonl, */*;q=0.1", Format::Lines),
            ("text/csv;q=0.5, application/json;q=0.4", Format::Csv(Guard::Off)),
            ("text/csv, application/json", Format::Json),
            ("application/json;q=0, */*", Format::Lines),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Format::Json),
            ("image/png", Format::Json),
        ] {
            assert_eq!(accepted(accept), expected, "{accept}");
        }
    }
}
