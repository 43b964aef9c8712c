//! Random orders of appends, truncations, restarts, faults and power cuts, against a simple model.

use proptest::prelude::*;

use super::history::History;
use super::simulated::{Cut, Fault, Simulated};
use super::small;
use crate::WalOptions;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>),
    Release(usize),
    Restart,
    Cut(Cut),
    FailNext(u64),
    DieAfter(u64, Cut),
    Check,
}

fn step() -> impl Strategy<Value = Step> {
    let cut = || prop_oneof![Just(Cut::Lost), Just(Cut::Kept), any::<u64>().prop_map(Cut::Torn)];
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![8..200_usize, 200..3000_usize, 3000..12_000_usize], 1..8)
            .prop_map(Step::Append),
        2 => (0..=10_usize).prop_map(Step::Release),
        1 => Just(Step::Restart),
        1 => cut().prop_map(Step::Cut),
        1 => (1..6_u64).prop_map(Step::FailNext),
        1 => ((0..40_u64), cut()).prop_map(|(after, cut)| Step::DieAfter(after, cut)),
        1 => Just(Step::Check),
    ]
}

fn run(seed: u64, options: WalOptions, steps: Vec<Step>) {
    let mut history = History::new(Simulated::new(seed), options);
    let mut death = None;
    for step in steps {
        if history.is_closed() {
            history.open();
        }
        match step {
            Step::Append(sizes) => history.append(&sizes),
            Step::Release(tenths) => history.truncate(tenths, 10),
            Step::Restart => {
                history.close();
                history.open();
            }
            Step::Cut(cut) => {
                history.cut(death.take().unwrap_or(cut));
                history.check_alive();
            }
            Step::FailNext(count) if death.is_none() => history.disk.fail_next(count),
            Step::DieAfter(after, cut) if death.is_none() => {
                let after = history.disk.operations() + after;
                history.disk.set_fault(Fault::Dead { after });
                death = Some(cut);
            }
            Step::Check if death.is_none() => {
                history.disk.set_fault(Fault::None);
                history.check_alive();
            }
            Step::FailNext(_) | Step::DieAfter(..) | Step::Check => {}
        }
    }
    history.cut(death.unwrap_or(Cut::Lost));
    history.check_alive();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_has_what_its_history_acked(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..40),
        compress in any::<bool>(),
    ) {
        let options = WalOptions { compress, budget_bytes: 256 << 10, ..small() };
        run(seed, options, steps);
    }
}
