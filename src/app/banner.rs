//! The banner of a command that serves: addresses, the store, and two commands to copy.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use tokio::sync::watch;

use super::data_folder;
use super::listeners::Addresses;
use super::tokens::FirstToken;
use crate::config::Settings;
use crate::telemetry::Paint;

/// A server that has begun to accept requests.
pub struct Ready<'a> {
    pub settings: &'a Settings,
    pub addresses: Addresses,
    /// The first token, if this start created it.
    pub first_token: Option<&'a FirstToken>,
    /// True if requests need a token.
    pub is_enforced: bool,
    pub started: Instant,
    /// The reason for which the service does not answer all requests yet.
    pub waiting: Option<String>,
    /// True once the server stops.
    pub stopping: watch::Receiver<bool>,
}

/// Prints lines to stdout. If stdout is closed, the service runs without a banner.
pub struct Banner {
    paint: Paint,
}

impl Banner {
    pub fn new() -> Self {
        Self { paint: Paint::new(std::io::stdout().is_terminal()) }
    }

    pub fn title(&self, text: &str) {
        self.line(&self.paint.bold(text));
    }

    /// Prints a line with a label of at most 7 characters.
    pub fn row(&self, label: &str, text: &str) {
        self.line(&format!("  {}  {text}", self.paint.dim(&format!("{label:7}"))));
    }

    /// Formats a URL as a link.
    pub fn link(&self, url: &str) -> String {
        self.paint.link(url)
    }

    pub fn line(&self, text: &str) {
        drop(writeln!(std::io::stdout(), "{text}"));
    }
}

/// Prints the banner of `serve`.
pub fn print(ready: &Ready<'_>) {
    let Ready { settings, addresses, first_token, is_enforced, started, waiting, .. } = ready;
    let folder = data_folder::absolute(&settings.server.data_dir);
    let folder = folder.display();
    let store = if settings.store.uri.is_embedded() {
        format!("embedded in {folder}")
    } else {
        format!("{}, with the data folder {folder}", settings.store.uri)
    };
    let base = addresses.base();
    let banner = Banner::new();
    banner.title(&format!("hourglass {}", env!("CARGO_PKG_VERSION")));
    banner.row("store", &store);
    let metrics = addresses.status.map_or_else(|| base.clone(), |status| format!("http://{status}"));
    let root = banner.link(&format!("{base}/"));
    let label = if settings.ui.enabled { "page" } else { "endpoints" };
    banner.row("serving", &format!("{base}  ({label}: {root}, metrics: {metrics}/metrics)"));
    if let Some(https) = addresses.https.filter(|_| addresses.http.is_some()) {
        banner.row("TLS", &format!("https://{https}"));
    }
    if let Some(lines) = addresses.lines {
        banner.row("lines", &format!("tcp://{lines}  (not acked)"));
    }
    match first_token {
        Some(FirstToken::Shown(token)) => {
            banner.row("token", token);
            banner.row("", "named \"first\", with all rights; it is not shown again. To replace it:");
            banner.row("", "hourglass token rotate first");
        }
        Some(FirstToken::InFile(path)) => {
            banner.row("token", &format!("in the file {}, named \"first\", with all rights", path.display()));
        }
        None => {}
    }
    let token = first_token.map_or_else(|| "$TOKEN".to_owned(), FirstToken::in_shell);
    let header = if *is_enforced { format!(" -H \"Authorization: Token {token}\"") } else { String::new() };
    banner.line("  write a reading, and read it back:");
    banner.line(&format!("    curl{header} '{base}/api/v1/readings' -d '{{\"sensor\":\"temp-01\",\"value\":22.5}}'"));
    banner.line(&format!("    curl{header} '{base}/api/v1/readings?sensor=readings,sensor=temp-01'"));
    let milliseconds = started.elapsed().as_millis();
    match waiting {
        None => banner.line(&format!("ready in {milliseconds} ms")),
        Some(reason) => banner.line(&format!("started in {milliseconds} ms, not ready: {reason}")),
    }
}
