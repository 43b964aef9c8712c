//! Memory reservations of requests (`ingest.bytes_in_flight`). A request reserves its memory before it allocates.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Allowance, share};
use crate::ingest::IngestError;
use crate::memory;

/// The bytes that one request has reserved. The reservation grows as the body arrives, and is released on drop, after
/// the request was acked or refused.
#[derive(Debug)]
pub struct BytesInFlight {
    pub(in crate::ingest) permit: Option<OwnedSemaphorePermit>,
    pub(in crate::ingest) bytes: Arc<Semaphore>,
    pub(in crate::ingest) limit: usize,
    pub(in crate::ingest) in_flight: metrics::Gauge,
    /// The usage of the sender's token.
    pub(in crate::ingest) sender: Allowance,
}

impl BytesInFlight {
    /// Reserves `bytes` more.
    ///
    /// # Errors
    /// [`IngestError::Overloaded`] if all requests together reach `ingest.bytes_in_flight`, or the sender's token its
    /// share of it, [`IngestError::TooLarge`] if this request alone exceeds it.
    pub fn grow(&mut self, bytes: usize) -> Result<(), IngestError> {
        let limit = self.limit;
        let key = "ingest.bytes_in_flight";
        if self.size().saturating_add(bytes) > limit {
            return Err(IngestError::TooLarge { limit, key });
        }
        let overloaded = IngestError::Overloaded { limit, key };
        let used = limit.saturating_sub(self.bytes.available_permits());
        // A request that is alone has its full share even if memory is short, so that it can be acked at all.
        let left = if used == self.size() { limit } else { memory::left_of(limit) };
        let share = self.sender.as_ref().map_or(limit, |sender| {
            share(limit, sender.bytes_in_flight.load(Ordering::Relaxed).saturating_add(bytes), true)
        });
        if used + bytes > left.min(share) {
            return Err(overloaded);
        }
        let count = u32::try_from(bytes).map_err(|_| overloaded.clone())?;
        let more = self.bytes.clone().try_acquire_many_owned(count).map_err(|_| overloaded)?;
        self.in_flight.increment(count);
        if let Some(sender) = &self.sender {
            sender.bytes_in_flight.fetch_add(bytes, Ordering::Relaxed);
        }
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// Returns the bytes reserved so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        self.in_flight.decrement(u32::try_from(self.size()).unwrap_or(u32::MAX));
        if let Some(sender) = &self.sender {
            sender.bytes_in_flight.fetch_sub(self.size(), Ordering::Relaxed);
        }
    }
}
