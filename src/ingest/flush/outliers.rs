//! Outlier marks of sensors, which end some time after the sensor last outgrew a page.

use crate::bucket::SensorDocument;

/// Removes an expired outlier mark.
pub fn expire(document: &mut SensorDocument, now: i64, ttl_ns: i64) {
    document.outlier = document.outlier.filter(|outlier| now.saturating_sub(outlier.seen) <= ttl_ns);
}
