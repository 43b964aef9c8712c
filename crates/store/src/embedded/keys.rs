//! Keys of the embedded store's tables: bytes that sort by (database, hour, sensor, page) or by (database, sensor).
//!
//! ```text
//! page:   text(database) hour text(sensor) number        hour: i64, sign bit flipped, big-endian; number: u32, big-endian
//! day:    text(database) day text(sensor) part           day: as an hour
//! part:   nothing | 01 hour:u8 | 02 stamp:u64 hour:u8    the whole day, an hour of it, a chunk; big-endian
//! month:  text(database) month text(sensor)              month: as an hour
//! sensor: text(database) sensor                          sensor: plain UTF-8
//! text:   the UTF-8 bytes, 00 written as 00 FF, and 00 00 at the end
//! ```
//!
//! `text` preserves the order of the names, and no encoded text is a prefix of another. The hour precedes the sensor so
//! that a flush writes neighbouring keys. This writes 1.5 bytes to the disk per byte of page; the reverse order writes
//! 5.4.

use std::ops::Range;

use crate::bucket::DayPart;
use crate::reading::{Day, Hour, Month};

/// End of a text. Unambiguous, because a NUL within a text is followed by [`ESCAPED`].
const END: [u8; 2] = [0, 0];
/// The second byte of a NUL within a text.
const ESCAPED: u8 = 0xFF;

/// The keys of one database, all of which begin with its name.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: Vec<u8>,
}

impl Keys {
    /// Returns the keys of this database.
    pub(super) fn new(database: &str) -> Self {
        let mut prefix = Vec::with_capacity(database.len() + END.len());
        put_text(&mut prefix, database);
        Self { prefix }
    }

