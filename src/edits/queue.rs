//! The places of edits that run or wait. An edit goes on without its client, so without a limit they pile up.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::EditError;

/// Maximum number of edits that run or wait.
const PLACES: usize = 32;
/// Maximum number of them of one token, or without tokens in one database.
const PLACES_OF_ONE: usize = PLACES / 4;

/// The number of edits that run or wait, by token.
#[derive(Debug, Default)]
pub struct Queue(Arc<Mutex<HashMap<Box<str>, usize>>>);

/// A place in the queue, until it is dropped.
#[derive(Debug)]
pub struct Place {
    queue: Arc<Mutex<HashMap<Box<str>, usize>>>,
    token: Box<str>,
}

impl Queue {
    /// Takes a place for a token.
    ///
    /// # Errors
    /// If there is none.
    pub fn enter(&self, token: &str) -> Result<Place, EditError> {
        let mut places = self.0.lock();
        let taken: usize = places.values().sum();
        let of_token = places.get(token).copied().unwrap_or_default();
        if taken >= PLACES || of_token >= PLACES_OF_ONE {
            return Err(EditError::Full { all: PLACES, of_token: PLACES_OF_ONE });
        }
        places.insert(token.into(), of_token + 1);
        Ok(Place { queue: self.0.clone(), token: token.into() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.queue.lock();
        if let Some(of_token) = places.get_mut(&self.token) {
            *of_token -= 1;
            if *of_token == 0 {
                places.remove(&self.token);
            }
        }
    }
}
