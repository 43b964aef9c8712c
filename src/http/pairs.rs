//! The query parameters of a request, by name. Endpoints of the native API refuse those that they do not know. Clients
//! of InfluxDB send some that have no meaning here, so their endpoints ignore them with a warning; but one that is nearly
//! a parameter with an effect is a mistake that would store readings in the wrong place or at the wrong time.

use axum::extract::Query;
use axum::http::Uri;

use super::errors::{ApiError, ApiResult};

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

/// Parameters that have an effect, each given at most once.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// All pairs of a URL.
    ///
    /// # Errors
    /// If the query cannot be decoded.
    pub fn of_url(uri: &Uri) -> ApiResult<Vec<(String, String)>> {
        let query = Query::try_from_uri(uri);
        query.map(|Query(sent)| sent).map_err(|error| ApiError::Bad(error.body_text()))
    }

    /// The pairs of a request that has no others than these; credentials of 1.x clients, who are authenticated already,
    /// are left out.
    ///
    /// # Errors
    /// If a parameter is not known, or given twice.
    pub fn only_known(sent: Vec<(String, String)>, known: &[&str]) -> ApiResult<Self> {
        let mut pairs = Self::default();
        for (name, value) in sent {
            if matches!(&*name, "u" | "p") {
                continue;
            }
            if !known.contains(&&*name) {
                return Err(ApiError::Bad(format!("unknown parameter {name:?}; use one of {}", known.join(", "))));
            }
            pairs.add(name, value)?;
        }
        Ok(pairs)
    }

    /// The known pairs of a request, and a warning that names the others, if there are any.
    ///
    /// # Errors
    /// If a known parameter is given twice, or another one is nearly known.
    pub fn known_of(sent: Vec<(String, String)>, known: &[&str]) -> ApiResult<(Self, Option<String>)> {
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
            if let Some(near) = known.iter().find(|known| is_near(&name, known)) {
                return Err(ApiError::Bad(format!("unknown parameter {name:?}: did you mean {near}?")));
            }
            unknown.push(name);
        }
        let more = unknown.len().saturating_sub(SHOWN);
        unknown.truncate(SHOWN);
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

    /// These pairs, and others for missing ones.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        let missing: Vec<_> = others.0.into_iter().filter(|(name, _)| self.raw(name).is_none()).collect();
        self.0.extend(missing);
        self
    }

    /// A value, which may be empty.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A value that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// A switch, which is on if it is given without a value.
    ///
    /// # Errors
    /// If its value is neither true nor false.
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

    fn warning(query: &str) -> ApiResult<Option<String>> {
        let sent = Pairs::of_url(&format!("/write?{query}").parse().unwrap())?;
        Ok(Pairs::known_of(sent, ACTED_ON)?.1)
    }

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
            let error = warning(query).unwrap_err().to_string();
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
            assert_eq!(warning(query).unwrap(), None, "{query}");
        }
        let told = warning("db=d&colour=red&tz").unwrap();
        assert_eq!(told.as_deref(), Some("unknown parameters are ignored: colour, tz"));
        let many = warning("aaaaa&bbbbb&ccccc&ddddd&eeeee&fffff").unwrap().unwrap();
        assert!(many.ends_with("eeeee and 1 more"), "{many}");
    }
}
