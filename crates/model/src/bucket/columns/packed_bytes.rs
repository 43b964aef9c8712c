//! A reader over the bytes of packed columns, which may be damaged.

use super::ColumnsDamage;
use crate::reading::varint::take_varint;

/// A reader over bytes.
#[derive(Debug, Clone)]
pub struct PackedBytes<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> PackedBytes<'a> {
    /// A reader at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The number of unread bytes.
    #[must_use]
    pub fn unread_len(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The unread bytes.
    #[must_use]
    pub fn unread(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`ColumnsDamage::Left`] if some were not.
    pub fn end(&self) -> Result<(), ColumnsDamage> {
        match self.unread_len() {
            0 => Ok(()),
            left => Err(ColumnsDamage::Left(left)),
        }
    }

    /// Reads the next varint.
    ///
    /// # Errors
    /// [`ColumnsDamage::Cut`] if the bytes end early or the number has more than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, ColumnsDamage> {
        take_varint(self.bytes, &mut self.position).ok_or_else(|| self.cut())
    }

    /// Skips `count` varints, eight bytes at a time. The last byte of a varint has its highest bit clear.
    #[inline]
    pub(super) fn skip_varints(&mut self, mut count: usize) -> Result<(), ColumnsDamage> {
        while let Some(word) = self.unread().first_chunk().filter(|_| count > 0) {
            let mut ends = !u64::from_le_bytes(*word) & 0x8080_8080_8080_8080;
            let found = ((ends >> 7).wrapping_mul(0x0101_0101_0101_0101) >> 56) as usize;
            if found >= count {
                (1..count).for_each(|_| ends &= ends - 1);
                self.position += ends.trailing_zeros() as usize / 8 + 1;
                return Ok(());
            }
            count -= found;
            self.position += 8;
        }
        while count > 0 {
            count -= usize::from(self.byte()? < 0x80);
        }
        Ok(())
    }

    /// Reads the next byte.
    ///
    /// # Errors
    /// [`ColumnsDamage::Cut`] at the end.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, ColumnsDamage> {
        let byte = *self.bytes.get(self.position).ok_or_else(|| self.cut())?;
        self.position += 1;
        Ok(byte)
    }

    /// Reads the next `count` bytes.
    ///
    /// # Errors
    /// [`ColumnsDamage::Cut`] if there are fewer.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], ColumnsDamage> {
        let taken = self.unread().get(..count).ok_or_else(|| self.cut())?;
        self.position += count;
        Ok(taken)
    }

    /// Reads length-prefixed bytes.
    ///
    /// # Errors
    /// [`ColumnsDamage::Cut`] if they end early.
    pub fn prefixed_bytes(&mut self) -> Result<&'a [u8], ColumnsDamage> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        self.take(length)
    }

    /// Reads a length-prefixed text.
    ///
    /// # Errors
    /// [`ColumnsDamage::Cut`] if it ends early, [`ColumnsDamage::Text`] if it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, ColumnsDamage> {
        std::str::from_utf8(self.prefixed_bytes()?).map_err(|_| ColumnsDamage::Text)
    }

    /// Reads a list of texts: their number, then the texts.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn texts(&mut self) -> Result<Vec<&'a str>, ColumnsDamage> {
        let count = self.varint()?;
        // Each text takes at least one byte, so a damaged number cannot demand more memory than the bytes left.
        let mut texts = Vec::with_capacity(usize::try_from(count).unwrap_or(usize::MAX).min(self.unread_len()));
        for _ in 0..count {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    /// Reads a float: its number of bytes, then the bytes.
    #[inline]
    pub(super) fn float(&mut self) -> Result<f64, ColumnsDamage> {
        let count = self.byte()?;
        let unknown = ColumnsDamage::Unknown { what: "a float's number of bytes", found: u64::from(count) };
        if let (1..=8, Some(eight)) = (count, self.unread().first_chunk()) {
            self.position += usize::from(count);
            return Ok(f64::from_bits(u64::from_be_bytes(*eight) & u64::MAX << (64 - 8 * u32::from(count))));
        }
        let mut float = [0; 8];
        float.get_mut(..usize::from(count)).ok_or(unknown)?.copy_from_slice(self.take(usize::from(count))?);
        Ok(f64::from_bits(u64::from_be_bytes(float)))
    }

    fn cut(&self) -> ColumnsDamage {
        ColumnsDamage::Cut { position: self.position, len: self.bytes.len() }
    }
}
