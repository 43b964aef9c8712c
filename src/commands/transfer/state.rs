//! The progress file of an import or export, by which an interrupted one continues.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A progress file.
#[derive(Debug)]
pub struct StateFile(PathBuf);

impl StateFile {
    /// Returns the progress file beside a file, or at a path of its own.
    pub fn new(path: Option<&Path>, file: &Path) -> Self {
        let beside = || {
            let mut name = file.as_os_str().to_owned();
            name.push(".progress");
            PathBuf::from(name)
        };
        Self(path.map_or_else(beside, Path::to_owned))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the state of an earlier run, which must be of the same request.
    pub fn read<T: DeserializeOwned>(&self, request: &str) -> anyhow::Result<Option<T>> {
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.0.display())),
        };
        let (earlier, state): (String, T) =
            serde_json::from_slice(&text).with_context(|| format!("{} is no progress file", self.0.display()))?;
        if earlier != request {
            bail!("{} is of another request ({earlier}): remove it to begin anew", self.0.display());
        }
        Ok(Some(state))
    }

    /// Replaces the state.
    pub fn write<T: Serialize>(&self, request: &str, state: &T) -> anyhow::Result<()> {
        let mut new = self.0.clone().into_os_string();
        new.push(".new");
        let write = || {
            fs::write(&new, serde_json::to_vec(&(request, state))?)?;
            fs::rename(&new, &self.0)?;
            anyhow::Ok(())
        };
        write().with_context(|| format!("writing the progress file {}", self.0.display()))
    }

    pub fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }
}
