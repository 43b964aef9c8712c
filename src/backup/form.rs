//! The format of the files of a backup, and of the answers with which the service sends them. A file has the readings
//! of one UTC day of a database, or its sensors. docs/how-to/backup.md describes the format byte by byte. Files of a backup
//! are compressed as a whole with zstd.
//!
//! ```text
//! file    := "hourglass backup 1\n"  frame…          the last frame is an end
//! frame   := length: u32  crc32c: u32  payload       little-endian; both are of the payload
//! payload := "S" JSON         a sensor: {"measurement", "tags": [[key, value]…], "fields": [[name, family]…]}
//!          | "R" sealed       readings of the last sensor, packed as docs/reference/stored-forms.md says
//!          | "H" summaries    summaries of expired readings of the last sensor: `backup::expired`
//!          | "D" JSON         a sensor of a file of sensors: as "S", with "meta" if it has some
//!          | "E" JSON         the end: {"sensors", "readings", "cells", "digest"}, with "summaries" and "metadata" if not
//!                             zero; in a file of sensors also "content", a digest of all "D"
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::digest::{SetDigest, hexadecimal, number};
use super::expired;
use crate::bucket::{Meta, SensorDocument, StorageError};
use crate::reading::stamp::SETTLED;
use crate::reading::{Family, Sensor};
use crate::store::sealed;

use super::read::{ExpiredPart, Part, Piece};

/// The first bytes of a file.
pub const HEAD: &[u8] = b"hourglass backup 1\n";
/// Maximum length of a frame in bytes. A longer one is damaged, because parts are far smaller.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Length of the head of a frame in bytes.
const FRAME_HEAD: usize = 8;

/// A sensor in a backup. All other members of its document follow from its readings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupSensor {
    pub measurement: String,
    pub tags: Vec<(String, String)>,
    /// The names of fields and of their families, in the order in which the sensor first sent them.
    pub fields: Vec<(String, String)>,
    /// The metadata. Empty in files of readings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, Box<RawValue>>,
}

/// The totals of a file, as its last frame states them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTotals {
    pub sensors: u64,
    #[serde(flatten)]
    pub set: SetDigest,
    /// The digest of all sensors with their fields and metadata. It is 0 in files of readings.
    #[serde(default, with = "hexadecimal", skip_serializing_if = "is_zero")]
    pub content: u128,
}

fn is_zero(content: &u128) -> bool {
    *content == 0
}

/// The reason why a file is no valid part of a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("this version does not know the format of the file: it does not begin with {:?}", String::from_utf8_lossy(HEAD).trim_end())]
    Head,
    #[error("it is cut off: it ends before its last frame")]
    Cut,
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error("reading it failed: {0}")]
    Io(io::Error),
    /// The service sent the reason instead of a frame.
    #[error("the service could not send all of it: {0}")]
    Refused(String),
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Io(error),
        }
    }
}

impl BackupSensor {
    fn without_meta(document: &SensorDocument) -> Self {
        let SensorDocument { sensor, fields, .. } = document;
        Self {
            measurement: sensor.measurement.to_string(),
            tags: sensor.tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            fields: fields.iter().map(|(name, family)| (name.to_string(), family.name().to_owned())).collect(),
            meta: BTreeMap::new(),
        }
    }

    fn with_meta(document: &SensorDocument) -> Self {
        let value =
            |(name, json): (&str, &Arc<str>)| Some((name.to_owned(), RawValue::from_string(json.to_string()).ok()?));
        Self { meta: document.meta.values().filter_map(value).collect(), ..Self::without_meta(document) }
    }

    /// Returns a document without readings. Its metadata is older than every later change.
    ///
    /// # Errors
    /// If the tags or families are invalid.
    pub fn document(&self) -> Result<SensorDocument, BackupError> {
        let tags = self.tags.iter().map(|(key, value)| (&**key, &**value));
        let twice = |tag| BackupError::Damaged(format!("a sensor has the tag {tag:?} twice"));
        let sensor = Arc::new(Sensor::new(&self.measurement, tags).map_err(twice)?);
        let unknown = |name: &str| BackupError::Damaged(format!("a field has the unknown family {name:?}"));
        let field = |(name, family): &(String, String)| {
            Ok((Arc::from(&**name), Family::from_name(family).ok_or_else(|| unknown(family))?))
        };
        let fields = self.fields.iter().map(field).collect::<Result<_, BackupError>>()?;
        let values = self.meta.iter().map(|(name, json)| (name.as_str().into(), Some(Arc::from(json.get()))));
        let meta = Meta::change(SETTLED, false, values);
        Ok(SensorDocument { fields, meta, ..SensorDocument::new(sensor) })
    }
}

/// Builds frames, and adds up their totals.
#[derive(Debug, Default)]
pub struct Frames {
    totals: FileTotals,
    last: Option<Arc<SensorDocument>>,
}

