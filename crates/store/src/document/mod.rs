//! The documents of both stores, field by field. The schema version is 1. Fields are added but never renamed, and a
//! document of an unknown version is never overwritten.
//!
//! ```text
//! page:   { _id: "2026-01-15T14 climate,room=lab,sensor=s1 0", schemaVersion: 1,
//!           sensor: "climate,room=lab,sensor=s1", measurement: "climate", tags: { room: "lab", sensor: "s1" },
//!           start: Date, end: Date, page: 0, rev: 7, closed: false, count: 60, first: Date, last: Date,
//!           hasOverflow: false,
//!           readings: [ { ts: Date, ns: 250 (only when not 0), <field>: <value>, … }, … ],   in time order
//!           summary: { <field>: { count, min, max, sum, rest, avg, first, last }, … },       numeric fields
//!           order: { floor: Int64, first: Int64 (if above the floor), last: Int64, stamps: BinData (if any) },
//!           meta: { site: "lab" } }                                                  copied, see `copies`
//! day:    see docs/reference/stored-forms.md, and `columns` for readings in columns
//! sensor: { _id: "<sensor>", schemaVersion: 1, rev: 3, measurement, tags, fields: { <field>: "number" },
//!           firstSeen: Date, lastSeen: Date, latest: <reading>, recent: [ <reading>, … ],
//!           outlier: { since: Date, seen: Date, lastHour: Date, pages: 3 } (only for an outlier),
//!           meta: { site: "lab" }, metaStamps: { site: Int64 } (both only if set; see `meta`),
//!           groups: { site: "lab" } }                                                memberships, see `groups`
//! ```
//!
//! `sum` is the exact sum of the values, rounded once. `rest` is the remainder of this rounding: 0, nearly always one
//! Double, or an array of Doubles, each the rounded remainder after those before it. `sum` and all parts of `rest` add up
//! to the exact sum. If `sum` is infinite, the parts alone are the exact sum, and the first part is stored divided by 2^64.
//! Every `sum` that is a Double has a `rest`; an Int64 is exact.
//!
//! A page's `rev` starts at its greatest stamp, and every write increments it; see
//! [`next_rev`](crate::bucket::Page::next_rev). Stamps in `order` are milliseconds since the epoch times 2^20 (see
//! [`stamp`](crate::reading::stamp)). [`stamps`](crate::bucket::stamps) describes their encoding.
//!
//! `_id` is the hour, the sensor's key and the page number. The hour comes first so that new pages are added at one end of
//! the index and old hours are one range of it. A sensor's range is read through the index `{sensor: 1, start: 1}`.
//! `ts` is floored to whole milliseconds and `ns` (0..=999999) is the rest. Integers are Int64 (bookkeeping counts
//! Int32 while they fit), unsigned values above 2^63-1 Decimal128, floats Double.

mod columns;
mod copies;
mod day;
mod day_read;
mod decode;
mod distribution;
mod elements;
mod encode;
mod groups;
mod json;
mod meta;
mod month;
mod raw;
mod registry;
mod settings;
mod writer;

pub use copies::{COPIED_FIELDS, CopyPlan, SENSOR_KIND, SensorCopies, copy_field, kind_of, to_bson, with_elements};
pub use day::{day_document, day_update};
pub use day_read::{day_fields, decode_day, decode_day_scanned, decode_part, decode_raw_day};
pub use decode::{
    PAGE_MARKS, PAGE_SIZE, check_owner, check_version, decode_page, decode_page_marks, decode_scanned, decode_sensor,
    document_last, document_rev,
};
pub use encode::{
    DAY_VERSION, SCHEMA_VERSION, append_update, page_document, replace_update, sensor_document, sensor_update,
};
pub use groups::{GROUPED_FIELDS, GroupChanges, GroupId, GroupPage, GroupedSensor, group_changes, group_prefix};
pub use json::relaxed_json;
pub use month::{decode_month, month_document, month_id, month_update};
pub use raw::{decode_raw_page, decode_raw_sensor, decode_sensor_bytes};
pub use registry::{REGISTRY, decode_registry, registry_document};
pub use settings::{decode_settings, settings_document};
pub use writer::BsonWriter;

use std::fmt::Write;

use crate::bucket::{DayPart, bucket_name};
use crate::reading::time::write_seconds;
use crate::reading::{Day, Hour};

/// Returns a page's `_id`. Hours have four-digit years, so ids sort by time.
#[must_use]
pub fn page_id(sensor: &str, hour: Hour, number: u32) -> String {
    let mut id = bucket_name(sensor, hour);
    // Writing to a String cannot fail.
    let _ = write!(id, " {number}");
    id
}

/// Returns the `_id` of a day's part. The character after the date depends on the kind of part, so ids of different kinds
/// never collide.
#[must_use]
pub fn day_id(sensor: &str, day: Day, part: DayPart) -> String {
    let mut id = format_date(day, sensor.len());
    // Writing to a String cannot fail.
    let _ = match part {
        DayPart::Whole => write!(id, " {sensor}"),
        DayPart::Hour(hour) => write!(id, "T{hour:02} {sensor}"),
        DayPart::Chunk { stamp, hour } => write!(id, "+{stamp:016x}.{hour:02} {sensor}"),
    };
    id
}

/// Returns the field `chunkOf`, which all chunks of a sensor's day share. It sorts by day and sensor.
#[must_use]
pub fn day_chunks_id(sensor: &str, day: Day) -> String {
    format_date(day, sensor.len()) + " " + sensor
}

/// Formats a day as a date, with spare capacity for a suffix.
fn format_date(day: Day, suffix_bytes: usize) -> String {
    let mut date = String::with_capacity("2026-01-15T00:00:00".len() + suffix_bytes);
    write_seconds(&mut date, day.hours().start.start_ms().div_euclid(1000));
    date.truncate("2026-01-15".len());
    date
}
