//! The requests with unflushed readings in a memtable, in WAL order, with the number of their readings there.

use std::sync::Arc;

use super::PendingAck;
use super::log_order_map::LogOrderMap;
use crate::wal::Sequence;

/// Pending acks, each held until the last of its readings in the memtable is flushed or deleted.
#[derive(Debug, Default)]
pub struct PendingAcks(LogOrderMap<HeldAck>);

#[derive(Debug)]
struct HeldAck {
    /// The number of readings in the memtable.
    readings: u32,
    pending_ack: Arc<PendingAck>,
}

impl PendingAcks {
    /// Holds a request's pending ack for this many readings. Requests must come in WAL order.
    pub fn pin(&mut self, pending_ack: &Arc<PendingAck>, readings: usize) {
        let readings = u32::try_from(readings).unwrap_or(u32::MAX);
        if readings > 0 {
            self.0.push(pending_ack.sequence(), HeldAck { readings, pending_ack: pending_ack.clone() });
        }
    }

    /// Returns the pending ack of a request with readings in the memtable.
    pub fn get(&self, sequence: Sequence) -> Option<&Arc<PendingAck>> {
        self.0.get(sequence).map(|held| &held.pending_ack)
    }

    /// Returns the earliest of these requests.
    pub fn first(&self) -> Option<Sequence> {
        self.0.first().map(|(sequence, _)| sequence)
    }

    /// Counts one reading of each of these requests as flushed or deleted.
    pub fn release(&mut self, sequences: impl Iterator<Item = Sequence>) {
        for sequence in sequences {
            let Some(held) = self.0.get_mut(sequence) else { continue };
            held.readings -= 1;
            if held.readings == 0 {
                self.0.remove(sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::positions::LoggedRequest;
    use crate::members::positions::WalPositions;

    fn pin(positions: &Arc<WalPositions>, pending_acks: &mut PendingAcks, sequence: Sequence, readings: usize) {
        let logged = LoggedRequest { sequence, readings: readings as u64, memory: 0, received: 0 };
        pending_acks.pin(&positions.read_back(logged, true).pending_ack, readings);
    }

    #[test]
    fn an_ack_is_released_with_its_last_reading() {
        let positions = WalPositions::new(0, 0, usize::MAX);
        let mut pending_acks = PendingAcks::default();
        pin(&positions, &mut pending_acks, 5, 2);
        pin(&positions, &mut pending_acks, 6, 1);
        pin(&positions, &mut pending_acks, 1_000_000, 1);
        pending_acks.release([5, 6].into_iter());
        assert_eq!(positions.truncatable(), 4, "one reading of the first is left");
        assert!(
            pending_acks.get(5).is_some() && pending_acks.get(6).is_none() && pending_acks.get(1_000_000).is_some()
        );
        pending_acks.release([5].into_iter());
        assert_eq!(positions.truncatable(), 999_999);
        pending_acks.release([1_000_000].into_iter());
        assert_eq!(positions.truncatable(), 1_000_000);
    }
}
