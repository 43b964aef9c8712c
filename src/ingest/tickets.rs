//! The requests of which a shard has readings that are not in the store, in log order, and how many each has.

use std::collections::VecDeque;
use std::sync::Arc;

use super::progress::Ticket;
use crate::log::Sequence;

/// Tickets, each held until the last of its readings here is let go.
#[derive(Debug, Default)]
pub struct Tickets {
    /// In log order. Of those that were given back some are left here, to be passed over.
    held: VecDeque<Held>,
    given_back: usize,
}

#[derive(Debug)]
struct Held {
    sequence: Sequence,
    readings: u32,
    ticket: Option<Arc<Ticket>>,
}

impl Tickets {
    /// Holds a request's ticket for so many readings. Requests come in log order.
    pub fn hold(&mut self, ticket: &Arc<Ticket>, readings: usize) {
        let readings = u32::try_from(readings).unwrap_or(u32::MAX);
        if readings > 0 {
            self.held.push_back(Held { sequence: ticket.sequence(), readings, ticket: Some(ticket.clone()) });
        }
    }

    /// The ticket of a request with readings here.
    pub fn get(&self, sequence: Sequence) -> Option<&Arc<Ticket>> {
        self.held[self.place(sequence)?].ticket.as_ref()
    }

    /// Lets a reading of each of these requests go.
    pub fn let_go(&mut self, sequences: impl Iterator<Item = Sequence>) {
        for sequence in sequences {
            let Some(place) = self.place(sequence) else { continue };
            let held = &mut self.held[place];
            held.readings = held.readings.saturating_sub(1);
            if held.readings == 0 && held.ticket.take().is_some() {
                self.given_back += 1;
            }
        }
        while self.held.front().is_some_and(|held| held.ticket.is_none()) {
            self.held.pop_front();
            self.given_back -= 1;
        }
        // One that is held for long must not keep the places of all that came after it.
        if self.given_back > self.held.len() / 2 {
            self.held.retain(|held| held.ticket.is_some());
            self.given_back = 0;
        }
    }

    fn place(&self, sequence: Sequence) -> Option<usize> {
        // Places in the log mostly have no gaps.
        let first = self.held.front()?.sequence;
        let guess = usize::try_from(sequence.checked_sub(first)?).ok()?;
        if self.held.get(guess).is_some_and(|held| held.sequence == sequence) {
            return Some(guess);
        }
        self.held.binary_search_by_key(&sequence, |held| held.sequence).ok()
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
        assert!(tickets.held.is_empty());
        assert_eq!(progress.releasable(), 1_000_000);
    }

    #[test]
    fn one_that_is_held_for_long_does_not_keep_the_others_places() {
        let (progress, mut tickets) = (Progress::new(0, 0, usize::MAX), Tickets::default());
        for sequence in 1..=1000 {
            held(&progress, &mut tickets, sequence, 1);
        }
        for sequence in 2..=999 {
            tickets.let_go([sequence].into_iter());
        }
        assert!(tickets.held.len() <= 4, "{} places", tickets.held.len());
        assert!(tickets.get(1).is_some() && tickets.get(1000).is_some() && tickets.get(500).is_none());
    }
}
