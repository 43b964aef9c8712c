//! Writes with a key: their undated readings get times that a retry gets again.

use std::sync::Arc;

use super::{Arrival, Ingest};
use crate::catalog::Database;
use crate::ingest::admission::validate::ValidatedBody;
use crate::ingest::error::IngestError;
use crate::ingest::request_keys::{KeyInFlight, RequestKey};
use crate::reading::Limits;
use crate::wire::Points;

/// How often times are looked for that no other write has taken meanwhile.
const ATTEMPTS: i64 = 8;
/// By so much further from the last ones each time, in nanoseconds: other writes take one or a few at a time.
const STRIDE: i64 = 1000;

impl Ingest {
    /// Validates a body with the times of an earlier try of it. Without one, its times are taken, and are on disk before anything
    /// is logged. Also returns the key, which is held until the body is logged.
    pub(super) async fn validate_keyed<'b, P: Points<'b>>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        key: RequestKey<'_>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P,
    ) -> Result<(ValidatedBody, KeyInFlight), IngestError> {
        let Arrival { received, by, .. } = arrival;
        let in_flight = self.request_keys.begin(key, (by.name(), &database.name), received)?;
        if let Some(base) = in_flight.base {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            // As after the first try, in case that was before a restart: no other reading gets these times.
            for known in &validated.undated {
                known.note_times(base, validated.undated_span);
            }
            return Ok((validated, in_flight));
        }
        let mut base = received;
        for attempt in 0..ATTEMPTS {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            let span = validated.undated_span;
            let taken = validated.undated.iter().map(|known| known.take_times(base, span));
            // Of all sensors, so that what this attempt took is not in the way of the next one.
            match taken.filter_map(Result::err).max() {
                None => {
                    if !validated.undated.is_empty() {
                        in_flight.remember(base, received).await?;
                    }
                    return Ok((validated, in_flight));
                }
                Some(last) => {
                    base = last.max(base.saturating_add(span)).saturating_add(1 + attempt * STRIDE);
                }
            }
        }
        Err(IngestError::TimesTaken)
    }
}
