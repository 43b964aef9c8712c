//! Logs: text for people, JSON for machines, on stderr. Knows the level and the format it is given;
//! what is logged, and where, is for the other parts.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::config::LogFormat;

/// Sends everything logged from here on to stderr, filtered by `level` (`telemetry.log_level`, which
/// the config has judged). A second call changes nothing.
pub fn start(level: &str, format: LogFormat) {
    let is_terminal = io::stderr().is_terminal();
    let is_json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // By https://no-color.org, any value but the empty one asks for plain text.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    // An error says only that somebody already receives the logs, in a test for example.
    let _ = subscriber(level, is_json, is_terminal && !plain, io::stderr).try_init();
}

/// The receiver of logs. In JSON the event's fields stand at the top, and those of its innermost span
/// (the request, with its id) under `span`; in text the spans stand in front of the message.
fn subscriber<W>(level: &str, is_json: bool, colours: bool, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(writer);
    let lines = if is_json {
        lines.json().flatten_event(true).with_span_list(false).boxed()
    } else {
        lines.with_ansi(colours).boxed()
    };
    // In their traces there are heads of requests, and tokens in those.
    let filter = [level, "h2=info", "hyper=info", "hyper_util=info"].join(",");
    registry().with(EnvFilter::new(filter)).with(lines)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What one request logs that says one thing at info and one at debug.
    fn logged(level: &str, is_json: bool) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        tracing::subscriber::with_default(subscriber(level, is_json, false, move || writer.clone()), || {
            tracing::info_span!("request", id = "r-7").in_scope(|| {
                tracing::info!(pages = 3, "flushed");
                tracing::debug!("in detail");
            });
        });
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn json_carries_the_message_the_fields_and_the_request() {
        let lines = logged("info", true);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        for part in
            [r#""level":"INFO""#, r#""message":"flushed""#, r#""pages":3"#, r#""span":{"id":"r-7","name":"request"}"#]
        {
            assert!(lines.starts_with('{') && lines.contains(part), "{part} is not in {lines}");
        }
    }

    #[test]
    fn text_reads_alone() {
        let lines = logged("info", false);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains(r#"INFO request{id="r-7"}: "#) && lines.ends_with("flushed pages=3\n"), "{lines}");
    }

    #[test]
    fn the_level_decides_what_is_logged() {
        assert_eq!(logged("debug", true).lines().count(), 2);
        assert_eq!(logged("warn", true), "");
        assert_eq!(logged(&format!("off,{}=debug", module_path!()), true).lines().count(), 2);
        assert_eq!(logged("info,other::part=debug", true).lines().count(), 1);
    }
}
