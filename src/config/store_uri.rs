//! The address of the store, and its display without credentials.

use std::fmt;

/// The text in place of secrets.
const HIDDEN: &str = "***";

/// The address of the store: the word `embedded`, or a MongoDB URI. `Debug` and `Display` hide credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUri(String);

impl StoreUri {
    /// Parses an address. Returns `None` if the text is not `embedded` and has no MongoDB scheme. The driver checks the
    /// rest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let address = text.strip_prefix("mongodb://").or_else(|| text.strip_prefix("mongodb+srv://"));
        (text == "embedded" || address.is_some_and(|rest| !rest.is_empty())).then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.0 == "embedded"
    }

    /// Returns the text with its credentials, for the driver only. Never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns true if the user or password has a character that must be escaped in a URI, so that the driver would
    /// read another address.
    #[must_use]
    pub fn is_unescaped(&self) -> bool {
        let Some((_, rest)) = self.0.split_once("://") else { return false };
        let Some((login, _)) = rest.rsplit_once('@').filter(|(login, _)| !login.contains("/?")) else { return false };
        login.contains(['@', '/', '?', '#']) || login.matches(':').count() > 1
    }

    /// Returns the identity of the store: the address without credentials and options, with sorted hosts. The WAL
    /// records it, so that its readings are never flushed to another store.
    #[must_use]
    pub fn identity(&self) -> String {
        let text = redact_uri(&self.0).replace(&format!("{HIDDEN}@"), "");
        let address = text.split('?').next().unwrap_or_default();
        let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let mut hosts: Vec<&str> = hosts.split(',').collect();
        hosts.sort_unstable();
        format!("{scheme}://{}/{database}", hosts.join(","))
    }
}

impl fmt::Display for StoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_uri(&self.0))
    }
}

impl fmt::Debug for StoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&redact_uri(&self.0), f)
    }
}

/// Removes `user:password@` and the values of options that contain secrets.
///
/// A URI with a mistake must not leak its password either: a password may contain an unescaped `@`, `/` or `?`, so
/// everything up to the last `@` is hidden. A URI with an `@` in an option therefore shows only its scheme.
#[must_use]
pub fn redact_uri(uri: &str) -> String {
    let Some(separator) = uri.rfind('@') else {
        return redact_options(uri);
    };
    let scheme = uri.find("://").map_or("", |end| &uri[..end + "://".len()]);
    let is_scheme = scheme.trim_end_matches("://").bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
    let scheme = if is_scheme { scheme } else { "" };
    // An `@` after a `?` may be inside a secret option, so hide the rest too.
    let rest = if uri[..separator].contains('?') { "" } else { &uri[separator..] };
    format!("{scheme}{HIDDEN}{}", redact_options(rest))
}

/// Hides the values of options such as `tlsCertificateKeyFilePassword` and
/// `authMechanismProperties=AWS_SESSION_TOKEN:…`.
fn redact_options(text: &str) -> String {
    let Some((address, options)) = text.split_once('?') else {
        return text.to_owned();
    };
    let shown = options.split('&').map(|option| {
        let name = option.split('=').next().unwrap_or_default();
        let lower = name.to_ascii_lowercase();
        let secret = ["password", "authmechanismproperties", "token", "secret"].iter().any(|part| lower.contains(part));
        if secret { format!("{name}={HIDDEN}") } else { option.to_owned() }
    });
    format!("{address}?{}", shown.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_ignores_credentials_and_the_order_of_hosts() {
        let identity = |uri: &str| StoreUri::parse(uri).unwrap().identity();
        assert_eq!(identity("embedded"), "embedded");
        assert_eq!(identity("mongodb://u:p@h2,h1:2/db?replicaSet=rs"), "mongodb://h1:2,h2/db");
        assert_eq!(identity("mongodb://h1:2,h2/db"), "mongodb://h1:2,h2/db");
        assert_ne!(identity("mongodb://h1/db"), identity("mongodb://h1/other"));
    }

    #[test]
    fn credentials_are_hidden() {
        let cases = [
            ("embedded", "embedded"),
            ("mongodb://localhost:27017/db", "mongodb://localhost:27017/db"),
            ("mongodb://user:pw@h1:1,h2:2/db?replicaSet=rs0", "mongodb://***@h1:1,h2:2/db?replicaSet=rs0"),
            ("mongodb+srv://user:pw@cluster.example.org", "mongodb+srv://***@cluster.example.org"),
            ("mongodb://user@host", "mongodb://***@host"),
            (
                "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=pw",
                "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=***",
            ),
            (
                "mongodb://k:pw@h/?authMechanismProperties=AWS_SESSION_TOKEN:pw",
                "mongodb://***@h/?authMechanismProperties=***",
            ),
        ];
        for (uri, shown) in cases {
            assert_eq!(redact_uri(uri), shown);
        }
    }

    #[test]
    fn a_mistaken_uri_hides_its_password_too() {
        let cases = [
            "mongodb://user:pw@rd@host",
            "mongodb://user:x/pw@host",
            "mongodb://user:x://pw@host",
            "mongodb:/user:pw@host",
            "user:pw@host",
            "user:pw://@host",
            "user:pw@mongodb://host",
        ];
        for uri in cases {
            let shown = redact_uri(uri);
            assert!(!shown.contains("pw") && shown.contains("host"), "{uri} shows as {shown}");
        }
        for uri in ["mongodb://user:x?pw@host", "mongodb://host/?proxyPassword=x@pw"] {
            assert_eq!(redact_uri(uri), "mongodb://***");
        }
    }

    /// Regression: `config check` accepted `user:p@ss@host`.
    #[test]
    fn unescaped_characters_in_a_login_are_detected() {
        for (uri, unescaped) in [
            ("mongodb://user:p@ss@host", true),
            ("mongodb://user:p/ss@host/d", true),
            ("mongodb://user:p:ss@host/d", true),
            ("mongodb://user:p%40ss@host/d", false),
            ("mongodb://user@host/?replicaSet=rs", false),
            ("mongodb://host/?authMechanismProperties=A:x@y", false),
            ("mongodb://host", false),
            ("embedded", false),
        ] {
            assert_eq!(StoreUri::parse(uri).unwrap().is_unescaped(), unescaped, "{uri}");
        }
    }

    #[test]
    fn only_known_stores_are_accepted() {
        for good in ["embedded", "mongodb://h", "mongodb+srv://h"] {
            assert_eq!(StoreUri::parse(good).unwrap().expose(), good);
        }
        for bad in ["", "Embedded", "embedded ", "mongo://h", "mongodb://", "mongodb+srv://", "localhost:27017", "redb"]
        {
            assert_eq!(StoreUri::parse(bad), None, "{bad:?}");
        }
        assert!(StoreUri::parse("embedded").unwrap().is_embedded());
        assert!(!StoreUri::parse("mongodb://embedded").unwrap().is_embedded());
    }

    #[test]
    fn neither_debug_nor_display_show_credentials() {
        let uri = StoreUri::parse("mongodb://user:pw@host").unwrap();
        assert_eq!(format!("{uri:?} {uri}"), "\"mongodb://***@host\" mongodb://***@host");
    }
}
