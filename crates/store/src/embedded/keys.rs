//! Keys of the embedded store's tables: bytes that sort in the order (database, hour, sensor, page) and (database,
//! sensor). Knows nothing of redb.
//!
//! ```text
//! page:   text(database) hour text(sensor) number        hour: i64, sign flipped, big-endian; number: u32, big-endian
//! day:    text(database) day text(sensor) part           day: as an hour
//! part:   nothing | 01 hour:u8 | 02 stamp:u64 hour:u8    the whole day, an hour of it, a chunk; big-endian
//! month:  text(database) month text(sensor)              month: as an hour
//! sensor: text(database) sensor                          sensor: plain UTF-8
//! text:   the UTF-8 bytes, 00 written as 00 FF, and 00 00 at the end
//! ```
//!
//! `text` keeps the order of the names, and no encoded text is a prefix of another. The hour precedes the sensor so
//! that a flush writes neighbouring keys: 1.5 bytes are written to the disk per byte of page, against 5.4 the other way
//! round.

use std::ops::Range;

use crate::bucket::DayPart;
use crate::reading::{Day, Hour, Month};

/// End of a text: a 00 within a text is followed by [`ESCAPED`] instead.
const END: [u8; 2] = [0, 0];
/// The second byte of a NUL within a text.
const ESCAPED: u8 = 0xFF;

/// The prefix that a database's page keys and sensor keys share.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: Vec<u8>,
}

impl Keys {
    /// The keys of this database.
    pub(super) fn of(database: &str) -> Self {
        let mut prefix = Vec::with_capacity(database.len() + END.len());
        put_text(&mut prefix, database);
        Self { prefix }
    }

    pub(super) fn page(&self, hour: Hour, sensor: &str, number: u32) -> Vec<u8> {
        let mut key = self.bucket(hour, sensor);
        key.extend_from_slice(&number.to_be_bytes());
        key
    }

    /// The prefix of the keys of a bucket's pages, and of no others.
    pub(super) fn bucket(&self, hour: Hour, sensor: &str) -> Vec<u8> {
        let mut key = self.hour(hour);
        put_text(&mut key, sensor);
        key
    }

    /// A key that sorts before every page of this hour and after every page of earlier hours.
    pub(super) fn hour(&self, hour: Hour) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + 128);
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(&(hour.0 ^ i64::MIN).to_be_bytes());
        key
    }

    /// The key of a part of a day.
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

    /// The key of a sensor's month.
    pub(super) fn month(&self, month: Month, sensor: &str) -> Vec<u8> {
        self.bucket(Hour(month.0), sensor)
    }

    /// A key that sorts after every part of a sensor's day and before those of later sensors.
    pub(super) fn day_end(&self, day: Day, sensor: &str) -> Vec<u8> {
        Self::end_of(&self.day(day, sensor, DayPart::Whole))
    }

    /// As [`Keys::day_end`], of the sensor and day whose whole day has the key `whole`.
    pub(super) fn end_of(whole: &[u8]) -> Vec<u8> {
        [whole, &[u8::MAX]].concat()
    }

    /// A key that sorts before every part of this day and after those of earlier days.
    pub(super) fn day_start(&self, day: Day) -> Vec<u8> {
        self.hour(Hour(day.0))
    }

    /// The day of a part's key of this database.
    pub(super) fn day_of(&self, key: &[u8]) -> Option<Day> {
        self.hour_of(key).map(|number| Day(number.0))
    }

    /// The part, if the key is one of this sensor and day.
    pub(super) fn part_of(&self, key: &[u8], day: Day, sensor: &str) -> Option<DayPart> {
        Self::part_behind(&self.day(day, sensor, DayPart::Whole), key)
    }

    /// The part, if the key is one of the sensor and day whose whole day has the key `whole`.
    pub(super) fn part_behind(whole: &[u8], key: &[u8]) -> Option<DayPart> {
        part(key.strip_prefix(whole)?)
    }

    /// The sensor, day and part of a part's key of any database.
    pub(super) fn any_day_of(key: &[u8]) -> Option<(String, Day, DayPart)> {
        let keys = Self { prefix: key[..text_end(key)?].to_vec() };
        let rest = key.get(keys.prefix.len() + size_of::<i64>()..)?;
        let (sensor, rest) = rest.split_at(text_end(rest)?);
        Some((take_text(sensor)?, keys.day_of(key)?, part(rest)?))
    }

    /// The hour of a page key of this database.
    pub(super) fn hour_of(&self, key: &[u8]) -> Option<Hour> {
        let hour = key.strip_prefix(&*self.prefix)?.first_chunk::<8>()?;
        Some(Hour(i64::from_be_bytes(*hour) ^ i64::MIN))
    }

    /// The hour, sensor and number of a page key of this database.
    pub(super) fn page_of(&self, key: &[u8]) -> Option<(Hour, String, u32)> {
        let hour = self.hour_of(key)?;
        let (text, number) = key.get(self.prefix.len() + size_of::<i64>()..)?.split_last_chunk::<4>()?;
        Some((hour, take_text(text)?, u32::from_be_bytes(*number)))
    }

    /// As [`Keys::page_of`], for a page key of any database.
    pub(super) fn any_page_of(key: &[u8]) -> Option<(Hour, String, u32)> {
        Self { prefix: key[..text_end(key)?].to_vec() }.page_of(key)
    }

    /// The sensor of a sensor key of any database.
    pub(super) fn sensor_of(key: &[u8]) -> Option<&str> {
        std::str::from_utf8(&key[text_end(key)?..]).ok()
    }

    /// The prefix of the keys of a bucket's pages, from one of these keys.
    pub(super) fn bucket_of(key: &[u8]) -> &[u8] {
        &key[..key.len().saturating_sub(size_of::<u32>())]
    }

    /// The key of a sensor; it sorts before the keys of later sensors.
    pub(super) fn sensor(&self, sensor: &str) -> Vec<u8> {
        let mut key = self.prefix.clone();
        key.extend_from_slice(sensor.as_bytes());
        key
    }

    /// The range of all keys of this database.
    pub(super) fn all(&self) -> Range<Vec<u8>> {
        let mut end = self.prefix.clone();
        // The byte after a 00 is 00 or FF, never 01, so this sorts behind everything with the prefix.
        if let Some(last) = end.last_mut() {
            *last = 1;
        }
        self.prefix.clone()..end
    }
}

