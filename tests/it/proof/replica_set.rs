//! Elections, kills, hangs, failing commands and network faults of a replica set, and a rollback.

use super::oracle::{Oracle, Progress, Violation};
use super::{RECOVERY, World, config, flush};
use crate::support::prelude::*;

const CONNECTIONS: usize = 3;
const FLUSH_INTERVAL: &str = "200ms";
const PACE: Duration = Duration::from_millis(25);
/// Length of broken connections to the primary, enough for many attempts.
const BROKEN: Duration = Duration::from_millis(1500);
/// Length of an unreachable primary, longer than an election.
const UNREACHABLE: Duration = Duration::from_millis(3500);
/// Failing commands in a row.
const FAILURES: i32 = 3;

struct Case {
    set: ReplicaSet,
    world: World,
    oracle: Oracle,
}

impl Case {
    fn start(front: Front, seed: u64) -> Case {
        let set = ReplicaSet::start(front);
        let launch = Launch::with_store(set.uri(&fresh_database_name())).config(config(FLUSH_INTERVAL));
        let world = World::start(launch);
        Case { set, world, oracle: Oracle::new(seed, CONNECTIONS).with_pace(PACE) }
    }

    /// Causes a fault several times under load; acks must resume after each, and the contents are checked at the end.
    fn inject(&mut self, kind: &str, fault: impl Fn(&mut ReplicaSet, &Progress, &Server)) {
        let base = self.world.base();
        for _ in 0..scaled(1, 20) {
            self.oracle.during(&base, |progress| {
                progress.await_acks(2, RECOVERY);
                fault(&mut self.set, progress, &self.world.server);
                progress.await_acks(2, RECOVERY);
            });
            if !flush(&self.world.server) {
                self.oracle.note(Violation::Late(format!("a flush after {kind}")));
            }
        }
        self.set.await_healthy();
        self.world.check(&mut self.oracle);
        self.oracle.assert_no_violations(&format!("replica set, {kind}"));
    }
}

#[test]
fn a_failing_primary_costs_no_acks() {
    let mut case = Case::start(Front::Direct, 11);
    case.inject("step-down", |set, _, _| {
        set.step_down();
    });
    case.inject("SIGKILL of the primary", |set, _, _| {
        let primary = set.primary();
        set.kill(primary);
        set.primary_among(&set.others(primary));
        set.restart(primary);
        set.await_healthy();
    });
    case.inject("SIGSTOP of the primary", |set, _, _| {
        let primary = set.primary();
        set.pause(primary);
        set.primary_among(&set.others(primary));
        set.resume(primary);
        set.await_healthy();
    });
}

#[test]
fn a_faulty_network_costs_no_acks() {
    let mut case = Case::start(Front::Proxies, 12);
    let faults = [
        ("replies cut after 40 bytes", Fault::CutReply { after: 40 }),
        ("a black hole", Fault::BlackHole),
        ("resets", Fault::Reset),
        ("refusals", Fault::Refuse),
        ("a delay", Fault::Delay(Duration::from_millis(40))),
        ("replies cut at once", Fault::CutReply { after: 0 }),
    ];
    for (name, fault) in faults.into_iter().take(scaled(3, 6)) {
        case.inject(name, |set, progress, _| {
            let primary = set.primary();
            set.proxy(primary).set(fault);
            match fault {
                Fault::BlackHole | Fault::Refuse => std::thread::sleep(UNREACHABLE),
                Fault::CutReply { .. } | Fault::CutReplyTo(_) | Fault::Reset => std::thread::sleep(BROKEN),
                Fault::Delay(_) | Fault::Pass => progress.await_acks(2, RECOVERY),
            }
            set.proxy(primary).set(Fault::Pass);
            set.await_healthy();
        });
    }
}

