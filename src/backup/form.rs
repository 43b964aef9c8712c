//! The form in which a backup keeps the readings of a database and UTC day, and in which the service sends them.
//! docs/backup.md describes it byte by byte.
//!
//! ```text
//! file    := "hourglass backup 1\n"  frame…          the last frame is an end
//! frame   := length: u32  crc32c: u32  payload       little-endian; both are of the payload
//! payload := "S" JSON         a sensor: {"measurement", "tags": [[key, value]…], "fields": [[name, family]…]}
//!          | "R" sealed       readings of the last sensor, packed as docs/sealed-days.md says
//!          | "E" JSON         the end: {"sensors", "readings", "cells", "digest"}
//! ```

use std::io::{self, Read};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::digest::SetDigest;
use crate::bucket::{Readings, SensorDocument, StorageError};
use crate::reading::stamp::SETTLED;
use crate::reading::{Family, Sensor};
use crate::store::sealed;

use super::read::Part;

/// The first bytes.
pub const HEAD: &[u8] = b"hourglass backup 1\n";
/// A longer frame is damage: parts are far smaller.
const FRAME_MAX: usize = 256 << 20;
const FRAME_HEAD: usize = 8;

/// A sensor as a backup keeps it. Everything else of its document follows from its readings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSensor {
    pub measurement: String,
    pub tags: Vec<(String, String)>,
    /// Names with the names of their families, in the order in which the sensor first sent them.
    pub fields: Vec<(String, String)>,
}

/// The last frame: what the frames before it hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub sensors: u64,
    #[serde(flatten)]
    pub set: SetDigest,
}

/// A frame as read.
#[derive(Debug)]
pub enum Frame {
    Sensor(KeptSensor),
    Readings(Readings),
    End(Held),
}

/// Why a file is not a whole backup of a day.
#[derive(Debug, thiserror::Error)]
pub enum NoBackup {
    #[error("it is not a backup of a day that this version knows: it does not begin with {:?}", String::from_utf8_lossy(HEAD).trim_end())]
    Head,
    #[error("it is cut off: it ends before its last frame")]
    Cut,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("reading it failed: {0}")]
    Io(io::Error),
    /// The service said so in the place of a frame.
    #[error("the service could not send all of it: {0}")]
    Refused(String),
}

impl From<io::Error> for NoBackup {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io(error),
        }
    }
}

impl KeptSensor {
    fn of(document: &SensorDocument) -> Self {
        let SensorDocument { sensor, fields, .. } = document;
        Self {
            measurement: sensor.measurement.to_string(),
            tags: sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            fields: fields.iter().map(|(name, family)| (name.to_string(), family.name().to_owned())).collect(),
        }
    }

    /// A document without readings.
    ///
    /// # Errors
    /// If it is none that hourglass wrote.
    pub fn document(&self) -> Result<SensorDocument, NoBackup> {
        let tags = self.tags.iter().map(|(key, value)| (&**key, &**value));
        let twice = |tag| NoBackup::Damaged(format!("a sensor has the tag {tag:?} twice"));
        let sensor = Arc::new(Sensor::new(&self.measurement, tags).map_err(twice)?);
        let unknown = |name: &str| NoBackup::Damaged(format!("a field has the unknown family {name:?}"));
        let field = |(name, family): &(String, String)| {
            Ok((Arc::from(&**name), Family::from_name(family).ok_or_else(|| unknown(family))?))
        };
        let fields = self.fields.iter().map(field).collect::<Result<_, NoBackup>>()?;
        Ok(SensorDocument { fields, ..SensorDocument::new(sensor) })
    }
}

/// Writes frames, and counts what is in them.
#[derive(Debug, Default)]
pub struct Frames {
    held: Held,
    last: Option<Arc<SensorDocument>>,
}

impl Frames {
    /// The frames of a part.
    #[must_use]
    pub fn part(&mut self, part: &Part) -> Vec<u8> {
        let Part { of, readings, .. } = part;
        let mut out = Vec::new();
        if self.last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, of)) {
            self.last = Some(of.clone());
            self.held.sensors += 1;
            put_json(&mut out, b'S', &KeptSensor::of(of));
        }
        self.held.set += SetDigest::of(&of.sensor.key, readings);
        let mut payload = vec![b'R'];
        payload.extend(sealed::pack(readings));
        put(&mut out, &payload);
        out
    }

    /// The last frame.
    #[must_use]
    pub fn end(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_json(&mut out, b'E', &self.held);
        out
    }

    /// What was written so far.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held
    }

    /// A frame that says why no more come.
    #[must_use]
    pub fn refusal(error: &StorageError) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, format!("X{error}").as_bytes());
        out
    }
}

fn put_json(out: &mut Vec<u8>, kind: u8, value: &impl Serialize) {
    let mut payload = vec![kind];
    // Texts and numbers: nothing that JSON cannot hold.
    payload.extend(serde_json::to_vec(value).unwrap_or_default());
    put(out, &payload);
}

fn put(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(crc32c::crc32c(payload).to_le_bytes());
    out.extend(payload);
}

/// Reads frames, and checks that they are whole.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    frames: Frames,
    last: Option<Arc<SensorDocument>>,
}

