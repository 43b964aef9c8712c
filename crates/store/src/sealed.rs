//! The encoding of the readings of a day's part, which both stores share. docs/reference/stored-forms.md describes it byte
//! by byte.
//!
//! ```text
//! sealed := 1:u8  length:varint (of the rest, uncompressed)  zstd(names set)
//!         | 2:u8  length:varint  zstd(bounds names set)     if fields have bounds: field bounds, see `distributions`
//! names  := count:varint (length:varint bytes)…
//! set    := see `bucket::columns`; as many columns as there are names
//! ```

use std::cell::RefCell;
use std::sync::Arc;

use crate::bucket::Readings;
use crate::bucket::columns::{ColumnsDamage, PackedBytes, unpack};
use crate::bucket::day::HOUR_CELLS_MAX;
use crate::bucket::readings::InvalidReadings;
use crate::bucket::summary::distribution::FieldBounds;
use crate::distributions;
use crate::reading::Stamp;
use crate::reading::varint::{put_texts, put_varint};

/// The first byte.
const FORM: u8 = 1;
/// The first byte of readings with bounds.
const BOUNDED: u8 = 2;
/// The zstd level. Higher levels save about 5 % at several times the work.
const LEVEL: i32 = 3;
/// Maximum uncompressed size in bytes. Far above the size of any day; it bounds the memory that damaged bytes can claim.
const LENGTH_MAX: usize = 64 << 20;

/// The contexts of zstd.
struct Zstd {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

thread_local! {
    /// The contexts take some hundred kilobytes. Creating them takes longer than compressing a day, so each thread keeps them.
    static ZSTD: RefCell<Zstd> = RefCell::new(Zstd {
        compressor: zstd::bulk::Compressor::new(LEVEL).unwrap_or_default(),
        decompressor: zstd::bulk::Decompressor::default(),
    });
}

/// The reason that bytes cannot be decoded as sealed readings.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    NoSet(#[from] InvalidReadings),
    #[error("unknown form {0}; this program knows forms {FORM} and {BOUNDED}; use the version that wrote it")]
    Form(u8),
    #[error("uncompressed length of {0} bytes exceeds {LENGTH_MAX}")]
    Length(u64),
    #[error("cannot decompress the readings: {0}")]
    Zstd(std::io::Error),
}

impl SealedError {
    /// Returns true if a later version of this program encoded the readings.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Form(form) if *form > BOUNDED)
    }
}

/// Encodes the readings of a day.
#[must_use]
pub fn pack(readings: &Readings) -> Vec<u8> {
    let set = readings.packed();
    let mut plain = Vec::with_capacity(set.len() + 256);
    let has_bounds = !readings.bounds().is_empty();
    if has_bounds {
        distributions::put_fields(&mut plain, readings.bounds());
    }
    put_texts(&mut plain, readings.columns().map(|(name, _)| &**name));
    plain.extend_from_slice(set);
    let mut out = vec![if has_bounds { BOUNDED } else { FORM }];
    put_varint(&mut out, plain.len() as u64);
    let packed = ZSTD.with_borrow_mut(|zstd| zstd.compressor.compress(&plain));
    #[expect(clippy::expect_used, reason = "returning an empty day would lose the readings")]
    out.extend_from_slice(&packed.expect("zstd compresses bytes in memory"));
    out
}

/// Decodes the readings of a day. All cells are settled at `floor`.
///
/// # Errors
/// [`SealedError`]
pub fn unpack_readings(bytes: &[u8], floor: Stamp) -> Result<Readings, SealedError> {
    let mut bytes = PackedBytes::new(bytes);
    let has_bounds = match bytes.byte()? {
        FORM => false,
        BOUNDED => true,
        other => return Err(SealedError::Form(other)),
    };
    let length = bytes.varint()?;
    let capacity = usize::try_from(length).ok().filter(|length| *length <= LENGTH_MAX);
    let capacity = capacity.ok_or(SealedError::Length(length))?;
    let packed = bytes.unread();
    let plain = ZSTD.with_borrow_mut(|zstd| zstd.decompressor.decompress(packed, capacity));
    let plain = plain.map_err(SealedError::Zstd)?;
    let mut plain = PackedBytes::new(&plain);
    let bounds = if has_bounds { distributions::take_fields(&mut plain)? } else { FieldBounds::default() };
    let names = plain.texts()?;
    let (times, columns) = unpack(plain.unread(), names.len(), HOUR_CELLS_MAX)?;
    let mut readings = Readings::from_columns(times, names.into_iter().map(Arc::from).zip(columns))?;
    readings.set_bounds(&bounds);
    readings.raise_floor(floor);
    Ok(readings)
}