    /// Returns the key of a page.
    pub(super) fn page(&self, hour: Hour, sensor: &str, number: u32) -> Vec<u8> {
        let mut key = self.bucket(hour, sensor);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// Returns the common prefix of the keys of a bucket's pages. No other key has it.
    pub(super) fn bucket(&self, hour: Hour, sensor: &str) -> Vec<u8> {
        let mut key = self.hour(hour);
        put_text(&mut key, sensor);
        key
    }

    /// Returns a key that sorts before every page of this hour and after every page of earlier hours.
    pub(super) fn hour(&self, hour: Hour) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + 128);
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(&(hour.0 ^ i64::MIN).to_be_bytes());
        key
    }

    /// Returns the key of a part of a day.
    pub(super) fn day(&self, day: Day, sensor: &str, part: DayPart) -> Vec<u8> {
        let mut key = self.bucket(Hour(day.0), sensor);
        match part {
            DayPart::Whole => {}
            DayPart::Hour(hour) => key.extend([1, hour]),
            DayPart::Chunk { stamp, hour } => {
                key.push(2);
                key.extend(stamp.to_be_bytes());
                key.push(hour);
            }
        }
        key
    }

    /// Returns the key of a sensor's month.
    pub(super) fn month(&self, month: Month, sensor: &str) -> Vec<u8> {
        self.bucket(Hour(month.0), sensor)
    }

    /// Returns a key that sorts after every part of a sensor's day and before those of later sensors.
    pub(super) fn day_end(&self, day: Day, sensor: &str) -> Vec<u8> {
        Self::parts_end(&self.day(day, sensor, DayPart::Whole))
    }

    /// As [`Keys::day_end`], from the key of [`DayPart::Whole`].
    pub(super) fn parts_end(whole: &[u8]) -> Vec<u8> {
        [whole, &[u8::MAX]].concat()
    }

    /// Returns a key that sorts before every part of this day and after those of earlier days.
    pub(super) fn day_start(&self, day: Day) -> Vec<u8> {
        self.hour(Hour(day.0))
    }

    /// Returns the day of a part's key; `None` for other databases.
    pub(super) fn parse_day(&self, key: &[u8]) -> Option<Day> {
        self.parse_hour(key).map(|number| Day(number.0))
    }

    /// Returns the part of a key of this sensor and day; `None` for other keys.
    pub(super) fn parse_part(&self, key: &[u8], day: Day, sensor: &str) -> Option<DayPart> {
        Self::parse_part_suffix(&self.day(day, sensor, DayPart::Whole), key)
    }

    /// As [`Keys::parse_part`], from the key of [`DayPart::Whole`].
    pub(super) fn parse_part_suffix(whole: &[u8], key: &[u8]) -> Option<DayPart> {
        decode_part(key.strip_prefix(whole)?)
    }

    /// Returns the sensor, day and part of a part's key of any database.
    pub(super) fn parse_any_day(key: &[u8]) -> Option<(String, Day, DayPart)> {
        let keys = Self { prefix: key[..text_end(key)?].to_vec() };
        let rest = key.get(keys.prefix.len() + size_of::<i64>()..)?;
        let (sensor, rest) = rest.split_at(text_end(rest)?);
        Some((take_text(sensor)?, keys.parse_day(key)?, decode_part(rest)?))
    }

    /// Returns the hour of a page key; `None` for other databases.
    pub(super) fn parse_hour(&self, key: &[u8]) -> Option<Hour> {
        let hour = key.strip_prefix(&*self.prefix)?.first_chunk::<8>()?;
        Some(Hour(i64::from_be_bytes(*hour) ^ i64::MIN))
    }

    /// Returns the hour, sensor and number of a page key; `None` for other databases.
    pub(super) fn parse_page(&self, key: &[u8]) -> Option<(Hour, String, u32)> {
        let hour = self.parse_hour(key)?;
        let (text, number) = key.get(self.prefix.len() + size_of::<i64>()..)?.split_last_chunk::<4>()?;
        Some((hour, take_text(text)?, u32::from_be_bytes(*number)))
    }

    /// As [`Keys::parse_page`], for a page key of any database.
    pub(super) fn parse_any_page(key: &[u8]) -> Option<(Hour, String, u32)> {
        Self { prefix: key[..text_end(key)?].to_vec() }.parse_page(key)
    }

    /// Returns the sensor of a sensor key of any database.
    pub(super) fn parse_sensor(key: &[u8]) -> Option<&str> {
        std::str::from_utf8(&key[text_end(key)?..]).ok()
    }

    /// Returns the prefix of a bucket's page keys, from one of these keys.
    pub(super) fn bucket_prefix(key: &[u8]) -> &[u8] {
        &key[..key.len().saturating_sub(size_of::<u32>())]
    }

    /// Returns the key of a sensor document. Keys sort as the sensors do.
    pub(super) fn sensor(&self, sensor: &str) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(sensor.as_bytes());
        key
    }

    /// Returns the range of all keys of this database.
    pub(super) fn all(&self) -> Range<Vec<u8>> {
        let mut end = self.prefix.clone();
        // A 00 is followed by 00 or FF, never by 01, so this sorts behind every key with the prefix.
        if let Some(last) = end.last_mut() {
            *last = 1;
        }
        self.prefix.clone()..end
    }
}

fn decode_part(bytes: &[u8]) -> Option<DayPart> {
    match bytes {
        [] => Some(DayPart::Whole),
        [1, hour] => Some(DayPart::Hour(*hour)),
        [2, stamp @ .., hour] => {
            Some(DayPart::Chunk { stamp: u64::from_be_bytes(stamp.try_into().ok()?), hour: *hour })
        }
        _ => None,
    }
}

fn put_text(key: &mut Vec<u8>, text: &str) {
    for (index, part) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            key.extend_from_slice(&[0, ESCAPED]);
        }
        key.extend_from_slice(part);
    }
    key.extend_from_slice(&END);
}

/// Returns the length of the encoded text at the front of the key, with its end marker.
fn text_end(key: &[u8]) -> Option<usize> {
    let mut offset = 0;
    loop {
        match key.get(offset..)? {
            [0, 0, ..] => return Some(offset + END.len()),
            [0, _, ..] => offset += 2,
            [_, ..] => offset += 1,
            [] => return None,
        }
    }
}

