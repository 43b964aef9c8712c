//! Sets up logging to stderr, as text for people or JSON for machines.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::log_line::Bounded;
use crate::config::{LogFormat, TelemetrySettings};

/// Sends all log messages from now on to stderr, filtered by `level` (in the form of `telemetry.log_level`, already
/// validated). A second call has no effect.
pub fn start(level: &str, settings: &TelemetrySettings) {
    let format = settings.log_format;
    let is_terminal = io::stderr().is_terminal();
    let is_json = match format {
        LogFormat::Auto => !is_terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    // https://no-color.org: any non-empty value asks for output without colours.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    // Fails only if a subscriber is set already, for example in a test.
    let stderr = Bounded::new(io::stderr, settings.log_line_bytes, is_json);
    let _ = subscriber(level, is_json, is_terminal && !plain, stderr).try_init();
}

/// In JSON, the fields of the event are at the top level, and those of its innermost span (the request, with its id)
/// are under `span`. In text, the spans precede the message.
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
    // At lower levels these crates log request heads, which contain tokens.
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

    /// The log of a request that logs one message at info and one at debug.
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
