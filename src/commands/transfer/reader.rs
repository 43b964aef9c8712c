//! Reads a source chunk by chunk and makes batches of its rows.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};

use super::RowFlags;
use super::batch::{Batch, Position};
use super::columns::RowsFormat;
use super::lines::LineRows;
use super::objects::ObjectRows;
use super::table::TableRows;

/// Size of a chunk in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum size of a row in bytes. Services accept less.
pub const ROW_BYTES_MAX: usize = 256 << 10;

/// A format of rows.
pub trait RowFormat: Send {
    /// Reads complete rows into a batch, and returns the number of bytes that they have. `position` is that of the
    /// chunk. If the source ends with the chunk, reads everything.
    fn read(&mut self, chunk: &[u8], is_end: bool, position: &mut Position, batch: &mut Batch) -> usize;

    /// Describes how the rows are read, for formats that guess it.
    fn describe(&self) -> Option<String> {
        None
    }
}

/// A source of batches.
pub trait BatchSource: Send {
    /// Describes how the rows are read, if that is guessed.
    fn describe(&self) -> Option<String>;

    /// Continues at the position after a batch of an earlier run.
    fn resume(&mut self, position: Position) -> anyhow::Result<()>;

    /// Returns the next rows; `None` at the end.
    fn next_batch(&mut self) -> anyhow::Result<Option<Batch>>;
}

/// Reads the rows of a file.
pub struct RowReader {
    source: Box<dyn Read + Send>,
    format: Box<dyn RowFormat>,
    /// Bytes of the source that no row has taken yet.
    chunk: Vec<u8>,
    is_end: bool,
    /// True to read on only when all rows are sent, so that rows of a pipe are sent as they come.
    is_live: bool,
    position: Position,
}

impl RowReader {
    /// Reads the first chunk of a source, and guesses its columns if it has some.
    pub fn new(
        source: Box<dyn Read + Send>,
        flags: &RowFlags,
        file: Option<&Path>,
        is_live: bool,
    ) -> anyhow::Result<Self> {
        let mut reader = Self {
            source,
            format: Box::new(LineRows::new(flags)?),
            chunk: Vec::new(),
            is_end: false,
            is_live,
            position: Position::default(),
        };
        reader.fill()?;
        // Spreadsheets begin UTF-8 with this mark.
        if reader.chunk.starts_with(b"\xef\xbb\xbf") {
            reader.skip(3);
        }
        match flags.format(file) {
            RowsFormat::Lp => {}
            RowsFormat::Ndjson => reader.format = Box::new(ObjectRows::new(flags)?),
            RowsFormat::Csv => {
                let (table, head) = TableRows::new(flags, &reader.chunk)?;
                reader.skip(head);
                reader.format = Box::new(table);
            }
        }
        Ok(reader)
    }

    /// Removes read bytes.
    fn skip(&mut self, bytes: usize) {
        self.position.offset += bytes as u64;
        self.position.lines += memchr::memchr_iter(b'\n', &self.chunk[..bytes]).count() as u64;
        self.chunk.drain(..bytes);
    }

    /// Appends the next bytes of the source to the chunk.
    fn fill(&mut self) -> anyhow::Result<()> {
        let mut filled = self.chunk.len();
        self.chunk.resize(filled + CHUNK_BYTES, 0);
        while filled < self.chunk.len() {
            let read = match self.source.read(&mut self.chunk[filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.context("reading the source")?,
            };
            self.is_end = read == 0;
            filled += read;
            if self.is_end || self.is_live {
                break;
            }
        }
        self.chunk.truncate(filled);
        Ok(())
    }
}

impl BatchSource for RowReader {
    fn describe(&self) -> Option<String> {
        self.format.describe()
    }

    fn resume(&mut self, position: Position) -> anyhow::Result<()> {
        while self.position.offset < position.offset {
            if self.chunk.is_empty() {
                self.fill()?;
            }
            if self.chunk.is_empty() {
                bail!("the source has become shorter since the import began");
            }
            let rest = position.offset - self.position.offset;
            self.skip(self.chunk.len().min(usize::try_from(rest).unwrap_or(usize::MAX)));
        }
        self.position = position;
        Ok(())
    }

    fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        loop {
            let mut batch = Batch::default();
            let read = self.format.read(&self.chunk, self.is_end, &mut self.position, &mut batch);
            self.skip(read);
            if !batch.is_empty() {
                batch.end = self.position.clone();
                return Ok(Some(batch));
            }
            if read > 0 {
                continue;
            }
            if self.is_end {
                return Ok(None);
            }
            if self.chunk.len() >= 2 * CHUNK_BYTES {
                bail!("line {}: a row of more than {CHUNK_BYTES} bytes", self.position.lines + 1);
            }
            self.fill()?;
        }
    }
}

/// Opens a file, or the standard input for `-` or `None`, and decompresses it if it begins as gzip or zstd.
pub fn open_source(file: Option<&Path>) -> anyhow::Result<Box<dyn Read + Send>> {
    let opened: Box<dyn Read + Send> = match file.filter(|file| *file != Path::new("-")) {
        Some(file) => Box::new(File::open(file).with_context(|| format!("opening {}", file.display()))?),
        None => Box::new(io::stdin()),
    };
    let mut source = BufReader::with_capacity(64 << 10, opened);
    let start = source.fill_buf().context("reading the source")?;
    if start.starts_with(b"\x1f\x8b") {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(source)));
    }
    if start.starts_with(b"\x28\xb5\x2f\xfd") {
        return Ok(Box::new(zstd::Decoder::with_buffer(source)?));
    }
    Ok(Box::new(source))
}
