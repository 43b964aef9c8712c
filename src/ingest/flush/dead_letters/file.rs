//! The format of the dead-letter file: chunks, each a comment and the lines of its readings. Read chunk by chunk, so
//! that a large file takes no memory. Files edited by hand are read too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::reading::time::write_rfc3339;

/// Start of the comment above a chunk.
const HEAD: &str = "# database ";
/// Written after a chunk that a crash or a full disk has cut off; its readings are still in the WAL.
pub const CUT_OFF: &str = "# cut off";
/// Most bytes of a line that are read in search of a comment.
const LINE_BYTES: u64 = 1 << 20;

/// The comment above a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHead {
    pub database: String,
    /// How many readings the chunk has.
    pub readings: u64,
    /// Bytes of the chunk's lines; missing in the first version of the format.
    pub bytes: Option<u64>,
    /// When the chunk was written, as RFC 3339; missing in the first version of the format.
    pub kept: Option<String>,
    /// Why the readings cannot be stored.
    pub reason: String,
}

impl ChunkHead {
    /// The comment of a new chunk, with a line end.
    pub fn line(database: &str, (readings, bytes): (usize, usize), now_ns: i64, reason: &str) -> String {
        let mut kept = String::new();
        write_rfc3339(&mut kept, now_ns);
        let reason = reason.replace(['\n', '\r'], " ");
        format!("{HEAD}{database:?}, {readings} readings, {bytes} bytes, kept {kept}: {reason}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let (database, rest) = unquote(line.strip_prefix(HEAD)?)?;
        let (readings, rest) = rest.strip_prefix(", ")?.split_once(" readings")?;
        let readings = readings.parse().ok()?;
        let old = rest.strip_prefix(": ").map(|reason| (None, None, reason));
        let (bytes, kept, reason) = old.or_else(|| {
            let (bytes, rest) = rest.strip_prefix(", ")?.split_once(" bytes, kept ")?;
            let (kept, reason) = rest.split_once(": ")?;
            Some((Some(bytes.parse().ok()?), Some(kept.to_owned()), reason))
        })?;
        Some(Self { database, readings, bytes, kept, reason: reason.to_owned() })
    }
}

/// Parses a name that `{:?}` wrote; returns it and the text after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    let text = &text[1..];
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((name, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'u' => {
                    let digits: String =
                        chars.by_ref().map(|(_, c)| c).skip_while(|c| *c == '{').take_while(|c| *c != '}').collect();
                    name.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                plain => name.push(plain),
            },
            c => name.push(c),
        }
    }
    None
}

/// A chunk of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where its comment begins.
    pub offset: u64,
    pub head: ChunkHead,
    /// CRC-32C of the comment. With the offset it identifies the chunk: the comment has a time in nanoseconds.
    pub checksum: u32,
    /// Line protocol, as much as was asked for.
    pub lines: Vec<u8>,
    /// Whether the chunk has more lines.
    pub is_cut: bool,
    /// Whether the last line has no end: half a line may parse as a whole one with another time. If a crash cut the
    /// chunk off, its readings are still in the WAL; what an editor left can be judged by a person only.
    pub is_torn: bool,
}

/// The chunks of a file, one after the other.
#[derive(Debug)]
pub struct Chunks {
    reader: BufReader<File>,
    position: u64,
    length: u64,
}

impl Chunks {
    /// Reads from an offset on; `None` if there is no file.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path, offset: u64) -> io::Result<Option<Self>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset))?;
        Ok(Some(Self { reader: BufReader::new(file), position: offset, length }))
    }

    /// The next chunk, with at most `bytes_max` bytes of its lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next(&mut self, bytes_max: usize) -> io::Result<Option<Chunk>> {
        // Chunks that are appended meanwhile are left to the next reader.
        while self.position < self.length {
            let offset = self.position;
            let line = self.line()?;
            if line.is_empty() {
                return Ok(None);
            }
            let checksum = crc32c::crc32c(&line);
            let text = std::str::from_utf8(&line).ok().and_then(|text| text.strip_suffix('\n'));
            if let Some(head) = text.and_then(ChunkHead::parse) {
                let mut chunk = Chunk { offset, head, checksum, lines: Vec::new(), is_cut: false, is_torn: false };
                match chunk.head.bytes.filter(|bytes| self.is_whole(*bytes).unwrap_or(false)) {
                    Some(bytes) => self.whole(&mut chunk, bytes, bytes_max)?,
                    None => self.up_to_a_comment(&mut chunk, bytes_max)?,
                }
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LINE_BYTES).read_until(b'\n', &mut line)?;
        self.position += read as u64;
        Ok(line)
    }

    /// Whether the lines end where the comment says, and a comment or nothing follows: then nobody has edited them.
    fn is_whole(&mut self, bytes: u64) -> io::Result<bool> {
        let end = self.position.saturating_add(bytes);
        if end >= self.length {
            return Ok(end == self.length);
        }
        self.reader.seek(SeekFrom::Start(end))?;
        let mut next = [0; 2];
        let read = self.reader.read_exact(&mut next);
        self.reader.seek(SeekFrom::Start(self.position))?;
        Ok(read.is_ok() && next == *b"# ")
    }

    fn whole(&mut self, chunk: &mut Chunk, bytes: u64, bytes_max: usize) -> io::Result<()> {
        chunk.lines = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(bytes_max)];
        chunk.is_cut = (chunk.lines.len() as u64) < bytes;
        self.reader.read_exact(&mut chunk.lines)?;
        self.position += bytes;
        self.reader.seek(SeekFrom::Start(self.position)).map(drop)
    }

    /// Reads the lines up to the next comment.
    fn up_to_a_comment(&mut self, chunk: &mut Chunk, bytes_max: usize) -> io::Result<()> {
        loop {
            let start = self.position;
            let line = self.line()?;
            if line.starts_with(b"# ") || line.is_empty() {
                chunk.is_torn |= line.starts_with(CUT_OFF.as_bytes());
                self.position = start;
                return self.reader.seek(SeekFrom::Start(start)).map(drop);
            }
            chunk.is_torn = !line.ends_with(b"\n") && self.position >= self.length;
            chunk.is_cut |= chunk.lines.len() + line.len() > bytes_max;
            if !chunk.is_cut {
                chunk.lines.extend_from_slice(&line);
            }
        }
    }
}

/// Line protocol in parts of about `bytes` bytes, each of whole readings. Strings may contain line ends.
pub fn parts(lines: &[u8], bytes: usize) -> Vec<&[u8]> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped, mut is_field) = (Vec::new(), 0, false, false, false);
    for (at, byte) in lines.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            // Before the fields a quote is an ordinary character.
            b' ' if !is_quoted => is_field = true,
            b'"' if is_field => is_quoted = !is_quoted,
            b'\n' if !is_quoted => {
                is_field = false;
                if at + 1 - start >= bytes {
                    parts.push(&lines[start..=at]);
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    if start < lines.len() {
        parts.push(&lines[start..]);
    }
    parts
}

#[cfg(test)]
mod tests;
