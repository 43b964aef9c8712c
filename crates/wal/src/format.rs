//! The byte format of a segment file, version 1.
//!
//! All integers are little endian. A segment file has a header block of 4096 bytes, then records, each aligned to 8
//! bytes, then zeros or stale bytes up to the end of the file. Its name is its first sequence in 16 hexadecimal digits
//! and `.segment`.
//!
//! The header block has two copies of the header, at 0 and at 2048, so that no single damage loses it:
//!
//! ```text
//!    0  magic "hourglog"          32  first sequence u64          72  length of the store's name u32
//!    8  version u32               40  previous segment's id u64   76  store's name, UTF-8, at most 1024
//!   12  opening's id u32          48  … its end, in bytes u64         zeros
//!   16  log id u64                56  … synced for certain to u64 2044 crc32c of 0..2044 u32
//!   24  segment id u64            64  … its last sequence u64
//! ```
//!
//! Magic, version and crc are at these offsets in every version. "Previous" describes the previous segment at the time
//! when this one replaced it. Bytes after its end were never acked and are not part of the WAL. "Synced for certain to"
//! is less than the end if a restart found a last group in doubt: it may have been synced and acked, or may be lost in
//! the next power cut. Id 0 means none; no segment has id 0.
//!
//! A record has a head of 32 bytes and a payload, which is padded with zeros to a multiple of 8:
//!
//! ```text
//!    0  crc32c of segment id and 4..32 u32      16  crc32c of the stored payload u32
//!    4  stored bytes u32                        20  bytes before compression u32
//!    8  sequence u64                            24  where its group began in the file, / 8, u32
//!   28  kind u8      29  flags u8 (1: lz4 block)     30  zero u16
//! ```
//!
//! Segment ids are random and secret, so neither stale bytes nor bytes chosen by a client can pass as a record. The crc
//! of the record head covers the length, so the next record can be found after a damaged payload. Everything before a
//! group was synced before the group was written. This distinguishes damage to synced records from a group torn by a
//! power cut.

use crc32c::{crc32c, crc32c_append};

use super::Sequence;

/// The format version that this program writes, and the highest that it reads.
pub(super) const VERSION: u32 = 1;
/// The size of the header block, which is the offset of the first record.
pub(super) const HEADER_BYTES: u64 = 4096;
/// The size of a record head.
pub(super) const RECORD_BYTES: u64 = 32;
/// Maximum length of the store's name in bytes.
pub(super) const STORE_BYTES_MAX: usize = 1024;

const MAGIC: [u8; 8] = *b"hourglog";
const COPY_BYTES: usize = HEADER_BYTES as usize / 2;
const SUFFIX: &str = ".segment";
const LZ4: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) log: u64,
    /// Id of the opening of the WAL that wrote the segment.
    pub(super) opening: u64,
    pub(super) segment: u64,
    /// Every sequence in the segment is at least this one.
    pub(super) first: Sequence,
    pub(super) previous: Option<PreviousSegment>,
    /// The store that this WAL's records are flushed to.
    pub(super) store: String,
}

/// The previous segment at the moment its successor replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreviousSegment {
    pub(super) segment: u64,
    pub(super) end: u64,
    /// Everything before this offset was synced. The bytes from here to `end` may not have been.
    pub(super) synced_end: u64,
    pub(super) last: Sequence,
}

/// The reason that a header block cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoHeader {
    /// Both copies are damaged.
    Damaged,
    /// A newer version of the program wrote it.
    Newer { version: u32 },
}

