//! Partitions of sensors, and their owners.

use std::collections::BTreeSet;

use crate::registry::FolderId;

/// The number of partitions. It is fixed: all instances must agree on it.
pub const PARTITIONS: usize = 16_384;

/// Returns a well-mixed value: the finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the partition of a sensor. The hash is FNV-1a with 64 bits over the name of the database, a zero byte and
/// the sensor's key, then [`mix`]. It is part of the protocol, so it must not change.
pub fn partition(database: &str, sensor: &[u8]) -> u16 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in database.bytes().chain([0]).chain(sensor.iter().copied()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (mix(hash) % PARTITIONS as u64) as u16
}

/// Returns the weight of a folder for a partition. The folder with the greatest weight is the owner.
fn weight(partition: u16, folder: FolderId) -> u64 {
    mix(mix(u64::from(partition).wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ mix(folder.0))
}

/// The owners of partitions in one view, by rendezvous hashing.
#[derive(Clone, Debug, Default)]
pub struct OwnerTable {
    folders: Vec<FolderId>,
    /// For each partition the index of its owner in `folders`, once somebody asked for it.
    owners: Vec<Option<u16>>,
}

impl OwnerTable {
    /// Makes the table of a view.
    pub fn new(active: &BTreeSet<FolderId>) -> Self {
        Self { folders: active.iter().copied().collect(), owners: vec![None; PARTITIONS] }
    }

    /// Returns the owner of a partition, or `None` if there is no instance in the view.
    pub fn owner(&mut self, partition: u16) -> Option<FolderId> {
        let owner = self.owners.get_mut(usize::from(partition))?;
        let folders = &self.folders;
        let find = || {
            let indexes = 0..folders.len();
            indexes.max_by_key(|index| (weight(partition, folders[*index]), *index)).unwrap_or(0) as u16
        };
        let index = *owner.get_or_insert_with(find);
        folders.get(usize::from(index)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest share of partitions, divided by the mean share.
    fn largest_share(folders: &BTreeSet<FolderId>) -> f64 {
        let mut table = OwnerTable::new(folders);
        let mut counts = std::collections::BTreeMap::<FolderId, usize>::new();
        for partition in 0..PARTITIONS as u16 {
            *counts.entry(table.owner(partition).unwrap()).or_default() += 1;
        }
        let largest = counts.values().max().copied().unwrap();
        largest as f64 * folders.len() as f64 / PARTITIONS as f64
    }

    #[test]
    fn shares_are_even() {
        for (count, bound) in (2..=8).map(|count| (count, 1.05)).chain([(32, 1.10)]) {
            let sets = (0..20_u64).map(|set| (1..=count).map(|id| FolderId(mix(set * 1_000 + id))).collect());
            let mut shares: Vec<f64> = sets.map(|folders: BTreeSet<FolderId>| largest_share(&folders)).collect();
            shares.sort_by(f64::total_cmp);
            let median = shares[shares.len() / 2];
            println!("{count} instances: median {median:.3}, worst of 20 sets {:.3}", shares[shares.len() - 1]);
            assert!(median <= bound, "{count} instances: {median}");
        }
    }

    #[test]
    fn a_removal_moves_only_the_removed_share() {
        let all: BTreeSet<FolderId> = (1..=5).map(FolderId).collect();
        let mut fewer = all.clone();
        fewer.remove(&FolderId(3));
        let mut before = OwnerTable::new(&all);
        let mut after = OwnerTable::new(&fewer);
        for partition in 0..PARTITIONS as u16 {
            let owner = before.owner(partition);
            assert!(owner == Some(FolderId(3)) || owner == after.owner(partition));
        }
    }

    /// All versions must agree on partitions and owners.
    #[test]
    fn hashes_never_change() {
        let mut table = OwnerTable::new(&(1..=3).map(FolderId).collect());
        let owners: Vec<u64> = (0..8).map(|partition| table.owner(partition).unwrap().0).collect();
        assert_eq!(
            (partition("d", b"m,host=a"), partition("plant", b"t"), owners),
            (12_523, 8_105, vec![1, 3, 3, 2, 2, 1, 2, 1])
        );
    }
}
