//! Accounting of the catalog's memory, which `catalog.max_bytes` bounds.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all entries, and their bound.
#[derive(Debug)]
pub struct CatalogBytes {
    used: Arc<AtomicUsize>,
    pub max: usize,
}

/// The bytes of one entry, released on drop. All charges compare equal, and a clone is empty.
#[derive(Debug, Default)]
pub struct Charge(Option<ChargedBytes>);

#[derive(Debug)]
struct ChargedBytes {
    /// The bytes of all entries, which include `charged`.
    used: Arc<AtomicUsize>,
    charged: AtomicUsize,
}

impl CatalogBytes {
    pub fn new(max: usize) -> Self {
        Self { used: Arc::default(), max }
    }

    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the used bytes, for a copy of the catalog.
    pub fn note_used(&self, bytes: usize) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// Returns true if an entry of this size fits. Concurrent requests may each get true for the same free bytes, so
    /// together they can exceed the bound.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.max
    }

    /// Charges an entry even if it does not fit, because entries of WAL records and stored documents were admitted
    /// before.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Charge(Some(ChargedBytes { used: self.used.clone(), charged: AtomicUsize::new(bytes) }))
    }
}

impl Charge {
    /// Charges more for the same entry.
    pub fn grow(&self, bytes: usize) {
        if let Some(ChargedBytes { used, charged }) = &self.0 {
            used.fetch_add(bytes, Ordering::Relaxed);
            charged.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Releases bytes that [`Charge::grow`] charged.
    pub fn shrink(&self, bytes: usize) {
        if let Some(ChargedBytes { used, charged }) = &self.0 {
            used.fetch_sub(bytes, Ordering::Relaxed);
            charged.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(ChargedBytes { used, charged }) = &self.0 {
            used.fetch_sub(charged.load(Ordering::Relaxed), Ordering::Relaxed);
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
    fn a_drop_releases_its_bytes_and_a_clone_is_empty() {
        let bytes = CatalogBytes::new(100);
        let one = bytes.charge(60);
        let other = bytes.charge(30);
        one.grow(5);
        let copy = one.clone();
        assert_eq!((bytes.used_bytes(), bytes.fits(5), bytes.fits(6)), (95, true, false));
        drop(copy);
        assert_eq!(bytes.used_bytes(), 95);
        one.shrink(5);
        assert_eq!(bytes.used_bytes(), 90);
        drop(one);
        assert_eq!((bytes.used_bytes(), bytes.fits(70)), (30, true));
        drop(other);
        assert_eq!(bytes.used_bytes(), 0);
    }
}
