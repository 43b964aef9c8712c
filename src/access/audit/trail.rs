//! One file of records, one JSON object per line, chained: each record has a number and the hash of itself and of the
//! record before it. The file `.head` beside it has the number and the hash of the last record, and is the lock under
//! which every process appends and rotates. See `check.rs` for what a check can show.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::secret::hex;
use super::escape::escaped;

/// Readable by the owner only.
const MODE: u32 = 0o600;
/// How much of a file's end is read to find its last record: first little, since nearly all are short; one that is
/// longer than the second counts as none.
const TAIL_BYTES: [u64; 2] = [8 << 10, 256 << 10];
/// Most bytes of a head.
const HEAD_BYTES: u64 = 4 << 10;
/// Older files that are kept, so that a trail has four with the one that is written.
const OLDER_FILES: usize = 3;
const CHAIN: &str = ",\"chain\":\"";

/// A chained file and its older ones: `audit.log`, `audit.log.1`, and so on.
#[derive(Debug)]
pub struct Trail {
    path: PathBuf,
    /// Above this size the file is renamed.
    file_bytes: u64,
    /// Whether a record is on the disk before [`Trail::append`] returns.
    synced: bool,
}

/// What is known of the chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the oldest record that was not rotated away.
    pub first: u64,
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

#[derive(Serialize)]
struct Numbered<'a, T> {
    n: u64,
    time: String,
    #[serde(flatten)]
    event: &'a T,
}

impl Trail {
    /// The first record creates the file.
    #[must_use]
    pub fn new(path: PathBuf, max_bytes: u64, synced: bool) -> Self {
        Self { path, file_bytes: max_bytes / (OLDER_FILES as u64 + 1), synced }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn append(&self, event: &impl Serialize) -> io::Result<()> {
        let mut head_file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(head_of(&self.path))?;
        head_file.lock()?;
        let mut head = self.resumed(read_head(&mut head_file)?)?;
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() > self.file_bytes) {
            self.rotate(&mut head)?;
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(&self.path)?;
        let number = head.last + 1;
        let record = Numbered { n: number, time: jiff::Timestamp::now().to_string(), event };
        let body = escaped(&serde_json::to_string(&record)?);
        let chain = chained(&head.chain, &body);
        let open = body.strip_suffix('}').unwrap_or(&body);
        // A crash may have cut the last line; the next record must not continue it.
        let gap = if ends_a_line(&mut file)? { "" } else { "\n" };
        file.write_all(format!("{gap}{open}{CHAIN}{chain}\"}}\n").as_bytes())?;
        if self.synced {
            file.sync_data()?;
        }
        write_head(&mut head_file, &Head { last: number, chain, ..head })
    }

    /// Where the chain goes on. The file is ahead of the head if the last writer died between writing both; it is behind
    /// if records were removed, and then the next number shows it.
    fn resumed(&self, head: Option<Head>) -> io::Result<Head> {
        let last = last_link(&self.path)?;
        let mut head = match head {
            Some(head) => head,
            None => Head { first: self.oldest_number()?.unwrap_or(1), ..Head::default() },
        };
        if let Some(link) = last.filter(|link| link.number > head.last) {
            (head.last, head.chain) = (link.number, link.chain);
        }
        Ok(head)
    }

    /// Renames every file to the next number and removes what is too old.
    fn rotate(&self, head: &mut Head) -> io::Result<()> {
        let oldest = older(&self.path, OLDER_FILES);
        let removed = oldest.exists();
        if removed {
            fs::remove_file(oldest)?;
        }
        for number in (1..OLDER_FILES).rev().filter(|number| older(&self.path, *number).exists()) {
            fs::rename(older(&self.path, number), older(&self.path, number + 1))?;
        }
        fs::rename(&self.path, older(&self.path, 1))?;
        if removed {
            head.first = self.oldest_number()?.unwrap_or(head.first);
        }
        Ok(())
    }

    fn oldest_number(&self) -> io::Result<Option<u64>> {
        for path in files(&self.path) {
            for line in lines(&path)? {
                if let Some((link, _)) = parse(&line?) {
                    return Ok(Some(link.number));
                }
            }
        }
        Ok(None)
    }
}

/// The lock of a trail, which holds its head.
#[must_use]
pub fn head_of(path: &Path) -> PathBuf {
    path.with_extension("head")
}

/// All files of a trail that exist, oldest first.
#[must_use]
pub fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = (1..).map(|number| older(path, number)).take_while(|file| file.exists()).collect();
    files.reverse();
    files.extend(path.exists().then(|| path.to_owned()));
    files
}

fn older(path: &Path, number: usize) -> PathBuf {
    path.with_extension(format!("log.{number}"))
}

/// The lines of a file; bytes that are no text are replaced, so that they fit no hash.
///
/// # Errors
/// The file cannot be opened.
pub fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let file = BufReader::new(File::open(path)?);
    Ok(file.split(b'\n').map(|line| line.map(|line| String::from_utf8_lossy(&line).into_owned())))
}

/// The head in its file; `None` if there is none, or none that can be read.
///
/// # Errors
/// The file cannot be read.
pub fn read_head(file: &mut File) -> io::Result<Option<Head>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    match file.take(HEAD_BYTES).read_to_string(&mut text) {
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

/// A record's number and hash, and its text without the hash.
#[must_use]
pub fn parse(line: &str) -> Option<(Link, String)> {
    let (open, rest) = line.rsplit_once(CHAIN)?;
    let chain = rest.strip_suffix("\"}")?;
    let body = format!("{open}}}");
    let number = serde_json::from_str::<Value>(&body).ok()?["n"].as_u64()?;
    Some((Link { number, chain: chain.to_owned() }, body))
}

/// The hash of a record that follows the one with the hash `before`.
#[must_use]
pub fn chained(before: &str, body: &str) -> String {
    hex(&Sha256::new().chain_update(before).chain_update(body).finalize())
}

fn last_link(path: &Path) -> io::Result<Option<Link>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    for bytes in TAIL_BYTES {
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        file.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        if let Some((link, _)) = tail.lines().rev().find_map(parse) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
