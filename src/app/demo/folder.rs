//! The demo's folder: made new, and removed at the end. Of a demo that was killed, the next one removes it. A mark tells these
//! folders from all others, none of which is ever removed; a lock on it tells those in use.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::app::{data_folder, file_modes};

/// The file that makes a folder a demo's, what it says, and its name until it is locked.
const MARK: &str = "hourglass-demo.mark";
const MARK_TEXT: &str = "This folder is of `hourglass demo`, which removes it with everything in it.\n";
const NEW_MARK: &str = "hourglass-demo.mark.new";
/// The names of folders in the system's temp folder begin with it.
const PREFIX: &str = "hourglass-demo-";
/// Most entries of the temp folder that are looked at.
const ENTRIES_MAX: usize = 100_000;

/// The folder of this demo.
#[derive(Debug)]
pub struct DemoFolder {
    path: PathBuf,
    /// Locked; `None` for a folder that stays.
    mark: Option<File>,
}

impl DemoFolder {
    /// Makes a folder: at a path, which has to be new, empty, or left by a demo; else in the system's temp folder. One that is
    /// to be kept gets no mark: it is nobody's to remove from the beginning.
    pub fn make(at: Option<&Path>, is_kept: bool) -> anyhow::Result<Self> {
        let path = match at {
            Some(path) => {
                make_at(path)?;
                data_folder::absolute(path)
            }
            None => make_in(&std::env::temp_dir())?,
        };
        let mark = if is_kept { None } else { Some(set_mark(&path)?) };
        Ok(Self { path, mark })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folders that killed demos of this user left in the system's temp folder; returns those.
    pub fn remove_leftovers(&self) -> Vec<PathBuf> {
        self.leftovers_in(&std::env::temp_dir())
    }

    fn leftovers_in(&self, folder: &Path) -> Vec<PathBuf> {
        let Ok(user) = fs::symlink_metadata(&self.path).map(|meta| meta.uid()) else { return Vec::new() };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let is_named = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
        };
        let is_own = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == user);
        let removed = |path: PathBuf| match leftover(&path) {
            Ok(Leftover::Of(mark)) => remove(&path, mark).is_ok().then_some(path),
            _ => None,
        };
        entries.map(|entry| entry.path()).filter(is_named).filter(is_own).filter_map(removed).collect()
    }

    /// Removes it, unless it is to be kept.
    pub fn end(self) -> anyhow::Result<()> {
        let Some(mark) = self.mark else { return Ok(()) };
        remove(&self.path, mark).with_context(|| format!("removing the demo's folder {}", self.path.display()))
    }
}

/// Makes a folder that holds data a data folder like others: somebody serves from it, so no demo may remove it.
pub fn adopt(folder: &Path) -> io::Result<()> {
    match leftover(folder)? {
        Leftover::Of(_) => fs::remove_file(folder.join(MARK)),
        Leftover::InUse | Leftover::None => Ok(()),
    }
}

/// What a folder was left by.
enum Leftover {
    /// A demo that is gone: the mark, now locked by this process.
    Of(File),
    /// A demo that runs.
    InUse,
    /// No demo.
    None,
}

/// Looks at a folder without following links: neither the folder nor the mark may be one.
fn leftover(folder: &Path) -> io::Result<Leftover> {
    let path = folder.join(MARK);
    let is_there = |is_right: fn(&fs::Metadata) -> bool, path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) => Ok(is_right(&meta)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    };
    if !is_there(fs::Metadata::is_dir, folder)? || !is_there(fs::Metadata::is_file, &path)? {
        return Ok(Leftover::None);
    }
    let mark = File::open(&path)?;
    let mut text = String::new();
    (&mark).take(MARK_TEXT.len() as u64 + 1).read_to_string(&mut text)?;
    if text != MARK_TEXT {
        return Ok(Leftover::None);
    }
    match mark.try_lock() {
        Ok(()) => Ok(Leftover::Of(mark)),
        Err(fs::TryLockError::WouldBlock) => Ok(Leftover::InUse),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Removes a demo's folder: the mark goes last but for the folder, so that what a kill leaves is a demo's still.
fn remove(folder: &Path, mark: File) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_file(folder.join(MARK))?;
    drop(mark);
    fs::remove_dir(folder)
}

fn make_at(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match leftover(path).with_context(|| format!("reading {shown}"))? {
        Leftover::Of(mark) => {
            remove(path, mark).with_context(|| format!("removing {shown}, left by an earlier demo"))?
        }
        Leftover::InUse => bail!("another demo runs in {shown}: name another folder with --data-dir"),
        Leftover::None => {
            let is_empty = match fs::read_dir(path) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(error).with_context(|| format!("reading {shown}")),
            };
            if !is_empty {
                bail!(
                    "{shown} is not empty, and not of a demo: it is left as it is; name a new folder with --data-dir"
                );
            }
        }
    }
    file_modes::make_private(path)
}