impl SegmentHeader {
    /// Encodes the header block. The store's name must not be longer than [`STORE_BYTES_MAX`].
    pub(super) fn encode(&self) -> Vec<u8> {
        let previous = self.previous.unwrap_or(PreviousSegment { segment: 0, end: 0, synced_end: 0, last: 0 });
        let mut copy = Vec::with_capacity(HEADER_BYTES as usize);
        copy.extend(MAGIC);
        copy.extend(VERSION.to_le_bytes());
        copy.extend((self.opening as u32).to_le_bytes());
        let PreviousSegment { segment, end, synced_end, last } = previous;
        for number in [self.log, self.segment, self.first, segment, end, synced_end, last] {
            copy.extend(number.to_le_bytes());
        }
        copy.extend((self.store.len() as u32).to_le_bytes());
        copy.extend(self.store.as_bytes());
        copy.resize(COPY_BYTES - 4, 0);
        copy.extend(crc32c(&copy).to_le_bytes());
        copy.extend_from_within(..);
        copy
    }

    /// Decodes the first intact copy.
    pub(super) fn decode(block: &[u8]) -> Result<Self, NoHeader> {
        let mut outcome = Err(NoHeader::Damaged);
        for copy in block.chunks_exact(COPY_BYTES) {
            outcome = Self::decode_copy(copy);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn decode_copy(copy: &[u8]) -> Result<Self, NoHeader> {
        let (body, crc) = copy.split_at(COPY_BYTES - 4);
        if body[..8] != MAGIC || crc32c(body) != u32_at(crc, 0) {
            return Err(NoHeader::Damaged);
        }
        match u32_at(body, 8) {
            VERSION => {}
            version if version > VERSION => return Err(NoHeader::Newer { version }),
            _ => return Err(NoHeader::Damaged),
        }
        let store = body.get(76..76 + u32_at(body, 72) as usize).and_then(|name| std::str::from_utf8(name).ok());
        let segment = u64_at(body, 40);
        let end = u64_at(body, 48);
        let synced_end = u64_at(body, 56);
        let last = u64_at(body, 64);
        let previous = PreviousSegment { segment, end, synced_end, last };
        Ok(Self {
            log: u64_at(body, 16),
            opening: opening_id(u64_at(body, 16), u32_at(body, 12)),
            segment: u64_at(body, 24),
            first: u64_at(body, 32),
            previous: (previous.segment != 0).then_some(previous),
            store: store.ok_or(NoHeader::Damaged)?.to_owned(),
        })
    }
}

/// The id of an opening: the upper half of the WAL's id, so that openings of different WALs differ, and a random lower
/// half.
pub(super) fn opening_id(log: u64, random: u32) -> u64 {
    log & !u64::from(u32::MAX) | u64::from(random)
}

pub(super) fn segment_name(first: Sequence) -> String {
    format!("{first:016x}{SUFFIX}")
}

/// The first sequence of a segment, from its file name; `None` for any other file.
pub(super) fn parse_segment_name(name: &str) -> Option<Sequence> {
    let digits = name.strip_suffix(SUFFIX)?;
    let first = u64::from_str_radix(digits, 16).ok()?;
    (segment_name(first) == name).then_some(first)
}

/// A payload as a record stores it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncodedPayload {
    kind: u8,
    flags: u8,
    raw_bytes: u32,
    crc: u32,
    bytes: Vec<u8>,
}

impl EncodedPayload {
    /// Encodes the payload, compressed if `compress` is set and that saves space. The payload must be shorter than 4
    /// GiB.
    pub(super) fn new(kind: u8, payload: Vec<u8>, compress: bool) -> Self {
        /// The smallest payload that is worth compressing. For a smaller one, setting up the compressor's table takes
        /// longer than all other work, and saves little.
        const COMPRESSED_BYTES_MIN: usize = 256;
        let raw_bytes = payload.len() as u32;
        let compress = compress && payload.len() >= COMPRESSED_BYTES_MIN;
        let (flags, bytes) = match compress.then(|| lz4_flex::block::compress(&payload)) {
            Some(packed) if padded_bytes(packed.len()) < padded_bytes(payload.len()) => (LZ4, packed),
            _ => (0, payload),
        };
        Self { kind, flags, raw_bytes, crc: crc32c(&bytes), bytes }
    }

    /// The size of the whole record in a segment, in bytes.
    pub(super) fn size(&self) -> u64 {
        RECORD_BYTES + padded_bytes(self.bytes.len())
    }

