//! The query parameters of a request. Endpoints of the native API refuse unknown parameters. Endpoints for InfluxDB
//! clients ignore them with a warning, because these clients send parameters without meaning here. They refuse a name
//! that is almost that of a known parameter: ignoring a typo could store readings in the wrong place or at the wrong
//! time.

use axum::extract::Query;
use axum::http::Uri;

use super::errors::{ApiError, ApiResult};

/// Parameters of InfluxDB clients that are ignored without a warning.
pub const IGNORED: &[&str] = &[
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
/// Maximum number of names in a warning.
const SHOWN_MAX: usize = 5;
/// Minimum length of a known name for typo detection. Shorter names resemble too many others.
const NEAR_BYTES_MIN: usize = 4;

/// The known parameters of a request, each at most once.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// If the query cannot be decoded.
    pub fn parse_url(uri: &Uri) -> ApiResult<Vec<(String, String)>> {
        let query = Query::try_from_uri(uri);
        query.map(|Query(sent)| sent).map_err(|error| ApiError::Bad(error.body_text()))
    }

    /// Checks that all parameters are known. Drops the credentials of 1.x clients, which were checked already.
    ///
    /// # Errors
    /// If a parameter is unknown or given twice.
    pub fn strict(sent: Vec<(String, String)>, known: &[&str]) -> ApiResult<Self> {
        let mut pairs = Self::default();
        for (name, value) in sent {
            if matches!(&*name, "u" | "p") {
                continue;
            }
            if !known.contains(&&*name) {
                let known = if known.is_empty() { "none".to_owned() } else { format!("one of {}", known.join(", ")) };
                return Err(ApiError::Bad(format!("unknown parameter {name:?}; use {known}")));
            }
            pairs.add(name, value)?;
        }
        Ok(pairs)
    }

    /// Returns the known parameters, and a warning that lists the unknown ones.
    ///
    /// # Errors
    /// If a known parameter is given twice, or an unknown one looks like a typo.
    pub fn lenient(sent: Vec<(String, String)>, known: &[&str]) -> ApiResult<(Self, Option<String>)> {
        let mut pairs = Self::default();
        let mut unknown: Vec<String> = Vec::new();
        for (name, value) in sent {
            if known.contains(&&*name) {
                pairs.add(name, value)?;
                continue;
            }
            if IGNORED.contains(&&*name) {
                continue;
            }
            if let Some(similar) = known.iter().find(|known| is_similar(&name, known)) {
                return Err(ApiError::Bad(format!("unknown parameter {name:?}: did you mean {similar}?")));
            }
            unknown.push(name);
        }
        let more = unknown.len().saturating_sub(SHOWN_MAX);
        unknown.truncate(SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let warning = format!("unknown parameters are ignored: {}{more}", unknown.join(", "));
        Ok((pairs, (!unknown.is_empty()).then_some(warning)))
    }

    fn add(&mut self, name: String, value: String) -> ApiResult<()> {
        if self.raw(&name).is_some() {
            return Err(ApiError::Bad(format!("parameter {name} is given twice")));
        }
        self.0.push((name, value));
        Ok(())
    }

    /// Adds parameters of `others` that are missing here.
    #[must_use]
    pub fn with_defaults(mut self, others: Self) -> Self {
        let missing: Vec<_> = others.0.into_iter().filter(|(name, _)| self.raw(name).is_none()).collect();
        self.0.extend(missing);
        self
    }

    /// Returns the value of a parameter, which may be empty.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a parameter, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a boolean parameter. It is true if it is given without a value.
    ///
    /// # Errors
    /// If the value is neither true nor false.
    pub fn flag(&self, name: &str) -> ApiResult<Option<bool>> {
        match self.raw(name) {
            None => Ok(None),
            Some("" | "true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(other) => Err(ApiError::Bad(format!("parameter {name}: {other:?} is neither true nor false"))),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }
}

/// Returns true if the names differ only in case, or in at most a quarter of the letters.
fn is_similar(name: &str, known: &str) -> bool {
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

    const KNOWN: &[&str] = &["db", "rp", "bucket", "precision", "accept_partial", "ack"];

    fn warning(query: &str) -> ApiResult<Option<String>> {
        let sent = Pairs::parse_url(&format!("/write?{query}").parse().unwrap())?;
        Ok(Pairs::lenient(sent, KNOWN)?.1)
    }

    /// Regression: `precison=s` was ignored, so readings in seconds were stored in 1970.
    #[test]
    fn a_typo_is_refused_and_other_unknown_names_get_a_warning() {
        for (query, known) in [
            ("precison=s", "precision"),
            ("db=a&Precision=s", "precision"),
            ("presicion=s", "precision"),
            ("DB=a", "db"),
            ("buckt=a", "bucket"),
            ("accept_partal=true", "accept_partial"),
            ("%70recison=s", "precision"),
        ] {
            let error = warning(query).unwrap_err().to_string();
            assert!(error.ends_with(&format!("did you mean {known}?")), "{query}: {error}");
        }
        // Queries of the clients of InfluxDB 1.x, 2.x and 3, Telegraf, QuestDB and TSBS.
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
            assert_eq!(warning(query).unwrap(), None, "{query}");
        }
        let text = warning("db=d&colour=red&tz").unwrap();
        assert_eq!(text.as_deref(), Some("unknown parameters are ignored: colour, tz"));
        let many = warning("aaaaa&bbbbb&ccccc&ddddd&eeeee&fffff").unwrap().unwrap();
        assert!(many.ends_with("eeeee and 1 more"), "{many}");
    }
}