/// Codes of a stepped-down or stopping primary, an unmet write concern after the write, and closed connections.
#[test]
fn failed_commands_cost_no_acks() {
    let mut case = Case::start(Front::Direct, 13);
    let concern = doc! { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out" };
    let faults = [
        ("a write concern error", doc! { "writeConcernError": concern }),
        ("a closed connection", doc! { "closeConnection": true }),
        ("error 91", doc! { "errorCode": 91 }),
        ("error 189", doc! { "errorCode": 189 }),
        ("error 11600", doc! { "errorCode": 11600 }),
    ];
    for (name, data) in faults.into_iter().take(scaled(3, 5)) {
        case.inject(name, |set, progress, server| {
            for command in ["update", "insert"] {
                let primary = set.primary();
                let before = set.fail_commands(primary, FAILURES, &[command], data.clone());
                progress.await_acks(3, RECOVERY);
                assert!(flush(server), "{name} of {command}: {FAILURES} failures and no flush");
                assert!(set.stop_failing(primary) > before, "{name} of {command}: the point was not met");
            }
        });
    }
}

const CONTROL: &str = "control";

/// Writes of a primary without a majority are rolled back; hourglass must not have counted them as stored.
#[test]
fn a_rollback_costs_no_acks() {
    let mut case = Case::start(Front::Direct, 14);
    let base = case.world.base();
    let set = &mut case.set;
    let old = case.oracle.during(&base, |progress| {
        progress.await_acks(2, RECOVERY);
        let old = set.primary();
        write_control(set, old, 0, "majority");
        // Killed, not stopped: commands to a stopped process would still arrive later.
        for secondary in set.others(old) {
            set.kill(secondary);
        }
        // The primary does not know yet that it is alone.
        write_control(set, old, 1, "1");
        let alone = progress.acked();
        wait_until("acks without the store", || progress.acked() > alone);
        assert_eq!(controls(set, old), [0, 1], "the control stands on the primary that is alone");
        set.kill(old);
        for secondary in set.others(old) {
            set.restart(secondary);
        }
        let new = set.primary_among(&set.others(old));
        progress.await_acks(2, RECOVERY);
        assert_eq!(controls(set, new), [0], "the control is not known to the new primary");
        set.restart(old);
        set.await_healthy();
        progress.await_acks(2, RECOVERY);
        old
    });
    // It is a secondary for a moment, and closes connections during the rollback.
    eventually("the old primary rolls the control back", || try_controls(set, old).filter(|controls| *controls == [0]));
    set.await_healthy();
    case.world.check(&mut case.oracle);
    case.oracle.assert_no_violations("replica set, rollback");
}

/// Writes a control document directly.
fn write_control(set: &ReplicaSet, member: usize, id: i32, concern: &str) {
    let w = concern.parse::<i32>().map_or_else(|_| concern.into(), mongodb::bson::Bson::from);
    let insert = doc! { "insert": CONTROL, "documents": [{ "_id": id }], "writeConcern": { "w": w, "j": true } };
    let answer = set.command(member, CONTROL, insert).expect("the control is written");
    assert_eq!(answer.get_i32("n").ok(), Some(1), "{answer}");
}

fn controls(set: &ReplicaSet, member: usize) -> Vec<i32> {
    eventually("the controls are read", || try_controls(set, member))
}

fn try_controls(set: &ReplicaSet, member: usize) -> Option<Vec<i32>> {
    let answer = set.command(member, CONTROL, doc! { "find": CONTROL, "sort": { "_id": 1 } }).ok()?;
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    Some(batch.iter().map(|one| one.as_document().expect("a document").get_i32("_id").expect("an id")).collect())
}

/// Regression: for up to a second after a failover, answers were older than what `ack=store` had acknowledged, because
/// the new primary does not know yet which of its writes a majority has.
#[test]
fn no_read_after_a_failover_is_older_than_an_ack() {
    const ROUNDS: i64 = 3;
    let mut set = ReplicaSet::start(Front::Direct);
    let config = "[store]\ncommand_timeout = \"20s\"\n[ingest]\nack_timeout = \"20s\"\n";
    let server = Launch::with_store(set.uri(&fresh_database_name())).config(config).start();
    for round in 0..scaled(ROUNDS, 30) {
        let primary = set.primary();
        let acked = round * 100 + 20;
        for value in round * 100..=acked {
            post(&server.url("/write?ack=store"), format!("m,s=1 v={value}i {START}"), &[]).expect(204);
        }
        set.kill(primary);
        let mut answers = 0;
        wait_until("queries are answered again", || {
            let answer = get(&server.url("/query?db=default&q=SELECT%20v%20FROM%20m"));
            let value = &answer.json()["results"][0]["series"][0]["values"][0][1];
            if answer.status == 200 && value.is_number() {
                assert_eq!(value.as_i64(), Some(acked), "round {round}, after {answers} answers");
                answers += 1;
            }
            answers == 50
        });
        set.restart(primary);
        set.await_healthy();
    }
}
