//! Sends the present: a reading a second of each sensor, through the gateways of their lines. Gateways lose their link, send
//! again what was acknowledged already, and garble a line now and then.

use std::thread;
use std::time::Duration;

use super::factory::{Defect, Factory, GATEWAYS};
use super::faults::{Fault, Faults};
use super::sender::Sender;
use crate::now_seconds;

/// Most seconds that are sent later: after a longer pause of the machine there is a gap.
const CATCH_UP_S: i64 = 300;
/// What a gateway keeps at most while it cannot send.
const UNSENT_BYTES: usize = 4 << 20;
/// The gateway that loses its link: its place, how often, and for how long.
const OFFLINE: (usize, i64, i64) = (1, 180, 30);
/// The gateway that does not see an acknowledgement, and how often.
const RETRY: (usize, i64) = (3, 60);
/// The gateway that sends a line with a torn tag, and how often.
const GARBLED: (usize, i64) = (4, 75);
const GARBLED_LINE: &str = "vibration,line=b,sensor=,site=porto rms=";

/// What a gateway does with what it has, `since` seconds after the demo began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    Down,
    /// Up again after so many seconds.
    Back(i64),
    /// It sends twice.
    Retries,
}

fn link(gateway: usize, since: i64) -> Link {
    let (offline, every, lasts) = OFFLINE;
    // The first time after some seconds, so that nobody has to wait for it.
    let within = (since + every / 2).rem_euclid(every);
    match (gateway, since) {
        _ if gateway == offline && within < lasts => Link::Down,
        _ if gateway == offline && within == lasts => Link::Back(lasts),
        _ if gateway == RETRY.0 && since % RETRY.1 == RETRY.1 / 2 => Link::Retries,
        _ => Link::Up,
    }
}

fn is_garbled(gateway: usize, since: i64) -> bool {
    gateway == GARBLED.0 && since % GARBLED.1 == 4
}

/// What one gateway has yet to send.
#[derive(Debug, Default)]
struct Gateway {
    unsent: String,
    is_refused: bool,
}

/// Sends each second until the service stops, and tells the faults that show.
pub fn send(factory: &Factory, sender: &Sender, mut faults: Faults<'_>) {
    let mut gateways: Vec<Gateway> = GATEWAYS.iter().map(|_| Gateway::default()).collect();
    let mut sent = factory.began;
    while !sender.is_told() {
        let now = now_seconds();
        let from = (sent + 1).max(now - CATCH_UP_S);
        for (number, gateway) in gateways.iter_mut().enumerate() {
            for at in from..=now {
                gateway.measure(factory, number, at);
                note_faults(factory, number, at, &mut faults);
            }
            if now > sent {
                gateway.send(number, sender, link(number, now - factory.began));
            }
        }
        sent = sent.max(now);
        faults.tell();
        thread::sleep(Duration::from_millis(100));
    }
}

/// Takes note of what is wrong with the sensors of a gateway, and with it, at a time.
fn note_faults(factory: &Factory, number: usize, at: i64, faults: &mut Faults<'_>) {
    for sensor in factory.sensors.iter().filter(|sensor| sensor.gateway == number) {
        if let Some(defect) = factory.shown(sensor, at) {
            faults.note(Fault::Of(defect), &sensor.key);
        }
        // It shows in history alone.
        if sensor.defect == Some(Defect::Kept) {
            faults.note(Fault::Of(Defect::Kept), &sensor.key);
        }
    }
    if is_garbled(number, at - factory.began) {
        let (site, line) = GATEWAYS[number];
        faults.note(Fault::Garbled, &format!("{site} {line}"));
    }
}

impl Gateway {
    /// Takes what its sensors measure at a time.
    fn measure(&mut self, factory: &Factory, number: usize, at: i64) {
        if self.unsent.len() > UNSENT_BYTES {
            return;
        }
        for sensor in factory.sensors.iter().filter(|sensor| sensor.gateway == number) {
            factory.write_lines(sensor, at, &mut self.unsent);
        }
        if is_garbled(number, at - factory.began) {
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
                if !std::mem::replace(&mut self.is_refused, true) && !sender.is_told() {
                    tracing::warn!(site, line, error = format!("{error:#}"), "not acknowledged, so it is sent again");
                }
                return;
            }
        }
        self.is_refused = false;
        let readings = self.unsent.lines().count();
        match link {
            Link::Back(seconds) => {
                tracing::info!(site, line, seconds, readings, "the gateway was offline, and sent late")
            }
            Link::Retries => tracing::info!(site, line, readings, "the gateway sent twice, as if the ack was lost"),
            Link::Up | Link::Down => {}
        }
        self.unsent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_comes_within_two_minutes_and_no_outage_is_endless() {
        let links = |gateway: usize| (1..=600).map(move |since| link(gateway, since));
        assert!(links(OFFLINE.0).take(120).any(|link| link == Link::Down));
        assert_eq!(links(OFFLINE.0).filter(|link| matches!(link, Link::Back(_))).count(), 3);
        assert_eq!(links(OFFLINE.0).filter(|link| *link == Link::Down).count(), 3 * 30);
        assert!(links(RETRY.0).take(120).any(|link| link == Link::Retries));
        assert!((1..=120).any(|since| is_garbled(GARBLED.0, since)));
        assert!(links(0).all(|link| link == Link::Up));
    }
}
