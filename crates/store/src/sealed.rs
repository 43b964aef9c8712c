//! The bytes in which both stores keep the readings of a part of a day. docs/reference/stored-forms.md describes them byte by byte.
//!
//! ```text
//! sealed := 1:u8  length:varint (of what follows, uncompressed)  zstd(names set)
//! names  := count:varint (length:varint bytes)…
//! set    := see `bucket::columns`; as many columns as there are names
//! ```

use std::cell::RefCell;
use std::sync::Arc;

use crate::bucket::Readings;
use crate::bucket::columns::{ColumnsDamage, PackedBytes, unpack};
use crate::bucket::day::HOUR_CELLS_MAX;
use crate::bucket::readings::InvalidReadings;
use crate::reading::Stamp;
use crate::reading::varint::{put_texts, put_varint};

/// The first byte.
const FORM: u8 = 1;
/// Of zstd: from here on up, a level saves a twentieth at several times the work.
const LEVEL: i32 = 3;
/// Most bytes before compression: far more than a day may have, and what damaged bytes can make a reader take.
const LENGTH_MAX: usize = 64 << 20;

thread_local! {
    /// zstd's working memory, some hundred kilobytes, which would take longer to make anew than a day takes to compress.
    static ROOM: RefCell<(zstd::bulk::Compressor<'static>, zstd::bulk::Decompressor<'static>)> =
        RefCell::new((new_compressor(), zstd::bulk::Decompressor::default()));
}

fn new_compressor() -> zstd::bulk::Compressor<'static> {
    zstd::bulk::Compressor::new(LEVEL).unwrap_or_default()
}

/// Why bytes are not the readings of a day.
#[derive(Debug, thiserror::Error)]
pub enum NoSealed {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    NoSet(#[from] InvalidReadings),
    #[error("it has form {0}, this program knows {FORM}: use the version that wrote it")]
    Form(u8),
    #[error("it is {0} bytes long, more than any day")]
    Length(u64),
    #[error("its readings cannot be decompressed: {0}")]
    Zstd(std::io::Error),
}

impl NoSealed {
    /// Whether a later version packed it.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Form(form) if *form > FORM)
    }
}

/// Packs the readings of a day.
#[must_use]
pub fn pack(readings: &Readings) -> Vec<u8> {
    let set = readings.packed();
    let mut plain = Vec::with_capacity(set.len() + 256);
    put_texts(&mut plain, readings.columns().map(|(name, _)| &**name));
    plain.extend_from_slice(set);
    let mut out = vec![FORM];
    put_varint(&mut out, plain.len() as u64);
    let packed = ROOM.with_borrow_mut(|(compressor, _)| compressor.compress(&plain));
    #[expect(clippy::expect_used, reason = "an empty day in place of its readings would lose them")]
    out.extend_from_slice(&packed.expect("zstd compresses bytes in memory"));
    out
}

/// Unpacks the readings of a day; all cells are settled at this floor.
///
/// # Errors
/// [`NoSealed`]
pub fn unpack_readings(bytes: &[u8], floor: Stamp) -> Result<Readings, NoSealed> {
    let mut bytes = PackedBytes::new(bytes);
    match bytes.byte()? {
        FORM => {}
        other => return Err(NoSealed::Form(other)),
    }
    let length = bytes.varint()?;
    let capacity = usize::try_from(length).ok().filter(|length| *length <= LENGTH_MAX);
    let capacity = capacity.ok_or(NoSealed::Length(length))?;
    let packed = bytes.rest();
    let plain = ROOM.with_borrow_mut(|(_, decompressor)| decompressor.decompress(packed, capacity));
    let plain = plain.map_err(NoSealed::Zstd)?;
    let mut plain = PackedBytes::new(&plain);
    let names = plain.texts()?;
    let (times, columns) = unpack(plain.rest(), names.len(), HOUR_CELLS_MAX)?;
    let mut readings = Readings::from_columns(times, names.into_iter().map(Arc::from).zip(columns))?;
    readings.raise_floor(floor);
    Ok(readings)
}
