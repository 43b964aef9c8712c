//! A file of chained records, one JSON object per line. Each record has a number, and a hash of itself and the previous
//! record's hash. The file `.head` next to it has the number and the hash of the last record, and is the lock under
//! which processes append and rotate. Before a rotation removes records, a chained record says which. `check.rs`
//! describes the faults that a check can detect.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::secret::hex;
use super::escape::escape_control_characters;

/// Readable and writable by the owner only.
const MODE: u32 = 0o600;
/// Maximum bytes of a record without its hash. In a longer one, each long member is cut, and `cut` has the length and
/// the SHA-256 of the whole event.
pub const RECORD_BYTES_MAX: usize = 2 << 10;
/// Bytes that are kept of each longer member of a record that is cut. As a JSON string they take at most twice as much.
const MEMBER_BYTES_MAX: usize = 96;
/// Bytes at the end of a file that are searched for its last record.
const TAIL_BYTES: u64 = 4 * RECORD_BYTES_MAX as u64;
/// Maximum bytes of a head.
const HEAD_BYTES_MAX: u64 = 4 << 10;
/// The number of older files that are kept in addition to the present one.
const OLDER_FILES: usize = 3;
const CHAIN: &str = ",\"chain\":\"";
/// The event of a rotation that removes records.
const ROTATED: &str = "rotated";

/// A chained file and its older files: `audit.log`, `audit.log.1`, and so on.
#[derive(Debug)]
pub struct Trail {
    path: PathBuf,
    /// The size above which the file is rotated.
    file_bytes: u64,
    /// Sync each record to disk before [`Trail::append`] returns.
    is_synced: bool,
}

/// The state of the chain, as stored in the file `.head`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last record.
    pub last: u64,
    /// The hash of the last record.
    pub chain: String,
}

/// The number and hash of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub number: u64,
    pub chain: String,
}

/// The record of a rotation that removes records.
#[derive(Serialize)]
struct Rotation {
    event: &'static str,
    /// The number of the last record that is removed.
    removed: u64,
}

/// A record without its hash.
#[derive(Serialize)]
struct NumberedRecord<'a, T> {
    n: u64,
    time: String,
    #[serde(flatten)]
    event: &'a T,
}

impl Trail {
    /// Returns a trail at `path`, whose files take about `max_bytes` in total. The first record creates the file.
    #[must_use]
    pub fn new(path: PathBuf, max_bytes: u64, is_synced: bool) -> Self {
        Self { path, file_bytes: max_bytes / (OLDER_FILES as u64 + 1), is_synced }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn append(&self, event: &impl Serialize) -> io::Result<()> {
        let mut head_file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(head_path(&self.path))?;
        head_file.lock()?;
        let mut head = self.resume(read_head(&mut head_file)?)?;
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() > self.file_bytes) {
            if let Some(removed) = self.removed_by_rotation()? {
                head = self.push(&head, &Rotation { event: ROTATED, removed })?;
            }
            self.rotate()?;
        }
        head = self.push(&head, event)?;
        write_head(&mut head_file, &head)
    }

    /// Appends a record to the present file. Returns the head after it.
    fn push(&self, head: &Head, event: &impl Serialize) -> io::Result<Head> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(&self.path)?;
        let number = head.last + 1;
        let body = record_text(number, event)?;
        let chain = chain_hash(&head.chain, &body);
        let open = body.strip_suffix('}').unwrap_or(&body);
        // A crash may have cut the last line. Start a new one, so that the record does not continue it.
        let gap = if is_at_line_start(&mut file)? { "" } else { "\n" };
        file.write_all(format!("{gap}{open}{CHAIN}{chain}\"}}\n").as_bytes())?;
        if self.is_synced {
            file.sync_data()?;
        }
        Ok(Head { last: number, chain })
    }

    /// Returns the state from which the chain continues. The file is ahead of the head if the last writer crashed
    /// between writing both. It is behind if records were removed, which the next number reveals.
    fn resume(&self, head: Option<Head>) -> io::Result<Head> {
        let last = last_link(&self.path)?;
        let mut head = head.unwrap_or_default();
        if let Some(link) = last.filter(|link| link.number > head.last) {
            head.last = link.number;
            head.chain = link.chain;
        }
        Ok(head)
    }

    /// Renames every file to the next number, and removes the oldest one.
    fn rotate(&self) -> io::Result<()> {
        let oldest = older_path(&self.path, OLDER_FILES);
        if oldest.exists() {
            fs::remove_file(oldest)?;
        }
        for number in (1..OLDER_FILES).rev().filter(|number| older_path(&self.path, *number).exists()) {
            fs::rename(older_path(&self.path, number), older_path(&self.path, number + 1))?;
        }
        fs::rename(&self.path, older_path(&self.path, 1))
    }

    /// Returns the number of the last record that a rotation would remove.
    fn removed_by_rotation(&self) -> io::Result<Option<u64>> {
        last_link(&older_path(&self.path, OLDER_FILES)).map(|link| link.map(|link| link.number))
    }
}

