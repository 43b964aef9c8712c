//! Sets up logging to stderr, as text or JSON.

use std::io::{self, IsTerminal};

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use super::log_line::BoundedWriter;
use super::paint::Paint;
use crate::config::{LogFormat, TelemetrySettings};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    /// Text with all details, for a file.
    Text,
    /// Short text for a terminal: the time of day, the level, the message and its fields.
    Terminal {
        colours: bool,
    },
}

/// Starts logging to stderr, filtered by `level`, which is a valid value of `telemetry.log_level`. A second call has no
/// effect.
pub fn start(level: &str, settings: &TelemetrySettings) {
    let is_terminal = io::stderr().is_terminal();
    let form = match settings.log_format {
        LogFormat::Json => Form::Json,
        LogFormat::Auto | LogFormat::Text if is_terminal => Form::Terminal { colours: Paint::new(true).is_on },
        LogFormat::Auto => Form::Json,
        LogFormat::Text => Form::Text,
    };
    let limit = settings.log_line_bytes;
    let stderr = move || BoundedWriter { inner: io::stderr(), limit, is_json: form == Form::Json };
    // This fails only if a subscriber is set already, for example in a test.
    let _ = subscriber(level, form, stderr).try_init();
}

/// Returns the subscriber. In JSON, the fields of an event are at the top level, and those of its innermost span (the
/// request with its id) under `span`. In text, the spans precede the message. On a terminal, their fields follow it.
fn subscriber<W>(level: &str, form: Form, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // Ignore failed writes, for example to a closed terminal: reporting them to stderr would panic.
    let lines = fmt::layer().with_writer(writer).log_internal_errors(false);
    let lines = match form {
        Form::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        Form::Text => lines.with_ansi(false).boxed(),
        Form::Terminal { colours } => {
            lines.compact().with_ansi(colours).with_target(false).with_timer(TimeOfDay).boxed()
        }
    };
    // At lower levels these crates log request heads, which contain tokens.
    let filter = [level, "h2=info", "hyper=info", "hyper_util=info"].join(",");
    registry().with(EnvFilter::new(filter)).with(lines)
}

/// Formats the time of day in UTC.
struct TimeOfDay;

impl FormatTime for TimeOfDay {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        let second = crate::clock::now_seconds().rem_euclid(86_400);
        write!(out, "{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
    }
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

    /// Returns the log of a request with one message at info and one at debug.
    fn format_event(level: &str, form: Form) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        tracing::subscriber::with_default(subscriber(level, form, move || writer.clone()), || {
            tracing::info_span!("request", id = "r-7").in_scope(|| {
                tracing::info!(pages = 3, "flushed");
                tracing::debug!("in detail");
            });
        });
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn json_carries_the_message_the_fields_and_the_request() {
        let lines = format_event("info", Form::Json);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        for part in
            [r#""level":"INFO""#, r#""message":"flushed""#, r#""pages":3"#, r#""span":{"id":"r-7","name":"request"}"#]
        {
            assert!(lines.starts_with('{') && lines.contains(part), "{part} is not in {lines}");
        }
    }

    #[test]
    fn text_reads_alone() {
        let lines = format_event("info", Form::Text);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains(r#"INFO request{id="r-7"}: "#) && lines.ends_with("flushed pages=3\n"), "{lines}");
    }

    /// Regression: a terminal showed the date, microseconds, and the module of each message.
    #[test]
    fn a_terminal_gets_the_time_of_day_the_message_and_its_fields() {
        let line = format_event("info", Form::Terminal { colours: false });
        assert_eq!(line.lines().count(), 1, "{line}");
        let (time, rest) = line.split_once(' ').unwrap();
        assert_eq!((time.len(), time.ends_with('Z')), (9, true), "{line}");
        assert!(rest.trim_start().starts_with("INFO ") && rest.contains("flushed pages=3"), "{line}");
        assert!(rest.contains(r#"id="r-7""#) && !rest.contains("telemetry"), "{line}");
        let coloured = format_event("info", Form::Terminal { colours: true });
        assert!(coloured.contains("\x1b[32m INFO\x1b[0m"), "{coloured:?}");
    }

    #[test]
    fn the_level_decides_what_is_logged() {
        assert_eq!(format_event("debug", Form::Json).lines().count(), 2);
        assert_eq!(format_event("warn", Form::Json), "");
        assert_eq!(format_event(&format!("off,{}=debug", module_path!()), Form::Json).lines().count(), 2);
        assert_eq!(format_event("info,other::part=debug", Form::Json).lines().count(), 1);
    }
}
