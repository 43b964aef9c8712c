//! The dead-letter file as bytes: lots one after the other, each a comment and the lines of its readings. Read lot by
//! lot, so that a large file takes no memory; what people have mended by hand is read too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::reading::time::write_rfc3339;

/// How the comment above a lot begins.
const HEAD: &str = "# database ";
/// What is written behind a lot that a crash or a full disk has cut off; its readings are in the log still.
pub const CUT_OFF: &str = "# cut off";
/// Most bytes of a line that are looked at when a comment is searched.
const LINE_BYTES: u64 = 1 << 20;

/// The comment above a lot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The database's name.
    pub database: String,
    /// How many readings the lot has.
    pub readings: u64,
    /// How many bytes their lines take; lots of the first version do not say.
    pub bytes: Option<u64>,
    /// When it was kept, as RFC 3339; lots of the first version do not say.
    pub kept: Option<String>,
    /// Why they cannot be stored.
    pub reason: String,
}

impl Head {
    /// The comment of a lot that is kept now, with its line's end.
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

/// A name as `{:?}` writes it, and what stands behind it.
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

/// A lot of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lot {
    /// Where its comment begins.
    pub offset: u64,
    /// What its comment says.
    pub head: Head,
    /// The comment's checksum. With the offset it names the lot: the comment has its time to the nanosecond.
    pub checksum: u32,
    /// Line protocol, as far as was asked for.
    pub lines: Vec<u8>,
    /// Whether there are more.
    pub is_cut: bool,
    /// Whether the last line has no end: half a line may read as a whole one with another time. The readings of a lot
    /// that a crash has cut off are in the log still; only a person knows what somebody's editor has left.
    pub is_torn: bool,
}

/// The lots of a file, one after the other.
#[derive(Debug)]
pub struct Lots {
    reader: BufReader<File>,
    position: u64,
    length: u64,
}

impl Lots {
    /// Those from an offset on; `None` where there is no file.
    ///
    /// # Errors
    /// The file cannot be opened.
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

    /// The next lot, with at most so many bytes of its lines.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next(&mut self, bytes_max: usize) -> io::Result<Option<Lot>> {
        // What is added meanwhile is for the next who opens it.
        while self.position < self.length {
            let offset = self.position;
            let line = self.line()?;
            if line.is_empty() {
                return Ok(None);
            }
            let checksum = crc32c::crc32c(&line);
            let text = std::str::from_utf8(&line).ok().and_then(|text| text.strip_suffix('\n'));
            if let Some(head) = text.and_then(Head::parse) {
                let mut lot = Lot { offset, head, checksum, lines: Vec::new(), is_cut: false, is_torn: false };
                match lot.head.bytes.filter(|bytes| self.is_whole(*bytes).unwrap_or(false)) {
                    Some(bytes) => self.whole(&mut lot, bytes, bytes_max)?,
                    None => self.up_to_a_comment(&mut lot, bytes_max)?,
                }
                return Ok(Some(lot));
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

    /// Whether the lines end where the comment says, and a comment or nothing follows: nobody has mended them.
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

    fn whole(&mut self, lot: &mut Lot, bytes: u64, bytes_max: usize) -> io::Result<()> {
        lot.lines = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(bytes_max)];
        lot.is_cut = (lot.lines.len() as u64) < bytes;
        self.reader.read_exact(&mut lot.lines)?;
        self.position += bytes;
        self.reader.seek(SeekFrom::Start(self.position)).map(drop)
    }

    /// The lines up to the next comment.
    fn up_to_a_comment(&mut self, lot: &mut Lot, bytes_max: usize) -> io::Result<()> {
        loop {
            let start = self.position;
            let line = self.line()?;
            if line.starts_with(b"# ") || line.is_empty() {
                lot.is_torn |= line.starts_with(CUT_OFF.as_bytes());
                self.position = start;
                return self.reader.seek(SeekFrom::Start(start)).map(drop);
            }
            lot.is_torn = !line.ends_with(b"\n") && self.position >= self.length;
            lot.is_cut |= lot.lines.len() + line.len() > bytes_max;
            if !lot.is_cut {
                lot.lines.extend_from_slice(&line);
            }
        }
    }
}

/// Line protocol in parts of about so many bytes, each of whole readings: strings may have line ends in them.
pub fn parts(lines: &[u8], bytes: usize) -> Vec<&[u8]> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped, mut is_field) = (Vec::new(), 0, false, false, false);
    for (at, byte) in lines.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            // Before the fields a quote is a character as any other.
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