/// Makes a new folder for this user only.
fn make_in(folder: &Path) -> anyhow::Result<PathBuf> {
    const TRIES: usize = 10;
    let mut tries = 0;
    loop {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("reading the system's random bytes: {error}"))?;
        let path = folder.join(format!("{PREFIX}{:08x}", u32::from_be_bytes(random)));
        tries += 1;
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < TRIES => {}
            Err(error) => return Err(error).with_context(|| format!("creating {}", path.display())),
        }
    }
}

/// Marks a folder. The mark has its name only once it is locked, so that no other demo takes it for a leftover.
fn set_mark(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join(NEW_MARK);
    let marked = || {
        let mut mark = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        mark.write_all(MARK_TEXT.as_bytes())?;
        mark.lock()?;
        fs::rename(&path, folder.join(MARK))?;
        Ok::<_, io::Error>(mark)
    };
    marked().with_context(|| format!("marking the folder {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that a killed demo left in `parent`.
    fn left_in(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        drop(DemoFolder::make(Some(&path), false).expect("new").mark);
        fs::create_dir(path.join("log")).expect("new");
        fs::write(path.join("log/file"), "x").expect("written");
        path
    }

    #[test]
    fn it_is_removed_with_everything_in_it_unless_it_is_kept() {
        let parent = tempfile::tempdir().expect("a folder");
        for (name, is_kept) in [("gone", false), ("kept", true)] {
            let folder = DemoFolder::make(Some(&parent.path().join(name)), is_kept).expect("new");
            let path = folder.path().to_owned();
            fs::create_dir(path.join("log")).expect("new");
            fs::write(path.join("log/file"), "x").expect("written");
            folder.end().expect("removed");
            assert_eq!(path.join("log/file").exists(), is_kept, "{name}");
            assert_eq!(path.exists(), is_kept, "{name}");
        }
    }

    #[test]
    fn what_a_killed_demo_left_goes_and_what_is_in_use_or_foreign_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = DemoFolder::make(Some(&parent.path().join("own")), false).expect("new");
        let left = left_in(parent.path(), "hourglass-demo-1");
        let running = DemoFolder::make(Some(&parent.path().join("hourglass-demo-2")), false).expect("new");
        let unmarked = parent.path().join("hourglass-demo-3");
        fs::create_dir(&unmarked).expect("new");
        fs::write(unmarked.join("hourglass.redb"), "mine").expect("written");
        let other_text = left_in(parent.path(), "hourglass-demo-4");
        fs::write(other_text.join(MARK), "mine").expect("written");
        let linked_mark = parent.path().join("hourglass-demo-5");
        fs::create_dir(&linked_mark).expect("new");
        std::os::unix::fs::symlink(left.join(MARK), linked_mark.join(MARK)).expect("linked");
        let linked = parent.path().join("hourglass-demo-6");
        std::os::unix::fs::symlink(left_in(parent.path(), "elsewhere"), &linked).expect("linked");
        let other_name = left_in(parent.path(), "data");
        assert_eq!(own.leftovers_in(parent.path()), std::slice::from_ref(&left));
        assert!(!left.exists());
        for stays in [running.path(), &unmarked, &other_text, &linked_mark, &linked, &other_name] {
            assert!(stays.exists(), "{}", stays.display());
        }
        assert!(parent.path().join("elsewhere/log/file").exists());
    }

    #[test]
    fn a_folder_that_is_named_must_be_new_empty_or_left_by_a_demo() {
        let parent = tempfile::tempdir().expect("a folder");
        let left = left_in(parent.path(), "left");
        let again = DemoFolder::make(Some(&left), false).expect("taken over");
        assert!(!left.join("log").exists());
        let refused = DemoFolder::make(Some(&left), false).expect_err("in use").to_string();
        assert!(refused.contains("another demo runs in"), "{refused}");
        drop(again);
        let foreign = parent.path().join("foreign");
        fs::create_dir(&foreign).expect("new");
        DemoFolder::make(Some(&foreign), true).expect("empty");
        fs::write(foreign.join("file"), "mine").expect("written");
        let refused = DemoFolder::make(Some(&foreign), false).expect_err("not empty").to_string();
        assert!(refused.contains("is not empty, and not of a demo"), "{refused}");
        assert!(foreign.join("file").exists());
        assert!(DemoFolder::make(Some(&foreign.join("file")), false).is_err(), "a file");
    }

    /// Somebody may like what a killed demo left, and serve from it.
    #[test]
    fn a_folder_that_is_served_from_is_no_longer_a_demos() {
        let parent = tempfile::tempdir().expect("a folder");
        let own = DemoFolder::make(Some(&parent.path().join("own")), false).expect("new");
        let left = left_in(parent.path(), "hourglass-demo-1");
        adopt(&left).expect("adopted");
        adopt(&parent.path().join("nowhere")).expect("nothing to do");
        assert_eq!(own.leftovers_in(parent.path()), Vec::<PathBuf>::new());
        assert!(left.join("log/file").exists());
    }
}
