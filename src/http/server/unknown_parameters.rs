//! Query parameters that an endpoint does not know. Clients of InfluxDB send some that have no meaning here, so those
//! endpoints ignore them with a warning; but one that is nearly a parameter with an effect is a mistake that would
//! store readings in the wrong place or at the wrong time.

use std::borrow::Cow;

use crate::http::errors::ApiError;
use crate::http::params::Parameter;

/// What clients of InfluxDB send beside the parameters that have an effect here.
const IGNORED: &[&str] = &[
    "org",
    "orgID",
    "orgId",
    "bucketID",
    "bucketId",
    "consistency",
    "u",
    "p",
    "no_sync",
    "async",
    "node_id",
    "pretty",
    "chunked",
    "params",
];
/// Names that a warning lists at most.
const SHOWN: usize = 5;
/// Shorter names are near to too many others.
const NEAR_BYTES_MIN: usize = 4;

/// A warning that names the parameters which are ignored, if there are any.
///
/// # Errors
/// If a name is nearly one of those that have an effect.
pub fn unknown_of(query: Option<&str>, acted_on: &[&str]) -> Result<Option<String>, ApiError> {
    let mut unknown: Vec<Cow<'_, str>> = Vec::new();
    for name in names(query) {
        if acted_on.contains(&&*name) || IGNORED.contains(&&*name) {
            continue;
        }
        if let Some(near) = acted_on.iter().find(|known| is_near(&name, known)) {
            return Err(ApiError::Bad(format!("unknown parameter {name:?}: did you mean {near}?")));
        }
        unknown.push(name);
    }
    let more = unknown.len().saturating_sub(SHOWN);
    unknown.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok((!unknown.is_empty()).then(|| format!("unknown parameters are ignored: {}{more}", unknown.join(", "))))
}

/// # Errors
/// If a parameter is not one of these. Credentials of 1.x clients always are.
pub fn only_known(query: Option<&str>, known: &[Parameter]) -> Result<(), ApiError> {
    let is_known = |name: &str| matches!(name, "u" | "p") || known.iter().any(|parameter| parameter.name == name);
    match names(query).find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
            Err(ApiError::Bad(format!("unknown parameter {name:?}; use one of {}", known.join(", "))))
        }
    }
}

/// The decoded names; those without an escape are not copied.
fn names(query: Option<&str>) -> impl Iterator<Item = Cow<'_, str>> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        percent_encoding::percent_decode_str(pair.split('=').next().unwrap_or_default()).decode_utf8_lossy()
    })
}

/// Whether a name differs from a known one only by its case, or by one or two letters if that leaves most of it.
fn is_near(name: &str, known: &str) -> bool {
    let name = name.to_lowercase();
    name == known
        || known.len() >= NEAR_BYTES_MIN
            && name.len() <= known.len() + 2
            && strsim::osa_distance(&name, known) <= known.len() / 4
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ACTED_ON: &[&str] = &["db", "rp", "bucket", "precision", "accept_partial", "ack"];

    /// `precison=s` was ignored: readings in seconds were stored in 1970.
    #[test]
    fn a_near_miss_is_refused_and_the_rest_is_told() {
        for (query, near) in [
            ("precison=s", "precision"),
            ("db=a&Precision=s", "precision"),
            ("presicion=s", "precision"),
            ("DB=a", "db"),
            ("buckt=a", "bucket"),
            ("accept_partal=true", "accept_partial"),
            ("%70recison=s", "precision"),
        ] {
            let error = unknown_of(Some(query), ACTED_ON).unwrap_err().message();
            assert!(error.ends_with(&format!("did you mean {near}?")), "{query}: {error}");
        }
        // As the clients of InfluxDB 1.x, 2.x and 3, Telegraf, QuestDB and TSBS send them.
        for query in [
            "",
            "db=d&precision=ns&rp=&consistency=all",
            "org=o&bucket=b&precision=ns",
            "orgID=0&bucketID=1&bucket=b",
            "db=d&precision=auto&accept_partial=true&no_sync=false",
            "consistency=one&db=d",
            "db=d&u=root&p=root",
            "precision=n",
        ] {
            assert_eq!(unknown_of(Some(query), ACTED_ON).unwrap(), None, "{query}");
        }
        let told = unknown_of(Some("db=d&colour=red&tz"), ACTED_ON).unwrap();
        assert_eq!(told.as_deref(), Some("unknown parameters are ignored: colour, tz"));
        let many = unknown_of(Some("aaaaa&bbbbb&ccccc&ddddd&eeeee&fffff"), ACTED_ON).unwrap().unwrap();
        assert!(many.ends_with("eeeee and 1 more"), "{many}");
        assert_eq!(unknown_of(None, ACTED_ON).unwrap(), None);
    }
}
