//! Writes with a key: a retry gives the undated readings the same times as the first try.

use std::sync::Arc;

use super::{Arrival, Ingest};
use crate::catalog::Database;
use crate::ingest::admission::validate::ValidatedBody;
use crate::ingest::error::IngestError;
use crate::ingest::request_keys::{KeyInFlight, RequestKey};
use crate::reading::Limits;
use crate::wire::Points;

/// Maximum number of attempts to find times that no concurrent write takes.
const ATTEMPTS_MAX: i64 = 8;
/// Nanoseconds that each attempt moves further ahead. Other writes take one or a few times at once.
const STRIDE: i64 = 1000;

/// A validated body of a request with a key.
pub(super) struct KeyedBody {
    pub(super) validated: ValidatedBody,
    /// Must be held until the body is logged.
    pub(super) key: KeyInFlight,
}

impl Ingest {
    /// Validates a body with the times of an earlier try. On the first try, chooses times and writes them to disk,
    /// before anything is logged.
    pub(super) async fn validate_keyed<'b, P: Points<'b> + Send>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        key: RequestKey<'_>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P + Send + Sync,
    ) -> Result<KeyedBody, IngestError> {
        let Arrival { received, caller, .. } = arrival;
        let key = self.request_keys.begin(key, caller.token().map(|token| &*token.name), &database.name, received)?;
        if let Some(base) = key.base {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            // Reserve the times again, because the first try may have been before a restart.
            for known in &validated.undated {
                known.note_times(base, validated.undated_span);
            }
            return Ok(KeyedBody { validated, key });
        }
        let mut base = received;
        for attempt in 0..ATTEMPTS_MAX {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            let span = validated.undated_span;
            let taken = validated.undated.iter().map(|known| known.take_times(base, span));
            // Try all sensors, so that the next attempt lies beyond the times that this one took.
            let Some(last) = taken.filter_map(Result::err).max() else {
                if !validated.undated.is_empty() {
                    key.remember(base, received).await?;
                }
                return Ok(KeyedBody { validated, key });
            };
            base = last.max(base.saturating_add(span)).saturating_add(1 + attempt * STRIDE);
        }
        Err(IngestError::TimesTaken)
    }
}
