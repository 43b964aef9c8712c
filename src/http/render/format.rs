//! Content negotiation: by the parameter `format`, or else by the `Accept` header.

use axum::http::{HeaderMap, header};

use super::guard::Guard;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object.
    Json,
    /// NDJSON: one JSON object per line.
    Lines,
    /// CSV (RFC 4180) with a header row.
    Csv(Guard),
}

/// The names of a format.
struct FormatNames {
    format: Format,
    /// The value of the parameter `format`.
    parameter: &'static str,
    media_types: &'static [&'static str],
}

/// All formats. Among equally preferred ones the first wins.
const FORMATS: [FormatNames; 3] = [
    FormatNames { format: Format::Json, parameter: "json", media_types: &["application/json"] },
    FormatNames {
        format: Format::Lines,
        parameter: "ndjson",
        media_types: &["application/x-ndjson", "application/ndjson", "application/jsonl"],
    },
    FormatNames { format: Format::Csv(Guard::Off), parameter: "csv", media_types: &["text/csv", "application/csv"] },
];

impl Format {
    /// Chooses the format of an answer. The parameter `format` has precedence over `Accept`. A client that accepts no
    /// supported format gets JSON.
    pub fn negotiate(parameters: &Parameters, headers: &HeaderMap) -> ApiResult<Self> {
        let guard = Guard::parse(parameters.get("guard"))?;
        let format = match parameters.get("format") {
            None => {
                let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
                format_from_accept(&accept.collect::<Vec<_>>().join(","))
            }
            Some(name) => {
                let unknown = || format!("parameter format: {name:?} is not one of json, ndjson, csv");
                let known = FORMATS.iter().find(|known| known.parameter == name);
                known.ok_or_else(|| ApiError::Bad(unknown()))?.format
            }
        };
        Ok(if let Self::Csv(_) = format { Self::Csv(guard) } else { format })
    }

    /// The content type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Csv(_) => "text/csv; charset=utf-8; header=present",
        }
    }
}

/// Returns the format with the highest weight in an `Accept` header.
fn format_from_accept(accept: &str) -> Format {
    choose_accepted(accept, Format::Json, FORMATS.map(|known| (known.format, known.media_types)))
}

/// Returns the first choice with the highest weight in an `Accept` header, or `default` if none is accepted. A choice
/// has several media types. A specific type has precedence over a range such as `text/*` (RFC 9110, 12.5.1).
pub(crate) fn choose_accepted<T: Copy>(
    accept: &str,
    default: T,
    choices: impl IntoIterator<Item = (T, &'static [&'static str])>,
) -> T {
    let ranges: Vec<(&str, f32)> = accept.split(',').map(parse_range).collect();
    let weight_of_type = |name: &str| {
        let matching = |(range, weight): &(&str, f32)| Some((specificity(range, name)?, *weight));
        let best = ranges.iter().filter_map(matching).max_by(|a, b| a.0.cmp(&b.0));
        best.map_or(0.0, |(_, weight)| weight)
    };
    let mut best = default;
    let mut best_weight = 0.0;
    for (choice, types) in choices {
        let weight = types.iter().map(|name| weight_of_type(name)).fold(0.0, f32::max);
        if weight > best_weight {
            best = choice;
            best_weight = weight;
        }
    }
    best
}

/// Parses a media range and its weight, 1 by default.
fn parse_range(range: &str) -> (&str, f32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
}

/// Returns the specificity of a range that matches a type; `None` if it does not match.
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
    fn accept_headers_choose_the_format() {
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
            assert_eq!(format_from_accept(accept), expected, "{accept}");
        }
    }
}
