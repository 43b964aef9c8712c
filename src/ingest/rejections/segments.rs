//! The folder of rejected lines: files of one JSON object per line, written one after the other and dropped oldest first. That a
//! line was replayed stands behind it, so it is never dropped before the line.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lines::{KeptLine, LineOptions};

/// The bytes are divided into so many segments.
const SEGMENTS: u64 = 8;
/// One token's lines take at most this part of all bytes, so that a sender of many bad lines leaves room for others'.
const SHARE: u64 = 2;

/// A line of a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Entry {
    Line(Box<KeptLine>),
    /// Ids of lines that were replayed.
    Done(Vec<u64>),
}

#[derive(Debug, Default)]
struct Segment {
    path: PathBuf,
    bytes: u64,
    /// When the last of its lines was received.
    newest: i64,
    /// Bytes of lines by the token's name, empty without one.
    by_token: HashMap<String, u64>,
}

impl Segment {
    fn note(&mut self, entry: &Entry, bytes: u64) {
        self.bytes += bytes;
        if let Entry::Line(line) = entry {
            self.newest = self.newest.max(line.received);
            *self.by_token.entry(token_of(line).to_owned()).or_default() += bytes;
        }
    }
}

/// All segments, oldest first.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    max_bytes: u64,
    held: VecDeque<Segment>,
    /// The file of the last one, if this process writes to it.
    current: Option<BufWriter<File>>,
}

fn token_of(line: &KeptLine) -> &str {
    line.token.as_ref().map_or("", |token| &token.name)
}

impl Segments {
    /// What the folder has, and the greatest id. What cannot be read is left out.
    pub fn open(options: &LineOptions) -> (Self, u64) {
        let entries = fs::read_dir(&options.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        paths.sort_unstable();
        let (mut held, mut last) = (VecDeque::new(), 0);
        for path in paths {
            let mut segment = Segment { newest: i64::MIN, ..Segment::default() };
            let read = each_of(&path, |entry, bytes| {
                if let Entry::Line(line) = &entry {
                    last = last.max(line.id);
                }
                segment.note(&entry, bytes);
                true
            });
            if let Err(error) = read {
                tracing::warn!(path = %path.display(), %error, "rejected lines cannot be read; they are left out");
                continue;
            }
            held.push_back(Segment { path, ..segment });
        }
        (Self { folder: options.folder.clone(), max_bytes: options.max_bytes, held, current: None }, last)
    }

    /// Adds a line, unless its token has its share already.
    pub fn add(&mut self, line: KeptLine) -> io::Result<()> {
        let token = token_of(&line);
        let held: u64 = self.held.iter().filter_map(|segment| segment.by_token.get(token)).sum();
        if held >= self.max_bytes / SHARE {
            return Ok(());
        }
        let id = line.id;
        self.append(&Entry::Line(Box::new(line)), id)
    }

    fn append(&mut self, entry: &Entry, id: u64) -> io::Result<()> {
        let mut text = serde_json::to_vec(entry)?;
        text.push(b'\n');
        let is_full = self.held.back().is_some_and(|segment| segment.bytes >= self.max_bytes / SEGMENTS);
        if self.current.is_none() || is_full {
            self.begin(id)?;
        }
        if let (Some(file), Some(segment)) = (&mut self.current, self.held.back_mut()) {
            file.write_all(&text)?;
            segment.note(entry, text.len() as u64);
        }
        while self.held.len() > 1 && self.held.iter().map(|segment| segment.bytes).sum::<u64>() > self.max_bytes {
            self.drop_oldest()?;
        }
        Ok(())
    }

    /// Begins a segment, of lines from this id on.
    fn begin(&mut self, id: u64) -> io::Result<()> {
        self.flush()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut path = self.folder.join(format!("{id:020}.jsonl"));
        // What was replayed is noted behind the last line.
        while self.held.back().is_some_and(|last| last.path >= path) {
            let last = self.held.back().and_then(|last| last.path.file_stem()?.to_str()?.parse::<u64>().ok());
            path = self.folder.join(format!("{:020}.jsonl", last.unwrap_or(id).saturating_add(1)));
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        self.current = Some(BufWriter::new(file));
        self.held.push_back(Segment { path, newest: i64::MIN, ..Segment::default() });
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.held.pop_front() else { return Ok(()) };
        if self.held.is_empty() {
            self.current = None;
        }
        fs::remove_file(&oldest.path)
    }

    /// Drops segments without a line since then.
    pub fn expire(&mut self, since: i64) -> io::Result<()> {
        while self.held.front().is_some_and(|oldest| oldest.newest < since) {
            self.drop_oldest()?;
        }
        Ok(())
    }

    /// Writes what is buffered; not synced.
    pub fn flush(&mut self) -> io::Result<()> {
        self.current.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Appends and syncs.
    pub fn mark_done(&mut self, ids: Vec<u64>) -> io::Result<()> {
        let last = ids.iter().copied().max().unwrap_or_default();
        self.append(&Entry::Done(ids), last.saturating_add(1))?;
        self.flush()?;
        if let Some(file) = &self.current {
            file.get_ref().sync_data()?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Passes on what is there, in order, until the function says false.
    pub fn each(&self, mut take: impl FnMut(Entry) -> bool) -> io::Result<()> {
        for segment in &self.held {
            let mut goes_on = true;
            each_of(&segment.path, |entry, _| {
                goes_on = take(entry);
                goes_on
            })?;
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes all segments anew without the lines that do not stay.
    pub fn rewrite(&mut self, stays: impl Fn(&KeptLine) -> bool) -> io::Result<()> {
        self.flush()?;
        self.current = None;
        for segment in &mut self.held {
            let path = std::mem::take(&mut segment.path);
            let new = path.with_extension("new");
            let mut file =
                BufWriter::new(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?);
            let (mut left, mut written) = (Segment { newest: i64::MIN, ..Segment::default() }, Ok(()));
            each_of(&path, |entry, bytes| {
                if matches!(&entry, Entry::Line(line) if !stays(line)) {
                    return true;
                }
                left.note(&entry, bytes);
                let text = serde_json::to_vec(&entry).map_err(io::Error::from);
                written = text.and_then(|text| file.write_all(&text)).and_then(|()| file.write_all(b"\n"));
                written.is_ok()
            })?;
            written?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
            fs::rename(new, &path)?;
            *segment = Segment { path, ..left };
        }
        Ok(())
    }
}

/// Passes on the entries of a file with their bytes, until the function says false. A line that was cut off is left out.
fn each_of(path: &Path, mut take: impl FnMut(Entry, u64) -> bool) -> io::Result<()> {
    for text in BufReader::new(File::open(path)?).split(b'\n') {
        let text = text?;
        let Ok(entry) = serde_json::from_slice(&text) else { continue };
        if !take(entry, text.len() as u64 + 1) {
            break;
        }
    }
    Ok(())
}
