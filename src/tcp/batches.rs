//! Cuts received bytes into whole lines. Buffers at most one batch and the beginning of a line; drops a line that is
//! too long while its rest is still arriving.

use bytes::{Bytes, BytesMut};

/// Received bytes that were not yet passed to ingest.
#[derive(Debug)]
pub struct Batches {
    bytes: BytesMut,
    /// The end of the last whole line in `bytes`.
    whole: usize,
    line_bytes: usize,
    /// Whether incoming bytes belong to a line that is too long.
    skipping: bool,
    too_long: u64,
}

impl Batches {
    pub fn new(line_bytes: usize) -> Self {
        Self { bytes: BytesMut::new(), whole: 0, line_bytes, skipping: false, too_long: 0 }
    }

    pub fn push(&mut self, mut data: &[u8]) {
        if self.skipping {
            let Some(end) = memchr::memchr(b'\n', data) else { return };
            self.skipping = false;
            data = &data[end + 1..];
        }
        self.bytes.extend_from_slice(data);
        if let Some(end) = memchr::memrchr(b'\n', data) {
            self.whole = self.bytes.len() - data.len() + end + 1;
        }
        // A too-long line that arrived whole is rejected and counted with the others of its batch.
        if self.bytes.len() - self.whole > self.line_bytes {
            self.bytes.truncate(self.whole);
            self.skipping = true;
            self.too_long += 1;
        }
    }

    /// The first line without its newline, once it is whole.
    pub fn first_line(&self) -> Option<&[u8]> {
        memchr::memchr(b'\n', &self.bytes).map(|end| &self.bytes[..end])
    }

    pub fn drop_first_line(&mut self) {
        if let Some(end) = memchr::memchr(b'\n', &self.bytes) {
            let _ = self.bytes.split_to(end + 1);
            self.whole -= end + 1;
        }
    }

    /// All buffered bytes, including an unfinished line.
    pub fn held(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bytes in whole lines.
    pub fn whole(&self) -> usize {
        self.whole
    }

    /// Whether an unfinished line is buffered.
    pub fn is_torn(&self) -> bool {
        self.bytes.len() > self.whole
    }

    /// Removes and returns all whole lines.
    pub fn take(&mut self) -> Bytes {
        let lines = self.bytes.split_to(std::mem::take(&mut self.whole)).freeze();
        // Copied, since the unfinished line would otherwise keep the whole old allocation alive.
        let rest = std::mem::take(&mut self.bytes);
        self.bytes.extend_from_slice(&rest);
        lines
    }

    /// The number of lines dropped as too long since the last call.
    pub fn take_too_long(&mut self) -> u64 {
        std::mem::take(&mut self.too_long)
    }
}

pub fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Splits lines near the middle, at a line's end; `None` for a single line.
pub fn halves(lines: &Bytes) -> Option<(Bytes, Bytes)> {
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
        (String::from_utf8_lossy(&lines).into_owned(), batches.is_torn(), batches.take_too_long())
    }

    #[test]
    fn lines_are_cut_out_wherever_pieces_end() {
        for (pieces, lines, torn, too_long) in [
            (&["a 1\nb 2\n"][..], "a 1\nb 2\n", false, 0),
            (&["a", " 1", "\nb", " 2\n"], "a 1\nb 2\n", false, 0),
            (&["a 1\nb"], "a 1\n", true, 0),
            (&["a 1\nlong long long"], "a 1\n", false, 1),
            (&["long long long", " longer", "\nb 2\n"], "b 2\n", false, 1),
            (&["long long long", "\n", "long long long\n"], "long long long\n", false, 1),
            (&[""], "", false, 0),
        ] {
            assert_eq!(taken(pieces), (lines.to_owned(), torn, too_long), "{pieces:?}");
        }
    }

    #[test]
    fn lines_are_halved_at_a_lines_end() {
        let halved = |text: &'static str| {
            halves(&Bytes::from_static(text.as_bytes()))
                .map(|(a, b)| [a, b].map(|half| String::from_utf8_lossy(&half).into_owned()))
        };
        assert_eq!(halved("a\nb\n"), Some(["a\n".to_owned(), "b\n".to_owned()]));
        assert_eq!(halved("a\nlonger\n"), Some(["a\n".to_owned(), "longer\n".to_owned()]));
        assert_eq!(halved("longer\na\n"), Some(["longer\n".to_owned(), "a\n".to_owned()]));
        assert_eq!(halved("longer\n"), None);
        assert_eq!(halved("\n"), None);
    }
}
