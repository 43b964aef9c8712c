//! A model-based test of the merge law: instances with WALs, memtables, bucket caches and clocks, one store, and random
//! steps. Whatever is killed, cloned, restored, resent or late, the store ends with the greatest stamp of every cell,
//! less what was deleted with a greater one, bit for bit.
//!
//! Pages, merges, stamps, registry and deletions are the real code; the WAL, the network and the tasks are modelled.
//! In CI merging alone is tried a million times, and some 27,000 worlds go through about a million steps, the same in every
//! run with one `HOURGLASS_TEST_SEED`.

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

/// Runs so many cases in CI, the same in every run with one seed.
fn runner(in_ci: u32) -> TestRunner {
    let cases = scaled([in_ci / 4, in_ci, 10 * in_ci]);
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