/// Decodes a text with its end marker.
fn take_text(bytes: &[u8]) -> Option<String> {
    let mut rest = bytes.strip_suffix(&END)?;
    let mut text = Vec::with_capacity(rest.len());
    while let Some((byte, after)) = rest.split_first() {
        text.push(*byte);
        rest = if *byte == 0 { after.strip_prefix(&[ESCAPED])? } else { after };
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = ["", "\0", "\0\0", "a", "a\0", "a\0b", "a,b=c", "ab", "ü"];
    const HOURS: [i64; 7] = [i64::MIN, -2_562_048, -1, 0, 1, 2_562_047, i64::MAX];

    #[test]
    fn page_keys_sort_by_database_hour_sensor_and_number() {
        let mut parts = Vec::new();
        for database in NAMES {
            for hour in HOURS {
                for sensor in NAMES {
                    parts.extend([0, 1, 256, u32::MAX].map(|number| (database, hour, sensor, number)));
                }
            }
        }
        assert!(parts.is_sorted(), "the cases are in order");
        let key = |&(database, hour, sensor, number): &(&str, i64, &str, u32)| {
            Keys::new(database).page(Hour(hour), sensor, number)
        };
        let keys: Vec<Vec<u8>> = parts.iter().map(key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for ((database, hour, sensor, number), key) in parts.iter().zip(&keys) {
            let keys = Keys::new(database);
            assert_eq!(keys.parse_hour(key), Some(Hour(*hour)));
            assert_eq!(keys.parse_page(key), Some((Hour(*hour), (*sensor).to_owned(), *number)));
            assert_eq!(Keys::parse_any_page(key), keys.parse_page(key));
            assert_eq!(Keys::bucket_prefix(key), keys.bucket(Hour(*hour), sensor));
            assert!(keys.all().contains(key));
        }
    }

    #[test]
    fn prefixes_belong_to_one_database_and_one_bucket() {
        for database in NAMES {
            for other in NAMES.into_iter().filter(|other| *other != database) {
                let ours = Keys::new(database);
                let theirs = Keys::new(other);
                assert!(!ours.all().contains(&theirs.page(Hour(0), "s", 0)), "{database:?} {other:?}");
                assert!(!ours.all().contains(&theirs.sensor("s")), "{database:?} {other:?}");
                assert_eq!(ours.parse_hour(&theirs.page(Hour(0), "s", 0)), None);
                let bucket = Keys::new("db").bucket(Hour(7), database);
                assert!(!Keys::new("db").page(Hour(7), other, u32::MAX).starts_with(&bucket), "{database:?} {other:?}");
            }
        }
    }

    #[test]
    fn invalid_page_keys_are_not_parsed() {
        let keys = Keys::new("db");
        let good = keys.page(Hour(7), "s", 3);
        for length in 0..good.len() {
            assert_eq!(keys.parse_page(&good[..length]), None, "{length} bytes");
            assert_eq!(Keys::parse_any_page(&good[..length]), None, "{length} bytes");
        }
        assert_eq!(keys.parse_page(&[&keys.hour(Hour(7)), &[0xFF, 0, 0, 0, 0, 0, 1][..]].concat()), None, "not UTF-8");
        assert_eq!(
            keys.parse_page(&[&keys.hour(Hour(7)), &[b'a', 0, 1, 0, 0, 0, 0, 0, 1][..]].concat()),
            None,
            "two texts"
        );
    }

    #[test]
    fn sensor_keys_sort_by_sensor_and_are_parsed() {
        let keys = Keys::new("db");
        let sensors = NAMES.map(|name| keys.sensor(name));
        assert!(sensors.is_sorted_by(|a, b| a < b));
        for (name, key) in NAMES.iter().zip(&sensors) {
            assert_eq!(Keys::parse_sensor(key), Some(*name));
            assert!(keys.all().contains(key));
        }
    }
}
