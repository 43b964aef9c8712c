//! What hourglass is told before it starts: built-in defaults, a file, the environment and flags,
//! laid over each other and judged as a whole. Opens nothing but the config file and the file that
//! `store.uri_file` names; knows no part that is configured.

mod layers;
mod nearest;
mod problem;
mod resolve;
mod settings;
mod store_uri;
pub mod units;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::path::{Path, PathBuf};

use layers::Layers;

pub use problem::{Fault, Problem, Reason, Source};
pub use settings::{
    AckSetting, AuthRequired, AuthSettings, ClientAuthSetting, CorsSettings, EmbeddedSettings, FlushSettings,
    HotSettings, IngestSettings, LimitsSettings, LogFormat, LogSettings, PageSettings, QuerySettings, QuotaSettings,
    SensorsSettings, ServerSettings, Settings, StatusSettings, StoreSettings, TcpSettings, TelemetrySettings,
    TlsSettings,
};
pub use store_uri::{StoreUri, redact_uri};

/// Every key with its meaning, unit, default and bounds; what `hourglass config default` prints, and
/// the lowest layer.
pub const DEFAULT: &str = include_str!("../../config/default.toml");

/// The flags of `hourglass serve` that set keys: the highest layer.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--listen`: `server.listen`.
    pub listen: Option<String>,
    /// `--data-dir`: `server.data_dir`.
    pub data_dir: Option<PathBuf>,
    /// `--store`: `store.uri`.
    pub store: Option<String>,
}

/// Lays the defaults, the file, the variables and the flags over each other.
///
/// Of `env`, only `HOURGLASS_SECTION__KEY` is looked at; see [`environment`].
///
/// # Errors
/// All problems at once, in the order of the layers and of the file's lines.
pub fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: &Overrides,
) -> Result<Settings, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut layers = Layers::defaults();
    if let Some(path) = file {
        match std::fs::read_to_string(path) {
            Ok(text) => layers.add_file(path, &text, &mut problems),
            Err(error) => {
                layers.torn = true;
                let source = Source::File { path: path.to_owned(), line: 0 };
                problems.push(Problem { source, reason: Reason::Unreadable { error: error.to_string() } });
            }
        }
    }
    layers.add_environment(env, &mut problems);
    layers.add_flags(flags);
    let settings = resolve::resolve(&layers, &mut problems);
    problems.sort_by(|one, other| one.source.cmp(&other.source));
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// This process's environment for [`load`]. Bytes that are no UTF-8 become replacement characters,
/// where `std::env::vars` would panic on a variable that is none of ours.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

impl Default for Settings {
    /// The settings of [`DEFAULT`] alone.
    fn default() -> Self {
        resolve::resolve(&Layers::defaults(), &mut Vec::new())
    }
}
