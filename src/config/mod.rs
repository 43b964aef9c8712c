//! Configuration: built-in defaults, a file, environment variables and flags, merged and validated together. It reads
//! only the config file and the file of `store.uri_file`, and does not depend on the parts that it configures.

#[macro_use]
mod sections;

mod bounds;
mod default_file;
mod derived;
mod keys;
mod layers;
mod lists;
mod machine;
mod memory;
mod mqtt;
mod nearest;
mod problem;
mod resolve;
mod settings;
mod store_uri;
pub mod units;
mod value;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::path::Path;

use layers::Layers;

pub use default_file::default_file;
pub use derived::{FLUSHES_MAX, bound, bound_ns};
#[cfg(test)]
pub use derived::{one_shard, small};
pub use keys::*;
pub use mqtt::{BrokerUrl, MqttSettings, MqttVersion};
pub use problem::{ConfigSource, Problem};
pub use sections::Key;
pub use settings::{
    AckLevel, AuthRequired, ClientAuth, CopySettings, GroupSettings, LogFormat, ShownAddresses, UndeclaredUnit,
};
pub use store_uri::{StoreUri, redact_uri};

/// The highest layer: the flags of `hourglass serve` that set keys.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--listen`: `server.listen`.
    pub listen: Option<String>,
    /// `--data-dir`: `server.data_dir`.
    pub data_dir: Option<String>,
    /// `--store`: `store.uri`.
    pub store: Option<String>,
    /// `--memory`: `server.memory`.
    pub memory: Option<String>,
}

/// Merges the defaults, the file, the variables and the flags. Only variables in `env` that begin with `HOURGLASS_` are
/// used; see [`environment`].
///
/// # Errors
/// All problems at once, ordered by layer and by line of the file.
pub fn load(
    file: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    flags: &Overrides,
) -> Result<Settings, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut layers = Layers::defaults(cfg!(feature = "faults"));
    if let Some(path) = file {
        match std::fs::read_to_string(path) {
            Ok(text) => layers.add_file(path, &text, &mut problems),
            Err(error) => {
                layers.is_cut_off = true;
                let source = ConfigSource::File { path: path.to_owned(), line: 0 };
                problems.push(Problem::new(source, format!("cannot be read: {error}")));
            }
        }
    }
    layers.add_environment(env, &mut problems);
    layers.add_flags(flags);
    let settings = resolve::resolve(&layers, machine::memory(), &mut problems);
    problems.sort_by(|one, other| one.source.cmp(&other.source));
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// Returns the environment of this process, for [`load`]. Invalid UTF-8 is replaced. `std::env::vars` would panic on
/// it, even in a variable of another program.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

impl Default for Settings {
    /// Returns the defaults on a machine with enough memory.
    fn default() -> Self {
        resolve::resolve(&Layers::defaults(false), None, &mut Vec::new())
    }
}
