//! Host names of this service, checked for requests without a token. A page whose domain resolves to this machine (DNS
//! rebinding) has the service's own origin for the browser; only the host name of the request reveals it. IP addresses and
//! `localhost` cannot be rebound, so they are always allowed.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// The allowed host names, from `server.hosts`.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// In lower case; `*.example.org` stands for all names below `example.org`, `*` for all names.
    names: Vec<String>,
}

impl Hosts {
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// Returns the requested host, if it is not allowed. A request of HTTP/1.0 may have no host.
    pub(crate) fn foreign_host<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
        // `:authority` in HTTP/2, or the absolute URL of a proxied request.
        let target = uri.authority().map(|authority| authority.as_str());
        let named = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
        [target, named].into_iter().flatten().find(|host| !self.has(host))
    }

    fn has(&self, host: &str) -> bool {
        if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.parse::<Ipv6Addr>().is_ok() && is_port(port);
        }
        let (name, port) = host.find(':').map_or((host, ""), |colon| host.split_at(colon));
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        is_port(port)
            && (name == "localhost"
                || name.parse::<Ipv4Addr>().is_ok()
                || self.names.iter().any(|known| matches(known, &name)))
    }
}

fn matches(known: &str, name: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match known.strip_prefix('*') {
        Some(rest) => is_name && name.len() > rest.len() && name.ends_with(rest),
        None => name == known,
    }
}

/// Returns true for an empty text, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_must_be_known_but_addresses_are_allowed() {
        let none = Hosts::default();
        for host in [
            "localhost",
            "LocalHost:8086",
            "localhost.",
            "127.0.0.1:80",
            "127.9.9.9",
            "192.168.1.5:1",
            "[::1]",
            "[::1]:8086",
        ] {
            assert!(none.has(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.example:8086",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "localhost@evil.example",
            "evil.example:localhost",
            "localhost:8086:1",
            "localhost:x",
            "[::1].evil.example",
            "[localhost]",
            "::1",
            ".",
            "?",
        ] {
            assert!(!none.has(host), "{host}");
        }
        let some = Hosts::new(&["hourglass".to_owned(), "ts.Example.org".to_owned(), "*.pods".to_owned()]);
        for (host, known) in [
            ("hourglass:8087", true),
            ("HOURGLASS", true),
            ("ts.example.org.", true),
            ("localhost", true),
            ("a.b.pods:1", true),
            ("pods", false),
            (".pods", false),
            (".pods", false),
            ("x.hourglass", false),
            ("example.org", false),
        ] {
            assert_eq!(some.has(host), known, "{host}");
        }
        let all = Hosts::new(&["*".to_owned()]);
        assert!(all.has("evil.example") && !all.has("") && !all.has("a@b"));
    }

    #[test]
    fn target_and_header_are_both_checked() {
        let foreign_host = |uri: &str, host: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, host.parse().unwrap());
            }
            Hosts::default().foreign_host(&uri.parse().unwrap(), &headers).map(str::to_owned)
        };
        assert_eq!(foreign_host("/write", None), None);
        assert_eq!(foreign_host("/write", Some("localhost")), None);
        assert_eq!(foreign_host("/write", Some("evil.example")).as_deref(), Some("evil.example"));
        assert_eq!(foreign_host("http://evil.example/write", None).as_deref(), Some("evil.example"));
        assert_eq!(foreign_host("http://evil.example/write", Some("localhost")).as_deref(), Some("evil.example"));
        assert_eq!(foreign_host("http://localhost/write", Some("evil.example")).as_deref(), Some("evil.example"));
    }
}
