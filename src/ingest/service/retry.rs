//! Writes that may be tried again: a retry gives the undated readings the same times as the first try.

use std::sync::{Arc, OnceLock};

use super::{Arrival, Ingest};
use crate::catalog::Database;
use crate::clock::now_ns;
use crate::ingest::admission::validate::ValidatedBody;
use crate::ingest::error::IngestError;
use crate::ingest::request_keys::{KeyInFlight, RequestKey};
use crate::reading::Limits;
use crate::wire::Points;

/// Maximum number of attempts to find times that no concurrent write takes.
const ATTEMPTS_MAX: i64 = 8;
/// Nanoseconds that each attempt moves further ahead. Other writes take one or a few times at once.
const STRIDE: i64 = 1000;

/// The thing that all tries of a body have in common.
#[derive(Debug, Clone, Copy)]
pub enum Retry<'a> {
    /// The key of a client, which is known after a restart, too.
    Key(RequestKey<'a>),
    /// The time of a body whose tries are all made by this process.
    FirstTime(&'a FirstTime),
}

/// The first time of the undated readings of a body, once it was tried.
pub type FirstTime = OnceLock<i64>;

/// A begun try.
pub(super) enum Try<'a> {
    Keyed(KeyInFlight),
    Own(&'a FirstTime),
}

impl Try<'_> {
    fn base(&self) -> Option<i64> {
        match self {
            Self::Keyed(key) => key.base,
            Self::Own(first) => first.get().copied(),
        }
    }

    async fn remember(&self, base: i64, received: i64) -> Result<(), IngestError> {
        match self {
            Self::Keyed(key) => key.remember(base, received).await,
            Self::Own(first) => {
                first.get_or_init(|| base);
                Ok(())
            }
        }
    }
}

/// A validated body.
pub(super) struct RetriedBody<'a> {
    pub(super) validated: ValidatedBody,
    /// Must be held until the body is logged.
    pub(super) begun: Try<'a>,
}

impl Ingest {
    /// Validates a body with the times of an earlier try. On the first try, chooses times and remembers them before
    /// anything is logged.
    pub(super) async fn validate_retried<'a, 'b, P: Points<'b> + Send>(
        &self,
        database: &Arc<Database>,
        arrival: Arrival<'_>,
        retry: Retry<'a>,
        body_bytes: usize,
        read: impl Fn(Limits) -> P + Send + Sync,
    ) -> Result<RetriedBody<'a>, IngestError> {
        let Arrival { received, caller, .. } = arrival;
        let begun = match retry {
            Retry::Key(key) => {
                let token = caller.token().map(|token| &*token.name);
                Try::Keyed(self.request_keys.begin(key, token, &database.name, received)?)
            }
            Retry::FirstTime(first) => Try::Own(first),
        };
        if let Some(base) = begun.base() {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            // Reserve the times again, because the first try may have been before a restart.
            for known in &validated.undated {
                known.note_times(base, validated.undated_span);
            }
            return Ok(RetriedBody { validated, begun });
        }
        let mut base = received;
        for attempt in 0..ATTEMPTS_MAX {
            let validated = self.validate(database, arrival, Some(base), body_bytes, &read).await?;
            let span = validated.undated_span;
            let taken = validated.undated.iter().map(|known| known.take_times(base, span, now_ns()));
            // Try all sensors, so that the next attempt lies beyond the times that this one took.
            let Some(last) = taken.filter_map(Result::err).max() else {
                if !validated.undated.is_empty() {
                    begun.remember(base, received).await?;
                }
                return Ok(RetriedBody { validated, begun });
            };
            base = last.max(base.saturating_add(span)).saturating_add(1 + attempt * STRIDE);
        }
        Err(IngestError::TimesTaken)
    }
}
