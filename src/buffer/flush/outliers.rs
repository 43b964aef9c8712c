//! Outlier marks of sensors, which expire some time after the sensor last outgrew a page.

use crate::bucket::SensorDocument;

/// The lifetime of an outlier mark after the last hour that needed an overflow page: a day.
const TTL_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Removes an expired outlier mark.
pub fn expire(document: &mut SensorDocument, now: i64) {
    document.outlier = document.outlier.filter(|outlier| now.saturating_sub(outlier.seen) <= TTL_NS);
}