/// What [`FrameReader::read`] returns.
#[derive(Debug)]
pub enum Next {
    Part(Part),
    /// The end, which is as the parts were.
    End(Held),
}

impl<R: Read> FrameReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`NoBackup`]
    pub fn new(mut from: R) -> Result<Self, NoBackup> {
        let mut head = [0; HEAD.len()];
        from.read_exact(&mut head)?;
        if head != HEAD {
            return Err(NoBackup::Head);
        }
        Ok(Self { from, frames: Frames::default(), last: None })
    }

    /// The next part. After the end nothing may follow.
    ///
    /// # Errors
    /// [`NoBackup`]
    pub fn read(&mut self) -> Result<Next, NoBackup> {
        loop {
            match self.frame()? {
                Frame::Sensor(sensor) => self.last = Some(Arc::new(sensor.document()?)),
                Frame::Readings(readings) => {
                    let without = || NoBackup::Damaged("readings stand before their sensor".to_owned());
                    let of = self.last.clone().ok_or_else(without)?;
                    if self.frames.last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &of)) {
                        self.frames.held.sensors += 1;
                        self.frames.last = Some(of.clone());
                    }
                    self.frames.held.set += SetDigest::of(&of.sensor.key, &readings);
                    return Ok(Next::Part(Part { of, readings, within: None }));
                }
                Frame::End(held) => {
                    if held != self.frames.held {
                        let what = format!("its end says {held:?}, but it holds {:?}", self.frames.held);
                        return Err(NoBackup::Damaged(what));
                    }
                    let more = self.from.read(&mut [0; 1])?;
                    return match more {
                        0 => Ok(Next::End(held)),
                        _ => Err(NoBackup::Damaged("something follows its end".to_owned())),
                    };
                }
            }
        }
    }

    /// What is read from.
    pub fn into_inner(self) -> R {
        self.from
    }

    fn frame(&mut self) -> Result<Frame, NoBackup> {
        let payload = read_frame(&mut self.from)?;
        let (kind, content) = payload.split_first().ok_or_else(|| NoBackup::Damaged("a frame is empty".to_owned()))?;
        let json = |error: serde_json::Error| NoBackup::Damaged(format!("a frame is not what it should be: {error}"));
        match kind {
            b'S' => Ok(Frame::Sensor(serde_json::from_slice(content).map_err(json)?)),
            b'R' => {
                let readings = sealed::unpack_readings(content, SETTLED);
                Ok(Frame::Readings(readings.map_err(|error| NoBackup::Damaged(error.to_string()))?))
            }
            b'E' => Ok(Frame::End(serde_json::from_slice(content).map_err(json)?)),
            b'X' => Err(NoBackup::Refused(String::from_utf8_lossy(content).into_owned())),
            other => Err(NoBackup::Damaged(format!("a frame has the unknown kind {other}"))),
        }
    }
}

/// The payload of the next frame.
fn read_frame(from: &mut impl Read) -> Result<Vec<u8>, NoBackup> {
    let mut head = [0; FRAME_HEAD];
    from.read_exact(&mut head)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::try_from(number(0)).ok().filter(|length| *length <= FRAME_MAX);
    let length = length.ok_or_else(|| NoBackup::Damaged("a frame is longer than any".to_owned()))?;
    // Grows with what is there: a damaged length takes no memory.
    let mut payload = Vec::new();
    from.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(NoBackup::Cut);
    }
    if crc32c::crc32c(&payload) != number(4) {
        return Err(NoBackup::Damaged("a frame has another checksum than it says".to_owned()));
    }
    Ok(payload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bucket::Reading;
    use crate::reading::Value;

    fn file() -> Vec<u8> {
        let mut out = HEAD.to_vec();
        let mut frames = Frames::default();
        for sensor in 0..3 {
            let kept = KeptSensor {
                measurement: "cli,mate".to_owned(),
                tags: vec![("s\\".to_owned(), sensor.to_string())],
                fields: vec![("temp".to_owned(), "number".to_owned())],
            };
            let of = Arc::new(kept.document().unwrap());
            for hour in 0..2_i64 {
                let reading = |n: i64| Reading {
                    time: hour * 3_600_000_000_000 + n,
                    fields: vec![(Arc::from("temp"), Value::Float(f64::from(i32::try_from(n).unwrap()) / 4.0))],
                };
                out.extend(frames.part(&Part {
                    of: of.clone(),
                    readings: (0..50).map(reading).collect(),
                    within: None,
                }));
            }
        }
        out.extend(frames.end());
        out
    }

    fn read(bytes: &[u8]) -> Result<(u64, Held), NoBackup> {
        let (mut reader, mut readings) = (FrameReader::new(bytes)?, 0);
        loop {
            match reader.read()? {
                Next::Part(part) => readings += part.readings.len() as u64,
                Next::End(held) => return Ok((readings, held)),
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (readings, held) = read(&file()).unwrap();
        assert_eq!((readings, held.sensors, held.set.readings, held.set.cells), (300, 3, 300, 300));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let file = file();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(read(&damaged).is_err(), "byte {at}");
            assert!(matches!(read(&file[..at]), Err(NoBackup::Cut)), "cut at {at}");
        }
        assert!(read(&[&file[..], b"more"].concat()).is_err());
    }
}
