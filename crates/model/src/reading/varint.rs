//! Variable-length integers: LEB128, seven bits per byte, low bits first; signed integers are zigzag-encoded. WAL
//! records and packed readings use them.

/// Appends a varint.
#[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are written")]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a varint at `at` and advances `at`; `None` if the bytes end early or the number exceeds 64 bits.
pub fn take_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    // Most numbers take one byte.
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift).filter(|bits| bits >> shift == u64::from(byte & 0x7f))?;
        if byte < 0x80 {
            return Some(value);
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
            let mut at = 0;
            for number in numbers {
                prop_assert_eq!(take_varint(&bytes, &mut at), Some(number));
                prop_assert_eq!(zigzag(unzigzag(number)), number);
            }
            prop_assert_eq!(take_varint(&bytes, &mut at), None, "nothing is left");
        }
    }

    #[test]
    fn what_is_no_number_of_64_bits_is_none() {
        for bytes in [&[0x80][..], &[0xff; 9], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]]
        {
            assert_eq!(take_varint(bytes, &mut 0), None, "{bytes:?}");
        }
    }
}
