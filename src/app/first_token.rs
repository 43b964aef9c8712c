//! `auth.first_token_file`: the secret of the first token comes from a file, or is written into one, instead of stdout.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

use crate::access::{Presented, Secret};

/// The configuration key.
pub const KEY: &str = "auth.first_token_file";
/// Readable by the service's user only.
const MODE: u32 = 0o600;
/// What users outside the file's group may do.
const OTHERS: u32 = 0o007;
/// More than a token has, so that a wrong path to a large file is no harm.
const READ_BYTES: u64 = 4096;

/// The secret in the file, or a new one in a new file.
#[derive(Debug)]
pub struct SecretFile {
    pub secret: Secret,
    pub text: String,
    is_new: bool,
}

impl SecretFile {
    /// Reads the file; if there is none, makes it with a new secret. Its folder must exist.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        match Self::existing(path)? {
            Some(found) => Ok(found),
            None => Self::create(path),
        }
    }

    /// Finds out whether [`SecretFile::open`] would work, without making the file.
    pub fn probe(path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if Self::existing(path)?.is_none() && !folder.is_dir() {
            bail!("{KEY} = {}: there is no folder {}", path.display(), folder.display());
        }
        Ok(())
    }

    /// The secret in the file; `None` if there is no file.
    fn existing(path: &Path) -> anyhow::Result<Option<Self>> {
        match fs::File::open(path) {
            Ok(file) => Self::read(path, &file).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {KEY} = {}", path.display())),
        }
    }

    fn read(path: &Path, file: &fs::File) -> anyhow::Result<Self> {
        let shown = path.display();
        let mut text = String::new();
        file.take(READ_BYTES).read_to_string(&mut text).with_context(|| format!("reading {KEY} = {shown}"))?;
        let text = text.trim().to_owned();
        let Some(presented) = Presented::parse(&text) else {
            bail!(
                "{KEY} = {shown}: its content is no token: expected hg_, 12 hexadecimal digits, _ and 64 more; remove the \
                 file to have a token made"
            );
        };
        if file.metadata().is_ok_and(|meta| meta.permissions().mode() & OTHERS != 0) {
            tracing::warn!(file = %shown, "every user of this machine may read the first token: chmod 600 (auth.first_token_file)");
        }
        Ok(Self { secret: presented.to_secret(), text, is_new: false })
    }

    fn create(path: &Path) -> anyhow::Result<Self> {
        let (secret, text) = Secret::generate().context("asking for random bytes")?;
        let making = || format!("making {KEY} = {} (its folder must exist)", path.display());
        // Exclusively, so that no link of somebody else decides where the secret goes.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).with_context(making)?;
        let made = Self { secret, text, is_new: true };
        let written = writeln!(file, "{}", made.text).and_then(|()| file.sync_all());
        if written.is_err() {
            made.discard(path);
        }
        written.with_context(making)?;
        Ok(made)
    }

    /// Removes a file that was made for nothing.
    pub fn discard(&self, path: &Path) {
        if self.is_new
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(file = %path.display(), %error, "a file with a token that does not exist cannot be removed");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("first");
        let made = SecretFile::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let read = SecretFile::open(&path).unwrap();
        assert_eq!((&read.secret, &read.text), (&made.secret, &made.text));
        read.discard(&path);
        assert!(path.exists(), "what was there before stays");
        made.discard(&path);
        assert!(!path.exists());
    }

    #[test]
    fn what_holds_no_token_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("first");
        for content in ["", "\n", "secret", "hg_123456789012_short", &"x".repeat(100_000)] {
            fs::write(&path, content).unwrap();
            let error = format!("{:#}", SecretFile::open(&path).unwrap_err());
            assert!(error.contains(KEY) && error.contains("is no token") && error.len() < 400, "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        let error = format!("{:#}", SecretFile::open(&folder.path().join("none/first")).unwrap_err());
        assert!(error.contains("its folder must exist"), "{error}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(SecretFile::open(&link).is_err(), "a link to nothing is not followed");
        assert!(!folder.path().join("elsewhere").exists());
    }
}