fn part(bytes: &[u8]) -> Option<DayPart> {
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
    // Nearly no text has a NUL.
    for (number, part) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
        if number > 0 {
            key.extend_from_slice(&[0, ESCAPED]);
        }
        key.extend_from_slice(part);
    }
    key.extend_from_slice(&END);
}

/// End offset of the text at the front of the key.
fn text_end(key: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match key.get(at..)? {
            [0, 0, ..] => return Some(at + END.len()),
            [0, _, ..] => at += 2,
            [_, ..] => at += 1,
            [] => return None,
        }
    }
}

/// Decodes a text, including its end marker.
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
    fn page_keys_sort_as_database_hour_sensor_and_number_do() {
        let mut parts = Vec::new();
        for database in NAMES {
            for hour in HOURS {
                for sensor in NAMES {
                    parts.extend([0, 1, 256, u32::MAX].map(|number| (database, hour, sensor, number)));
                }
            }
        }
        assert!(parts.is_sorted(), "the cases are written in order");
        let key = |&(database, hour, sensor, number): &(&str, i64, &str, u32)| {
            Keys::of(database).page(Hour(hour), sensor, number)
        };
        let keys: Vec<Vec<u8>> = parts.iter().map(key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for ((database, hour, sensor, number), key) in parts.iter().zip(&keys) {
            let keys = Keys::of(database);
            assert_eq!(keys.hour_of(key), Some(Hour(*hour)));
            assert_eq!(keys.page_of(key), Some((Hour(*hour), (*sensor).to_owned(), *number)));
            assert_eq!(Keys::any_page_of(key), keys.page_of(key));
            assert_eq!(Keys::bucket_of(key), keys.bucket(Hour(*hour), sensor));
            assert!(keys.all().contains(key));
        }
    }

    #[test]
    fn a_prefix_is_of_one_database_and_one_bucket_only() {
        for database in NAMES {
            for other in NAMES.into_iter().filter(|other| *other != database) {
                let (ours, theirs) = (Keys::of(database), Keys::of(other));
                assert!(!ours.all().contains(&theirs.page(Hour(0), "s", 0)), "{database:?} {other:?}");
                assert!(!ours.all().contains(&theirs.sensor("s")), "{database:?} {other:?}");
                assert_eq!(ours.hour_of(&theirs.page(Hour(0), "s", 0)), None);
                let bucket = Keys::of("db").bucket(Hour(7), database);
                assert!(!Keys::of("db").page(Hour(7), other, u32::MAX).starts_with(&bucket), "{database:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_no_page_key_is_not_taken_for_one() {
        let keys = Keys::of("db");
        let good = keys.page(Hour(7), "s", 3);
        for length in 0..good.len() {
            assert_eq!(keys.page_of(&good[..length]), None, "{length} bytes");
            assert_eq!(Keys::any_page_of(&good[..length]), None, "{length} bytes");
        }
        assert_eq!(keys.page_of(&[&keys.hour(Hour(7)), &[0xFF, 0, 0, 0, 0, 0, 1][..]].concat()), None, "no UTF-8");
        assert_eq!(
            keys.page_of(&[&keys.hour(Hour(7)), &[b'a', 0, 1, 0, 0, 0, 0, 0, 1][..]].concat()),
            None,
            "two texts"
        );
    }

    #[test]
    fn sensor_keys_sort_and_come_back() {
        let keys = Keys::of("db");
        let sensors = NAMES.map(|name| keys.sensor(name));
        assert!(sensors.is_sorted_by(|a, b| a < b));
        for (name, key) in NAMES.iter().zip(&sensors) {
            assert_eq!(Keys::sensor_of(key), Some(*name));
            assert!(keys.all().contains(key));
        }
    }
}