    /// Appends the record to the buffer. `group` is the file offset of the start of its group.
    pub(super) fn encode(&self, segment: u64, sequence: Sequence, group: u64, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.extend([0; 4]);
        buffer.extend((self.bytes.len() as u32).to_le_bytes());
        buffer.extend(sequence.to_le_bytes());
        buffer.extend(self.crc.to_le_bytes());
        buffer.extend(self.raw_bytes.to_le_bytes());
        buffer.extend(((group / 8) as u32).to_le_bytes());
        buffer.extend([self.kind, self.flags, 0, 0]);
        let crc = head_crc(segment, &buffer[start..]);
        buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        buffer.extend(&self.bytes);
        buffer.resize(start + self.size() as usize, 0);
    }
}

/// The 32 bytes of a record before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) stored_bytes: u32,
    pub(super) sequence: Sequence,
    pub(super) payload_crc: u32,
    pub(super) raw_bytes: u32,
    /// The file offset of the start of the record's group.
    pub(super) group: u64,
    pub(super) kind: u8,
    flags: u8,
}

impl RecordHead {
    /// Decodes a record head at the front of the bytes; `None` if there is none of this segment.
    pub(super) fn decode(segment: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..RECORD_BYTES as usize)?;
        // No record has sequence 0. Nearly all bytes after the last record are zeros.
        let sequence = u64_at(bytes, 8);
        let is_ours = head_crc(segment, bytes) == u32_at(bytes, 0);
        if sequence == 0 || !is_ours {
            return None;
        }
        Some(Self {
            stored_bytes: u32_at(bytes, 4),
            sequence,
            payload_crc: u32_at(bytes, 16),
            raw_bytes: u32_at(bytes, 20),
            group: u64::from(u32_at(bytes, 24)) * 8,
            kind: bytes[28],
            flags: bytes[29],
        })
    }

    /// The size of the whole record in the segment, in bytes.
    pub(super) fn size(&self) -> u64 {
        RECORD_BYTES + padded_bytes(self.stored_bytes as usize)
    }

    /// Returns true if the stored bytes match the crc.
    pub(super) fn matches_crc(&self, stored: &[u8]) -> bool {
        crc32c(stored) == self.payload_crc
    }

    /// The payload as it was appended; `None` if the stored bytes cannot be decompressed.
    pub(super) fn payload(&self, stored: &[u8]) -> Option<Vec<u8>> {
        match self.flags {
            0 => Some(stored.to_vec()),
            LZ4 => {
                let payload = lz4_flex::block::decompress(stored, self.raw_bytes as usize).ok()?;
                (payload.len() == self.raw_bytes as usize).then_some(payload)
            }
            _ => None,
        }
    }
}

fn head_crc(segment: u64, record: &[u8]) -> u32 {
    crc32c_append(crc32c(&segment.to_le_bytes()), &record[4..RECORD_BYTES as usize])
}

/// Computes the id of the segment that an intact record head was written to. The id is only in the crc, and crcs are
/// linear, so the id can be solved for. The result may differ from the real id, but it verifies every head of the
/// segment.
pub(super) fn solve_segment_id(head: &[u8; RECORD_BYTES as usize]) -> u64 {
    let after_id = rewind(!u32_at(head, 0), &head[4..]);
    let after_zeros = !crc32c(&[0; 4]);
    u64::from(after_zeros ^ rewind(after_id, &[0; 4])) << 32
}

/// The crc32c state before these bytes, given the state after them.
fn rewind(state: u32, bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    bytes.iter().rev().fold(state, |state, byte| {
        let before = (0..8).fold(state, |state, _| match state >> 31 {
            0 => state << 1,
            _ => (state ^ POLYNOMIAL) << 1 | 1,
        });
        before ^ u32::from(*byte)
    })
}

fn padded_bytes(length: usize) -> u64 {
    (length as u64).next_multiple_of(8)
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}
