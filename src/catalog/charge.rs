//! What the catalog's entries take of `catalog.max_bytes`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of all entries, and its bound.
#[derive(Debug)]
pub struct CatalogBytes {
    used: Arc<AtomicUsize>,
    pub max: usize,
}

/// The bytes of one entry, given back when it is dropped. It takes no part in comparisons, and a copy has none.
#[derive(Debug, Default)]
pub struct Charge(Option<(Arc<AtomicUsize>, AtomicUsize)>);

impl CatalogBytes {
    pub fn new(max: usize) -> Self {
        Self { used: Arc::default(), max }
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets what is used, for the copy of a catalog.
    pub fn note_used(&self, bytes: usize) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// Whether an entry of that size fits. Two requests that ask at once may both be told so: the bound may be exceeded
    /// by what the requests in flight bring.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.max
    }

    /// Charges an entry, whether it fits or not: what a WAL record or a stored document has was admitted before.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge(Some((self.used.clone(), AtomicUsize::new(bytes))))
    }
}

impl Charge {
    /// Charges more for the same entry.
    pub fn grow(&self, bytes: usize) {
        if let Some((used, own)) = &self.0 {
            used.fetch_add(bytes, Ordering::Relaxed);
            own.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Gives back what was charged by [`Charge::grow`].
    pub fn shrink(&self, bytes: usize) {
        if let Some((used, own)) = &self.0 {
            used.fetch_sub(bytes, Ordering::Relaxed);
            own.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((used, own)) = &self.0 {
            used.fetch_sub(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Clone for Charge {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Charge {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Charge {}

impl Hash for Charge {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back_and_a_copy_has_nothing() {
        let bytes = CatalogBytes::new(100);
        let (one, other) = (bytes.charge(60), bytes.charge(30));
        one.grow(5);
        let copy = one.clone();
        assert_eq!((bytes.used(), bytes.fits(5), bytes.fits(6)), (95, true, false));
        drop(copy);
        assert_eq!(bytes.used(), 95);
        one.shrink(5);
        assert_eq!(bytes.used(), 90);
        drop(one);
        assert_eq!((bytes.used(), bytes.fits(70)), (30, true));
        drop(other);
        assert_eq!(bytes.used(), 0);
    }
}
