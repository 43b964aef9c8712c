//! Sends live readings: one per sensor and second, through the gateways of their lines. Gateways occasionally lose
//! their link, send twice, and garble a line.

use std::thread;
use std::time::Duration;

use super::factory::{Defect, Factory, GATEWAYS};
use super::faults::{Fault, Faults};
use super::sender::Sender;
use crate::now_seconds;

/// Maximum number of seconds that are sent late. A longer pause of the machine leaves a gap.
const CATCH_UP_MAX_S: i64 = 300;
/// Maximum size in bytes of the lines that a gateway keeps while it cannot send.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Index of the gateway that loses its link.
const OFFLINE_GATEWAY: usize = 1;
/// Seconds between two losses of the link.
const OFFLINE_EVERY_S: i64 = 180;
/// Seconds without a link.
const OFFLINE_FOR_S: i64 = 30;
/// Index of the gateway that misses an acknowledgement.
const RETRY_GATEWAY: usize = 3;
const RETRY_EVERY_S: i64 = 60;
/// Index of the gateway that sends a line with a torn tag.
const GARBLED_GATEWAY: usize = 4;
const GARBLED_EVERY_S: i64 = 75;
const GARBLED_LINE: &str = "vibration,line=b,sensor=,site=porto rms=";

/// The state of a gateway's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Down,
    /// Up again after this number of seconds.
    Back(i64),
    /// Up, but the gateway sends twice.
    Retries,
}

/// Returns the state of a gateway's link, `demo_s` seconds after the start of the demo.
fn link(gateway: usize, demo_s: i64) -> Link {
    if gateway == RETRY_GATEWAY && demo_s % RETRY_EVERY_S == RETRY_EVERY_S / 2 {
        return Link::Retries;
    }
    if gateway != OFFLINE_GATEWAY {
        return Link::Up;
    }
    // The first loss comes early, so that nobody has to wait for it.
    match (demo_s + OFFLINE_EVERY_S / 2).rem_euclid(OFFLINE_EVERY_S) {
        second if second < OFFLINE_FOR_S => Link::Down,
        OFFLINE_FOR_S => Link::Back(OFFLINE_FOR_S),
        _ => Link::Up,
    }
}

fn is_garbled(gateway: usize, demo_s: i64) -> bool {
    gateway == GARBLED_GATEWAY && demo_s % GARBLED_EVERY_S == 4
}

/// The lines that one gateway has not sent yet.
#[derive(Debug, Default)]
struct Gateway {
    unsent: String,
    is_refused: bool,
}

/// Sends every second until the service stops, and logs the faults.
pub fn send(factory: &Factory, sender: &Sender, mut faults: Faults<'_>) {
    let mut gateways: Vec<Gateway> = GATEWAYS.iter().map(|_| Gateway::default()).collect();
    let mut sent = factory.began;
    while !sender.is_stopped() {
        let now = now_seconds();
        let from = (sent + 1).max(now - CATCH_UP_MAX_S);
        for (number, gateway) in gateways.iter_mut().enumerate() {
            for time_s in from..=now {
                gateway.measure(factory, number, time_s);
                record_faults(factory, number, time_s, &mut faults);
            }
            if now > sent {
                gateway.send(number, sender, link(number, now - factory.began));
            }
        }
        sent = sent.max(now);
        faults.log();
        thread::sleep(Duration::from_millis(100));
    }
}

/// Records the faults of a gateway and its sensors at a time.
fn record_faults(factory: &Factory, number: usize, time_s: i64, faults: &mut Faults<'_>) {
    for sensor in factory.sensors.iter().filter(|sensor| sensor.gateway == number) {
        if let Some(defect) = factory.active_defect(sensor, time_s) {
            faults.record(Fault::Sensor(defect), &sensor.key);
        }
        // This defect is only in the history.
        if sensor.defect == Some(Defect::Kept) {
            faults.record(Fault::Sensor(Defect::Kept), &sensor.key);
        }
    }
    if is_garbled(number, time_s - factory.began) {
        let (site, line) = GATEWAYS[number];
        faults.record(Fault::Garbled, &format!("{site} {line}"));
    }
}

impl Gateway {
    /// Adds the readings of its sensors at a time.
    fn measure(&mut self, factory: &Factory, number: usize, time_s: i64) {
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return;
        }
        for sensor in factory.sensors.iter().filter(|sensor| sensor.gateway == number) {
            factory.write_lines(sensor, time_s, &mut self.unsent);
        }
        if is_garbled(number, time_s - factory.began) {
            self.unsent.push_str(GARBLED_LINE);
            self.unsent.push('\n');
        }
    }

    fn send(&mut self, number: usize, sender: &Sender, link: Link) {
        let (site, line) = GATEWAYS[number];
        if link == Link::Down || self.unsent.is_empty() {
            return;
        }
        let times = if link == Link::Retries { 2 } else { 1 };
        for _ in 0..times {
            if let Err(error) = sender.write(&self.unsent) {
                if !std::mem::replace(&mut self.is_refused, true) && !sender.is_stopped() {
                    tracing::warn!(site, line, error = format!("{error:#}"), "not acknowledged; retrying");
                }
                return;
            }
        }
        self.is_refused = false;
        let readings = self.unsent.lines().count();
        match link {
            Link::Back(seconds) => {
                tracing::info!(site, line, seconds, readings, "the gateway was offline and sent late")
            }
            Link::Retries => tracing::info!(site, line, readings, "the gateway sent twice, as after a lost ack"),
            Link::Up | Link::Down => {}
        }
        self.unsent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_occurs_within_two_minutes_and_every_outage_ends() {
        let links = |gateway: usize| (1..=600).map(move |demo_s| link(gateway, demo_s));
        assert!(links(OFFLINE_GATEWAY).take(120).any(|link| link == Link::Down));
        assert_eq!(links(OFFLINE_GATEWAY).filter(|link| matches!(link, Link::Back(_))).count(), 3);
        assert_eq!(links(OFFLINE_GATEWAY).filter(|link| *link == Link::Down).count(), 3 * 30);
        assert!(links(RETRY_GATEWAY).take(120).any(|link| link == Link::Retries));
        assert!((1..=120).any(|demo_s| is_garbled(GARBLED_GATEWAY, demo_s)));
        assert!(links(0).all(|link| link == Link::Up));
    }
}