impl Frames {
    /// Returns the frames of a piece: the sensor if it is a new one, and the content.
    #[must_use]
    pub fn piece(&mut self, piece: &Piece) -> Vec<u8> {
        let mut frames = Vec::new();
        if self.count(piece) {
            frames = frame(&json_payload(b'S', &BackupSensor::without_meta(piece.document())));
        }
        let (kind, content) = match piece {
            Piece::Readings(part) => (b'R', sealed::pack(&part.readings)),
            Piece::Expired(part) => (b'H', expired::pack(part.day, part.part, &part.expired)),
        };
        frames.extend(frame(&[&[kind], &content[..]].concat()));
        frames
    }

    /// Counts a piece. Returns true if its sensor differs from that of the previous piece.
    fn count(&mut self, piece: &Piece) -> bool {
        let document = piece.document();
        let is_new = self.last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, document));
        if is_new {
            self.last = Some(document.clone());
            self.totals.sensors += 1;
        }
        self.totals.set += piece.digest();
        is_new
    }

    /// Returns the frame of a sensor with its metadata.
    #[must_use]
    pub fn sensor(&mut self, document: &SensorDocument) -> Vec<u8> {
        let payload = json_payload(b'D', &BackupSensor::with_meta(document));
        self.count_sensor(document, content_digest(&payload));
        frame(&payload)
    }

    fn count_sensor(&mut self, document: &SensorDocument, content: u128) {
        self.totals.sensors += 1;
        self.totals.set += SetDigest::from_meta(&document.sensor.key, &document.meta);
        self.totals.content = self.totals.content.wrapping_add(content);
    }

    /// Returns the last frame.
    #[must_use]
    pub fn end(self) -> Vec<u8> {
        frame(&json_payload(b'E', &self.totals))
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn totals(&self) -> FileTotals {
        self.totals
    }

    /// Returns a frame with the reason why no more frames follow.
    #[must_use]
    pub fn refusal(error: &StorageError) -> Vec<u8> {
        frame(format!("X{error}").as_bytes())
    }
}

fn json_payload(kind: u8, value: &impl Serialize) -> Vec<u8> {
    let mut payload = vec![kind];
    // Serialising texts and numbers cannot fail.
    payload.extend(serde_json::to_vec(value).unwrap_or_default());
    payload
}

/// Returns the summand of [`FileTotals::content`] for one sensor.
fn content_digest(payload: &[u8]) -> u128 {
    number(&Sha256::digest(payload))
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&length[..], &crc32c::crc32c(payload).to_le_bytes()[..], payload].concat()
}

/// Reads frames, and checks that they are complete and undamaged.
#[derive(Debug)]
pub struct FrameReader<R> {
    reader: R,
    frames: Frames,
    last: Option<Arc<SensorDocument>>,
}

/// An item of a file.
#[derive(Debug)]
pub enum FrameItem {
    Piece(Piece),
    /// A sensor with its metadata.
    Sensor(SensorDocument),
    /// The end, whose totals match the frames before.
    End(FileTotals),
}

impl<R: Read> FrameReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// [`BackupError`]
    pub fn new(mut reader: R) -> Result<Self, BackupError> {
        let mut head = [0; HEAD.len()];
        reader.read_exact(&mut head)?;
        if head != HEAD {
            return Err(BackupError::Head);
        }
        Ok(Self { reader, frames: Frames::default(), last: None })
    }

    /// Reads the next item. It is an error if anything follows the end.
    ///
    /// # Errors
    /// [`BackupError`]
    pub fn read(&mut self) -> Result<FrameItem, BackupError> {
        let json = |error: serde_json::Error| BackupError::Damaged(format!("a frame has invalid JSON: {error}"));
        let damaged = |error: &dyn std::fmt::Display| BackupError::Damaged(error.to_string());
        loop {
            let payload = read_frame(&mut self.reader)?;
            let (kind, content) = payload.split_first().ok_or_else(|| damaged(&"a frame is empty"))?;
            match kind {
                b'S' => {
                    let sensor: BackupSensor = serde_json::from_slice(content).map_err(json)?;
                    self.last = Some(Arc::new(sensor.document()?));
                }
                b'R' => {
                    let readings = sealed::unpack_readings(content, SETTLED).map_err(|error| damaged(&error))?;
                    return self.piece(|document| Piece::Readings(Part { document, readings, times: None }));
                }
                b'H' => {
                    let (day, part, expired) = expired::unpack(content).map_err(|error| damaged(&error))?;
                    return self.piece(|document| Piece::Expired(ExpiredPart { document, day, part, expired }));
                }
                b'D' => {
                    let sensor: BackupSensor = serde_json::from_slice(content).map_err(json)?;
                    let document = sensor.document()?;
                    self.frames.count_sensor(&document, content_digest(&payload));
                    return Ok(FrameItem::Sensor(document));
                }
                b'E' => {
                    let totals: FileTotals = serde_json::from_slice(content).map_err(json)?;
                    if totals != self.frames.totals {
                        let what = format!("its end states {totals:?}, but it has {:?}", self.frames.totals);
                        return Err(BackupError::Damaged(what));
                    }
                    return match self.reader.read(&mut [0; 1])? {
                        0 => Ok(FrameItem::End(totals)),
                        _ => Err(damaged(&"something follows its end")),
                    };
                }
                b'X' => return Err(BackupError::Refused(String::from_utf8_lossy(content).into_owned())),
                other => return Err(BackupError::Damaged(format!("a frame has the unknown kind {other}"))),
            }
        }
    }

    fn piece(&mut self, piece: impl FnOnce(Arc<SensorDocument>) -> Piece) -> Result<FrameItem, BackupError> {
        let without = || BackupError::Damaged("readings precede their sensor".to_owned());
        let piece = piece(self.last.clone().ok_or_else(without)?);
        self.frames.count(&piece);
        Ok(FrameItem::Piece(piece))
    }
}

