//! Splits received bytes into whole lines. Buffers at most one batch and the start of a line. Drops a line that is too
//! long while it arrives.

use bytes::{Bytes, BytesMut};

/// Received bytes that are not yet passed to ingest.
#[derive(Debug)]
pub struct Batches {
    bytes: BytesMut,
    /// The end of the last whole line in `bytes`.
    whole_bytes: usize,
    line_bytes_max: usize,
    /// True while the rest of a line that is too long arrives.
    is_skipping: bool,
    /// The number of lines dropped as too long.
    too_long: u64,
}

impl Batches {
    pub fn new(line_bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), whole_bytes: 0, line_bytes_max, is_skipping: false, too_long: 0 }
    }

    pub fn push(&mut self, mut data: &[u8]) {
        if self.is_skipping {
            let Some(end) = memchr::memchr(b'\n', data) else { return };
            self.is_skipping = false;
            data = &data[end + 1..];
        }
        self.bytes.extend_from_slice(data);
        if let Some(end) = memchr::memrchr(b'\n', data) {
            self.whole_bytes = self.bytes.len() - data.len() + end + 1;
        }
        // Ingest rejects too long lines that arrived whole.
        if self.bytes.len() - self.whole_bytes > self.line_bytes_max {
            self.bytes.truncate(self.whole_bytes);
            self.is_skipping = true;
            self.too_long += 1;
        }
    }

    /// The first line without its newline, if it is whole.
    pub fn first_line(&self) -> Option<&[u8]> {
        memchr::memchr(b'\n', &self.bytes).map(|end| &self.bytes[..end])
    }

    pub fn drop_first_line(&mut self) {
        if let Some(end) = memchr::memchr(b'\n', &self.bytes) {
            let _ = self.bytes.split_to(end + 1);
            self.whole_bytes -= end + 1;
        }
    }

    /// All buffered bytes, including an incomplete line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes in whole lines.
    pub fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Returns true if an incomplete line is buffered.
    pub fn has_incomplete_line(&self) -> bool {
        self.bytes.len() > self.whole_bytes
    }

    /// Removes and returns all whole lines.
    pub fn take(&mut self) -> Bytes {
        let lines = self.bytes.split_to(std::mem::take(&mut self.whole_bytes)).freeze();
        // Copy the incomplete line, because it would keep the whole old allocation alive.
        let rest = std::mem::take(&mut self.bytes);
        self.bytes.extend_from_slice(&rest);
        lines
    }

    /// The number of lines dropped as too long since the last call.
    pub fn take_too_long(&mut self) -> u64 {
        std::mem::take(&mut self.too_long)
    }
}

/// Counts lines.
pub fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Splits lines near the middle, at the end of a line; `None` for a single line.
pub fn split_in_half(lines: &Bytes) -> Option<(Bytes, Bytes)> {
    let middle = lines.len() / 2;
    let end = memchr::memrchr(b'\n', &lines[..middle])
        .or_else(|| memchr::memchr(b'\n', &lines[middle..lines.len().saturating_sub(1)]).map(|end| middle + end))?;
    Some((lines.slice(..=end), lines.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &[&str]) -> (String, bool, u64) {
        let mut batches = Batches::new(8);
        let mut lines = Vec::new();
        for piece in pieces {
            batches.push(piece.as_bytes());
            lines.extend(batches.take());
        }
        (String::from_utf8_lossy(&lines).into_owned(), batches.has_incomplete_line(), batches.take_too_long())
    }

    #[test]
    fn lines_are_found_in_any_pieces() {
        for (pieces, lines, is_incomplete, too_long) in [
            (&["a 1\nb 2\n"][..], "a 1\nb 2\n", false, 0),
            (&["a", " 1", "\nb", " 2\n"], "a 1\nb 2\n", false, 0),
            (&["a 1\nb"], "a 1\n", true, 0),
            (&["a 1\nlong long long"], "a 1\n", false, 1),
            (&["long long long", " longer", "\nb 2\n"], "b 2\n", false, 1),
            (&["long long long", "\n", "long long long\n"], "long long long\n", false, 1),
            (&[""], "", false, 0),
        ] {
            assert_eq!(taken(pieces), (lines.to_owned(), is_incomplete, too_long), "{pieces:?}");
        }
    }

    #[test]
    fn lines_are_split_at_the_end_of_a_line() {
        let halved = |text: &'static str| {
            split_in_half(&Bytes::from_static(text.as_bytes()))
                .map(|(a, b)| [a, b].map(|half| String::from_utf8_lossy(&half).into_owned()))
        };
        assert_eq!(halved("a\nb\n"), Some(["a\n".to_owned(), "b\n".to_owned()]));
        assert_eq!(halved("a\nlonger\n"), Some(["a\n".to_owned(), "longer\n".to_owned()]));
        assert_eq!(halved("longer\na\n"), Some(["longer\n".to_owned(), "a\n".to_owned()]));
        assert_eq!(halved("longer\n"), None);
        assert_eq!(halved("\n"), None);
    }
}
