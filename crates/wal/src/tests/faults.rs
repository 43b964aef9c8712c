//! Every I/O operation fails once, and every I/O operation is the last one before a power cut.

use super::history::History;
use super::simulated::{Cut, Fault, Simulated};
use super::small;

/// A sequence of operations on a WAL. Each begins with opening it.
type Course = fn(&mut History);

const COURSES: &[(&str, Course)] = &[
    ("one by one", |history| {
        history.open();
        for size in [8, 100, 1000, 600] {
            history.append(&[size]);
        }
    }),
    ("groups over several blocks", |history| {
        history.open();
        history.append(&[10, 700, 20, 900, 30, 511, 40]);
        history.append(&[300; 6]);
        history.append(&[50; 12]);
    }),
    ("through four segments", |history| {
        history.open();
        for _ in 0..5 {
            history.append(&[1500, 900, 2100, 40]);
        }
        history.append(&[9000]);
        history.append(&[3000, 5000]);
    }),
    ("a group over three segments", |history| {
        history.open();
        history.append(&[10, 3000, 3500, 6000, 2500, 9000, 100, 11000, 20]);
        history.append(&[10]);
    }),
    ("releasing", |history| {
        history.open();
        for round in 0..4 {
            history.append(&[2000, 1800, 900]);
            history.truncate(round, 4);
        }
        history.truncate(1, 1);
        history.append(&[100, 100]);
        history.truncate(1, 2);
    }),
    ("resting", |history| {
        history.open();
        for _ in 0..3 {
            history.append(&[3000, 2900, 2800, 3000, 2700]);
            history.rest();
            history.append(&[900, 3000]);
            history.truncate(2, 3);
            history.rest();
        }
        history.truncate(1, 1);
        history.append(&[9000]);
        history.rest();
        history.append(&[500]);
    }),
    ("restarts", |history| {
        for _ in 0..3 {
            history.open();
            history.append(&[700, 90, 1200]);
            history.truncate(1, 3);
            history.append(&[2000]);
            history.close();
        }
        history.open();
    }),
];

/// Number of disk operations of a course when nothing fails.
fn length(course: Course) -> u64 {
    let mut history = History::new(Simulated::new(1), small());
    course(&mut history);
    assert!(history.acked() >= 4);
    history.check();
    history.disk.operations()
}

fn run(course: Course, seed: u64, fault: Fault) -> History {
    let mut history = History::new(Simulated::new(seed), small());
    history.disk.set_fault(fault);
    course(&mut history);
    history
}

#[test]
fn the_log_recovers_from_any_failed_operation() {
    for (name, course) in COURSES {
        for count in [1, 2, 3, 7] {
            for from in 1..=length(*course) {
                for (seed, cut) in [(from, Cut::Lost), (from + 1, Cut::Kept), (from + 2, Cut::Torn(from))] {
                    eprintln!("{name}: {count} from {from}, then {cut:?}");
                    let mut history = run(*course, seed, Fault::Fail { from, count });
                    if history.disk.operations() < from + count {
                        history.disk.set_fault(Fault::None);
                    }
                    if history.is_closed() {
                        history.open();
                    }
                    history.check_alive();
                    history.cut(cut);
                    history.check_alive();
                }
            }
        }
    }
}

#[test]
fn a_power_cut_after_any_operation_loses_no_acked_record() {
    for (name, course) in COURSES {
        for after in 0..=length(*course) {
            let torn = (1..=6).map(|seed| Cut::Torn(seed * 1000 + after));
            for cut in [Cut::Lost, Cut::Kept].into_iter().chain(torn) {
                eprintln!("{name}: dead after {after}, then {cut:?}");
                let mut history = run(*course, after, Fault::Dead { after });
                history.cut(cut);
                history.check_alive();
                history.cut(Cut::Lost);
                history.check_alive();
            }
        }
    }
}

#[test]
fn a_power_cut_during_recovery_loses_no_acked_record() {
    for (name, course) in COURSES {
        let length = length(*course);
        for first in (1..=length).step_by(3) {
            for second in 1..30 {
                eprintln!("{name}: dead after {first}, and {second} after that");
                let mut history = run(*course, first, Fault::Dead { after: first });
                history.cut(Cut::Torn(first));
                let after = history.disk.operations() + second;
                history.disk.set_fault(Fault::Dead { after });
                history.open();
                history.append(&[50]);
                history.cut(Cut::Torn(second));
                history.check_alive();
            }
        }
    }
}

#[test]
fn records_read_after_a_kill_survive_a_power_cut() {
    for (name, course) in COURSES {
        for after in 0..=length(*course) {
            eprintln!("{name}: killed after {after}");
            let mut history = run(*course, after, Fault::Dead { after });
            history.kill_and_read();
            history.cut(Cut::Lost);
            history.check_alive();
        }
    }
}