/// Reads the payload of the next frame.
fn read_frame(reader: &mut impl Read) -> Result<Vec<u8>, BackupError> {
    let mut head = [0; FRAME_HEAD];
    reader.read_exact(&mut head)?;
    let number = |start: usize| u32::from_le_bytes([head[start], head[start + 1], head[start + 2], head[start + 3]]);
    let length = usize::try_from(number(0)).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let too_long = || BackupError::Damaged(format!("a frame is longer than {FRAME_BYTES_MAX} bytes"));
    let length = length.ok_or_else(too_long)?;
    // The buffer grows with the bytes read, so that a damaged length allocates nothing.
    let mut payload = Vec::new();
    reader.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(BackupError::Cut);
    }
    if crc32c::crc32c(&payload) != number(4) {
        return Err(BackupError::Damaged("the checksum of a frame is wrong".to_owned()));
    }
    Ok(payload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bucket::{DayPart, ExpiredDay, Reading};
    use crate::reading::{Day, Value};

    fn file() -> Vec<u8> {
        let mut out = HEAD.to_vec();
        let mut frames = Frames::default();
        for sensor in 0..3 {
            let kept = BackupSensor {
                measurement: "cli,mate".to_owned(),
                tags: vec![("s\\".to_owned(), sensor.to_string())],
                fields: vec![("temp".to_owned(), "number".to_owned())],
                meta: BTreeMap::from([("at".to_owned(), RawValue::from_string("{\"x\":0.1}".to_owned()).unwrap())]),
            };
            let document = Arc::new(kept.document().unwrap());
            for hour in 0..2_i64 {
                let reading = |n: i64| Reading {
                    time: hour * 3_600_000_000_000 + n,
                    fields: vec![(Arc::from("temp"), Value::Float(f64::from(i32::try_from(n).unwrap()) / 4.0))],
                };
                let readings = (0..50).map(reading).collect();
                let part = Part { document: document.clone(), readings, times: None };
                out.extend(frames.piece(&Piece::Readings(part)));
            }
            let expired = ExpiredDay::from_readings(
                &[3_i64].into_iter().map(|time| Reading { time, fields: Vec::new() }).collect(),
            );
            let part = ExpiredPart { document: document.clone(), day: Day(0), part: DayPart::Whole, expired };
            out.extend(frames.piece(&Piece::Expired(part)));
            out.extend(frames.sensor(&document));
        }
        out.extend(frames.end());
        out
    }

    fn read(bytes: &[u8]) -> Result<(u64, FileTotals), BackupError> {
        let mut reader = FrameReader::new(bytes)?;
        let mut readings = 0;
        loop {
            match reader.read()? {
                FrameItem::Piece(piece) => readings += piece.readings().map_or(0, |part| part.readings.len() as u64),
                FrameItem::Sensor(document) => {
                    assert_eq!(document.meta.get("at").map(|json| &**json), Some("{\"x\":0.1}"))
                }
                FrameItem::End(totals) => return Ok((readings, totals)),
            }
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (readings, totals) = read(&file()).unwrap();
        assert_eq!((readings, totals.sensors, totals.set.readings, totals.set.cells), (300, 6, 300, 300));
        assert_eq!((totals.set.summaries, totals.set.metadata), (3, 3));
    }

    #[test]
    fn another_form_is_refused() {
        assert!(matches!(read(b"hourglass backup 2\n"), Err(BackupError::Head)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let file = file();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(read(&damaged).is_err(), "byte {at}");
            assert!(matches!(read(&file[..at]), Err(BackupError::Cut)), "cut at {at}");
        }
        assert!(read(&[&file[..], b"more"].concat()).is_err());
    }
}
