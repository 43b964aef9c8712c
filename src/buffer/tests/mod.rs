//! A model-based test of the merge law, with instances, WALs, memtables, bucket caches, clocks, one store and random
//! steps. Even if processes are killed, folders are cloned or restored, and writes are resent or late, the store ends
//! with the value of the greatest stamp for every cell, unless a deletion has a greater stamp.
//!
//! Pages, merges, stamps, the registry and deletions are the real code. The WAL, the network and the tasks are models.
//! In CI, about 27,000 worlds run a million steps. Runs with the same `HOURGLASS_TEST_SEED` are identical.

mod answers;
mod instance;
mod laws;
mod oracle;
mod steps;
mod store;
mod world;

use std::sync::{Arc, OnceLock};

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::reading::Sensor;
use crate::scale::{scaled, seed};

/// The only database of the model.
const DATABASE: &str = "plant";

/// Creates a runner of so many cases, or twenty times as many in long tests. They depend on the seed only.
fn runner(cases: u32) -> TestRunner {
    let cases = scaled(cases, 20 * cases);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed().to_le_bytes().repeat(4));
    TestRunner::new_with_rng(config, rng)
}

/// All sensors and fields of the model.
struct Names {
    sensors: [Arc<Sensor>; 2],
    fields: [Arc<str>; 3],
}

impl Names {
    fn names(&self) -> [&str; 3] {
        [&*self.fields[0], &*self.fields[1], &*self.fields[2]]
    }
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let sensor = |s: &str| Arc::new(Sensor::new("climate", [("sensor", s)]).expect("one tag"));
        Names { sensors: [sensor("a"), sensor("b")], fields: ["t", "rh", "note"].map(Arc::from) }
    })
}
