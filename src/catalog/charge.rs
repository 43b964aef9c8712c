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

/// The sensors and bytes of a database and its policies.
#[derive(Debug, Default)]
pub struct Account {
    pub(super) sensors: AtomicUsize,
    own: AtomicUsize,
    /// The bytes of all accounts.
    used: Arc<AtomicUsize>,
}

/// The bytes of one entry, released on drop. All charges compare equal, and a clone is empty.
#[derive(Debug, Default)]
pub struct Charge(Option<ChargedBytes>);

#[derive(Debug)]
struct ChargedBytes {
    account: Arc<Account>,
    charged: AtomicUsize,
}

impl CatalogBytes {
    pub fn new(max: usize) -> Self {
        Self { used: Arc::default(), max }
    }

    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns a new account. In a copy of the catalog, it begins with the use of the original.
    pub fn account(&self, original: Option<&Account>) -> Arc<Account> {
        let account = Account { used: self.used.clone(), ..Account::default() };
        if let Some(original) = original {
            account.own.store(original.bytes(), Ordering::Relaxed);
            account.sensors.store(original.sensors(), Ordering::Relaxed);
            self.used.store(original.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Arc::new(account)
    }

    /// Returns true if an entry of this size fits into `max` bytes. Concurrent requests may each get true for the same
    /// free bytes, so together they can exceed the bound.
    pub fn fits(&self, bytes: usize, max: usize) -> bool {
        self.used_bytes().saturating_add(bytes) <= max
    }
}

impl Account {
    pub fn bytes(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    pub fn sensors(&self) -> usize {
        self.sensors.load(Ordering::Relaxed)
    }

    /// Charges an entry even if it does not fit, because entries of WAL records and stored documents were admitted
    /// before.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.grow(bytes);
        Charge(Some(ChargedBytes { account: self.clone(), charged: AtomicUsize::new(bytes) }))
    }

    fn grow(&self, bytes: usize) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.own.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Charge {
    /// Charges more for the same entry.
    pub fn grow(&self, bytes: usize) {
        if let Some(ChargedBytes { account, charged }) = &self.0 {
            account.grow(bytes);
            charged.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Changes the charge to exactly this many bytes.
    pub fn set(&self, bytes: usize) {
        let charged = self.0.as_ref().map_or(0, |own| own.charged.load(Ordering::Relaxed));
        self.grow(bytes.saturating_sub(charged));
        self.shrink(charged.saturating_sub(bytes));
    }

    /// Releases bytes that [`Charge::grow`] charged.
    pub fn shrink(&self, bytes: usize) {
        if let Some(ChargedBytes { account, charged }) = &self.0 {
            account.shrink(bytes);
            charged.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the account, or `None` for an empty charge.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.0.as_ref().map(|charged| &charged.account)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(ChargedBytes { account, charged }) = &self.0 {
            account.shrink(charged.load(Ordering::Relaxed));
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
        let account = bytes.account(None);
        let one = account.charge(60);
        let other = bytes.account(None).charge(30);
        one.grow(5);
        let copy = one.clone();
        assert_eq!((bytes.used_bytes(), bytes.fits(5, 100), bytes.fits(6, 100)), (95, true, false));
        drop(copy);
        assert_eq!((bytes.used_bytes(), account.bytes()), (95, 65));
        one.shrink(5);
        assert_eq!((bytes.used_bytes(), account.bytes()), (90, 60));
        one.set(70);
        assert_eq!((bytes.used_bytes(), account.bytes()), (100, 70));
        one.set(60);
        assert_eq!((bytes.used_bytes(), account.bytes()), (90, 60));
        drop(one);
        assert_eq!((bytes.used_bytes(), account.bytes(), bytes.fits(70, 100)), (30, 0, true));
        drop(other);
        assert_eq!(bytes.used_bytes(), 0);
    }
}
