//! The frames between instances.
//!
//! ```text
//! frame    := version:varint from:opening to:u8 (0 | 1 opening) greatest:varint kind:u8 number:varint …
//! opening  := folder:varint start:varint
//! kind     := 0 part: ack:u8 (0 logged, 1 stored) not_after:varint records:bytes
//!           | 1 answer of a part: u8 (0 logged, 1 stored, 2 late, 3 refused, 4 busy) count:varint line:varint…
//!           | 2 probe | 3 its answer
//!           | 4 question: bytes | 5 its answer: bytes
//! bytes    := length:varint …
//! ```
//! `records` is a record of the WAL (`buffer/record/`). Questions are in `questions.rs`.

use hourglass_members::{Ack, FolderId, Frame, FrameBody, Opening, Part, PartAnswer, Stamp};

use crate::reading::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// Encodes a frame.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_varint(&mut out, u64::from(frame.version));
    put_opening(&mut out, frame.from);
    out.push(u8::from(frame.to.is_some()));
    if let Some(to) = frame.to {
        put_opening(&mut out, to);
    }
    put_varint(&mut out, frame.greatest.0);
    let mut head = |kind: u8, number: u64| {
        out.push(kind);
        put_varint(&mut out, number);
    };
    match &frame.body {
        FrameBody::Part(Part { number, records, ack, not_after }) => {
            head(0, *number);
            out.push(u8::from(*ack == Ack::Stored));
            put_varint(&mut out, not_after.0);
            put_bytes(&mut out, records);
        }
        FrameBody::PartAnswer { number, answer } => {
            head(1, *number);
            put_answer(&mut out, answer);
        }
        FrameBody::Probe { number } => head(2, *number),
        FrameBody::ProbeAnswer { number } => head(3, *number),
        FrameBody::Question { number, question } => {
            head(4, *number);
            put_bytes(&mut out, question);
        }
        FrameBody::Answer { number, answer } => {
            head(5, *number);
            put_bytes(&mut out, answer);
        }
    }
    out
}

fn put_opening(out: &mut Vec<u8>, opening: Opening) {
    put_varint(out, opening.folder.0);
    put_varint(out, u64::from(opening.start));
}

fn put_answer(out: &mut Vec<u8>, answer: &PartAnswer) {
    let kind = match answer {
        PartAnswer::Logged { .. } => 0,
        PartAnswer::Stored => 1,
        PartAnswer::Late => 2,
        PartAnswer::Refused => 3,
        PartAnswer::Busy => 4,
    };
    out.push(kind);
    if let PartAnswer::Logged { rejected } = answer {
        put_varint(out, rejected.len() as u64);
        rejected.iter().for_each(|line| put_varint(out, u64::from(*line)));
    }
}

/// Decodes a frame; `None` if it is malformed.
pub fn decode(bytes: &[u8]) -> Option<Frame> {
    let mut position = 0;
    let at = &mut position;
    let version = u16::try_from(take_varint(bytes, at)?).ok()?;
    let from = take_opening(bytes, at)?;
    let to = if take_byte(bytes, at)? == 0 { None } else { Some(take_opening(bytes, at)?) };
    let greatest = Stamp(take_varint(bytes, at)?);
    let kind = take_byte(bytes, at)?;
    let number = take_varint(bytes, at)?;
    let body = match kind {
        0 => {
            let ack = if take_byte(bytes, at)? == 0 { Ack::Logged } else { Ack::Stored };
            let not_after = Stamp(take_varint(bytes, at)?);
            FrameBody::Part(Part { number, records: take_bytes(bytes, at)?.into(), ack, not_after })
        }
        1 => FrameBody::PartAnswer { number, answer: take_answer(bytes, at)? },
        2 => FrameBody::Probe { number },
        3 => FrameBody::ProbeAnswer { number },
        4 => FrameBody::Question { number, question: take_bytes(bytes, at)?.into() },
        5 => FrameBody::Answer { number, answer: take_bytes(bytes, at)?.into() },
        _ => return None,
    };
    Some(Frame { from, version, to, greatest, body })
}

fn take_byte(bytes: &[u8], position: &mut usize) -> Option<u8> {
    *position += 1;
    bytes.get(*position - 1).copied()
}

fn take_opening(bytes: &[u8], position: &mut usize) -> Option<Opening> {
    let folder = FolderId(take_varint(bytes, position)?);
    Some(Opening { folder, start: u32::try_from(take_varint(bytes, position)?).ok()? })
}

fn take_answer(bytes: &[u8], position: &mut usize) -> Option<PartAnswer> {
    Some(match take_byte(bytes, position)? {
        0 => {
            let count = take_varint(bytes, position)?;
            let line = |_| u32::try_from(take_varint(bytes, position)?).ok();
            PartAnswer::Logged { rejected: (0..count).map(line).collect::<Option<_>>()? }
        }
        1 => PartAnswer::Stored,
        2 => PartAnswer::Late,
        3 => PartAnswer::Refused,
        4 => PartAnswer::Busy,
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back() {
        let from = Opening { folder: FolderId(u64::MAX), start: 7 };
        let part = Part { number: 9, records: [1, 2, 3].into(), ack: Ack::Stored, not_after: Stamp(u64::MAX) };
        let bodies = [
            FrameBody::Part(part),
            FrameBody::PartAnswer { number: 1, answer: PartAnswer::Logged { rejected: vec![0, 300] } },
            FrameBody::PartAnswer { number: 1, answer: PartAnswer::Busy },
            FrameBody::Probe { number: u64::MAX },
            FrameBody::ProbeAnswer { number: 3 },
            FrameBody::Question { number: 4, question: [].into() },
            FrameBody::Answer { number: 5, answer: [0; 300].into() },
        ];
        for (to, body) in [None, Some(from)].into_iter().cycle().zip(bodies) {
            let frame = Frame { from, version: 1, to, greatest: Stamp(5), body };
            let bytes = encode(&frame);
            assert_eq!(format!("{:?}", decode(&bytes).unwrap()), format!("{frame:?}"));
            for length in 0..bytes.len() {
                assert!(decode(&bytes[..length]).is_none(), "{length} of {frame:?}");
            }
        }
    }
}
