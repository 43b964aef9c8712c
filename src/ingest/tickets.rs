//! The requests of which a shard has readings that are not in the store, in log order, and how many each has.

use std::sync::Arc;

use super::in_log_order::InLogOrder;
use super::progress::Ticket;
use crate::log::Sequence;

/// Tickets, each held until the last of its readings here is let go.
#[derive(Debug, Default)]
pub struct Tickets(InLogOrder<(u32, Arc<Ticket>)>);

impl Tickets {
    /// Holds a request's ticket for so many readings. Requests come in log order.
    pub fn hold(&mut self, ticket: &Arc<Ticket>, readings: usize) {
        let readings = u32::try_from(readings).unwrap_or(u32::MAX);
        if readings > 0 {
            self.0.push(ticket.sequence(), (readings, ticket.clone()));
        }
    }

    /// The ticket of a request with readings here.
    pub fn get(&self, sequence: Sequence) -> Option<&Arc<Ticket>> {
        self.0.get(sequence).map(|(_, ticket)| ticket)
    }

    /// The first of these requests.
    pub fn first(&self) -> Option<Sequence> {
        self.0.first().map(|(sequence, _)| sequence)
    }

    /// Lets a reading of each of these requests go.
    pub fn let_go(&mut self, sequences: impl Iterator<Item = Sequence>) {
        for sequence in sequences {
            let Some((readings, _)) = self.0.get_mut(sequence) else { continue };
            *readings -= 1;
            if *readings == 0 {
                self.0.remove(sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::progress::{Logged, Progress};

    fn held(progress: &Arc<Progress>, tickets: &mut Tickets, sequence: Sequence, readings: usize) {
        let logged = Logged { sequence, readings: readings as u64, memory: 0, received: 0 };
        tickets.hold(&progress.read_back(logged, true).0, readings);
    }

    #[test]
    fn a_ticket_is_given_back_with_its_last_reading() {
        let (progress, mut tickets) = (Progress::new(0, 0, usize::MAX), Tickets::default());
        held(&progress, &mut tickets, 5, 2);
        held(&progress, &mut tickets, 6, 1);
        held(&progress, &mut tickets, 1_000_000, 1);
        tickets.let_go([5, 6].into_iter());
        assert_eq!(progress.releasable(), 4, "one reading of the first is left");
        assert!(tickets.get(5).is_some() && tickets.get(6).is_none() && tickets.get(1_000_000).is_some());
        tickets.let_go([5].into_iter());
        assert_eq!(progress.releasable(), 999_999);
        tickets.let_go([1_000_000].into_iter());
        assert_eq!(progress.releasable(), 1_000_000);
    }
}