/// Returns the path of a trail's head, which is also its lock.
#[must_use]
pub fn head_path(path: &Path) -> PathBuf {
    path.with_extension("head")
}

/// Returns the existing files of a trail, oldest first.
#[must_use]
pub fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        (1..).map(|number| older_path(path, number)).take_while(|file| file.exists()).collect();
    files.reverse();
    files.extend(path.exists().then(|| path.to_owned()));
    files
}

fn older_path(path: &Path, number: usize) -> PathBuf {
    path.with_extension(format!("log.{number}"))
}

/// Returns the lines of a file. Invalid UTF-8 is replaced, so that it does not match its hash.
///
/// # Errors
/// If the file cannot be opened.
pub fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let file = BufReader::new(File::open(path)?);
    Ok(file.split(b'\n').map(|line| line.map(|line| String::from_utf8_lossy(&line).into_owned())))
}

/// Reads the head from its file. Returns `None` if the file has no valid head.
///
/// # Errors
/// If the file cannot be read.
pub fn read_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    match file.take(HEAD_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => Ok(serde_json::from_str(&text).ok()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_head(file: &mut File, head: &Head) -> io::Result<()> {
    let text = format!("{}\n", serde_json::to_string(head)?);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// Returns the JSON text of a record without its hash, of at most [`RECORD_BYTES_MAX`] bytes.
fn record_text(number: u64, event: &impl Serialize) -> io::Result<String> {
    let time = jiff::Timestamp::now().to_string();
    let record = NumberedRecord { n: number, time: time.clone(), event };
    let text = escape_control_characters(&serde_json::to_string(&record)?);
    if text.len() <= RECORD_BYTES_MAX {
        return Ok(text);
    }
    let whole = serde_json::to_string(event)?;
    let mut event: Map<String, Value> = serde_json::from_str(&whole)?;
    for member in event.values_mut() {
        let mut text = escape_control_characters(&member.to_string());
        if text.len() > MEMBER_BYTES_MAX {
            let end = (0..=MEMBER_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
            *member = Value::from(text);
        }
    }
    event.insert("cut".to_owned(), json!({ "bytes": whole.len(), "sha256": hex(&Sha256::digest(&whole)) }));
    Ok(serde_json::to_string(&NumberedRecord { n: number, time, event: &event })?)
}

/// Returns the number that a record of a rotation has as that of the last removed record.
#[must_use]
pub fn removed_number(body: &str) -> Option<u64> {
    let record: Value = serde_json::from_str(body).ok()?;
    if record["event"] == ROTATED { record["removed"].as_u64() } else { None }
}

/// Parses a line. Returns the record's number and hash, and its text without the hash.
#[must_use]
pub fn parse(line: &str) -> Option<(Link, String)> {
    let (open, rest) = line.rsplit_once(CHAIN)?;
    let chain = rest.strip_suffix("\"}")?;
    let body = format!("{open}}}");
    let number = serde_json::from_str::<Value>(&body).ok()?["n"].as_u64()?;
    Some((Link { number, chain: chain.to_owned() }, body))
}

/// Returns the hash of a record after the one with the hash `previous`.
#[must_use]
pub fn chain_hash(previous: &str, body: &str) -> String {
    hex(&Sha256::new().chain_update(previous).chain_update(body).finalize())
}

fn last_link(path: &Path) -> io::Result<Option<Link>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    file.read_to_end(&mut tail)?;
    let last = String::from_utf8_lossy(&tail).lines().rev().find_map(parse);
    Ok(last.map(|(link, _)| link))
}

fn is_at_line_start(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
