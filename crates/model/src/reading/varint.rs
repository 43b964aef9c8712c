//! Variable-length integers in WAL records and packed readings: LEB128, seven bits per byte, low bits first. Signed
//! integers are zigzag-encoded.

/// Maximum length of an encoded 64-bit number.
const VARINT_BYTES_MAX: usize = 10;

/// Appends a varint.
#[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are written")]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes with their length as a prefix.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends texts with their number as a prefix.
pub fn put_texts<'t>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'t str>) {
    put_varint(out, texts.len() as u64);
    texts.for_each(|text| put_bytes(out, text.as_bytes()));
}

/// Reads what [`put_bytes`] wrote; `None` if the bytes end early.
pub fn take_bytes<'a>(bytes: &'a [u8], position: &mut usize) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(bytes, position)?).ok()?;
    let taken = bytes.get(*position..position.checked_add(length)?)?;
    *position += length;
    Some(taken)
}

/// As [`take_bytes`], for UTF-8.
pub fn take_text<'a>(bytes: &'a [u8], position: &mut usize) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(bytes, position)?).ok()
}

/// Reads a varint at `position` and advances it; `None` if the bytes end early or the number exceeds 64 bits.
#[inline]
pub fn take_varint(bytes: &[u8], position: &mut usize) -> Option<u64> {
    // Most numbers take one byte.
    let first = *bytes.get(*position)?;
    if first < 0x80 {
        *position += 1;
        return Some(u64::from(first));
    }
    // Decode up to eight bytes at once: find the last byte of the number, then close the gaps between the groups of
    // seven bits.
    if let Some(word) = bytes.get(*position..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*word);
        let last = !word & 0x8080_8080_8080_8080;
        if last != 0 {
            let sevens = word & (last ^ (last - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
            let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
            let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
            *position += last.trailing_zeros() as usize / 8 + 1;
            return Some(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4);
        }
    }
    take_longer(bytes, position)
}

/// Reads a number that is near the end of the bytes or longer than eight bytes.
#[cold]
fn take_longer(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let mut value = 0;
    for (index, byte) in bytes.get(*position..)?.iter().take(VARINT_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        value |= bits << (7 * index);
        if *byte < 0x80 {
            // The tenth byte has room for one bit.
            let fits = index + 1 < VARINT_BYTES_MAX || bits <= 1;
            *position += index + 1;
            return fits.then_some(value);
        }
    }
    None
}

/// Zigzag-encodes a signed number: numbers near zero become small.
#[expect(clippy::cast_sign_loss, reason = "zigzag moves the sign into the lowest bit")]
#[must_use]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[expect(clippy::cast_possible_wrap, reason = "zigzag keeps the sign in the lowest bit")]
#[must_use]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0..64_u32), 0..20)) {
            let numbers: Vec<u64> = numbers.into_iter().map(|(number, shift)| number >> shift).collect();
            let mut bytes = Vec::new();
            numbers.iter().for_each(|number| put_varint(&mut bytes, *number));
            let mut position = 0;
            for number in numbers {
                prop_assert_eq!(take_varint(&bytes, &mut position), Some(number));
                prop_assert_eq!(zigzag(unzigzag(number)), number);
            }
            prop_assert_eq!(take_varint(&bytes, &mut position), None, "nothing is left");
        }
    }

    #[test]
    fn truncated_and_oversized_numbers_are_rejected() {
        for bytes in [&[0x80][..], &[0xff; 9], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(take_varint(bytes, &mut 0), None, "{bytes:?}");
        }
    }
}
