//! `auth.first_token_file`: reads the secret of the first token from a file, or writes it into one instead of stdout.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

use crate::access::{PresentedToken, Secret};

/// The configuration key.
pub const KEY: &str = "auth.first_token_file";
/// Mode of the file: only its owner can read it.
const MODE: u32 = 0o600;
/// Mode bits of users outside the file's group.
const OTHERS: u32 = 0o007;
/// Maximum number of bytes to read. A token has fewer, and a wrong path to a large file is harmless.
const READ_BYTES_MAX: u64 = 4096;

/// The secret in a file.
#[derive(Debug)]
pub struct SecretFile {
    pub secret: Secret,
    pub text: String,
    is_new: bool,
}

impl SecretFile {
    /// Reads the file, or creates it with a new secret if it is missing. Its folder must exist.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        match Self::open_existing(path)? {
            Some(found) => Ok(found),
            None => Self::create(path),
        }
    }

    /// Checks that [`SecretFile::open`] would work, without creating the file.
    pub fn probe(path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if Self::open_existing(path)?.is_none() && !folder.is_dir() {
            bail!("{KEY} = {}: there is no folder {}", path.display(), folder.display());
        }
        Ok(())
    }

    /// Reads the file. Returns `None` if it is missing.
    fn open_existing(path: &Path) -> anyhow::Result<Option<Self>> {
        match fs::File::open(path) {
            Ok(file) => Self::read(path, &file).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {KEY} = {}", path.display())),
        }
    }

    fn read(path: &Path, file: &fs::File) -> anyhow::Result<Self> {
        let shown = path.display();
        let mut text = String::new();
        file.take(READ_BYTES_MAX).read_to_string(&mut text).with_context(|| format!("reading {KEY} = {shown}"))?;
        let text = text.trim().to_owned();
        let Some(presented) = PresentedToken::parse(&text) else {
            bail!(
                "{KEY} = {shown}: its content is no token: expected hg_, 12 hexadecimal digits, _ and 64 more; remove the \
                 file, so that a token is created"
            );
        };
        if file.metadata().is_ok_and(|meta| meta.permissions().mode() & OTHERS != 0) {
            tracing::warn!(file = %shown, "every user of this machine can read the first token: chmod 600 (auth.first_token_file)");
        }
        Ok(Self { secret: presented.to_secret(), text, is_new: false })
    }

    fn create(path: &Path) -> anyhow::Result<Self> {
        let (secret, text) = Secret::generate().context("asking for random bytes")?;
        let context = || format!("creating {KEY} = {} (its folder must exist)", path.display());
        // Create the file exclusively, so that another user's link cannot redirect the secret.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).with_context(context)?;
        let made = Self { secret, text, is_new: true };
        let written = writeln!(file, "{}", made.text).and_then(|()| file.sync_all());
        if written.is_err() {
            made.discard(path);
        }
        written.with_context(context)?;
        Ok(made)
    }

    /// Removes the file if this process created it.
    pub fn discard(&self, path: &Path) {
        if self.is_new
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(file = %path.display(), %error, "the file of an unused first token cannot be removed: remove it");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_created_once_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("first");
        let made = SecretFile::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let read = SecretFile::open(&path).unwrap();
        assert_eq!((&read.secret, &read.text), (&made.secret, &made.text));
        read.discard(&path);
        assert!(path.exists(), "a file that existed before remains");
        made.discard(&path);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_without_a_token_is_refused_and_unchanged() {
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
