//! Sends the history: a reading per sensor and minute, day by day, oldest first. The service takes it as backfill.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use anyhow::anyhow;

use super::factory::{Factory, SimulatedSensor};
use super::sender::Sender;

const DAY: i64 = 86_400;
/// Seconds between two readings.
const STEP: i64 = 60;
/// Number of threads that make and send lines. Each sensor belongs to one of them, so that its days arrive in order.
const THREADS: usize = 2;

/// Sends the last `days` days, from a midnight of UTC until the start of the demo. Calls `on_days` with the number of
/// days sent, and returns the number of readings.
///
/// # Errors
/// If the service does not accept them, or stops.
pub fn send(factory: &Factory, sender: &Sender, days: u32, mut on_days: impl FnMut(usize)) -> anyhow::Result<u64> {
    let first = factory.began.div_euclid(DAY) - i64::from(days);
    let last = factory.began.div_euclid(DAY);
    let (done, part_done) = mpsc::channel();
    thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS)
            .map(|part| {
                let sender = sender.clone();
                let done = done.clone();
                scope.spawn(move || {
                    let sensors: Vec<&SimulatedSensor> = factory.sensors.iter().skip(part).step_by(THREADS).collect();
                    let mut readings = 0;
                    let mut body = String::new();
                    for day in first..=last {
                        readings += write_day(factory, &sensors, day * DAY..(day + 1) * DAY, &mut body);
                        sender.write_until_acked(&body)?;
                        // The receiver is gone if another part has failed.
                        let _ = done.send(());
                    }
                    anyhow::Ok(readings)
                })
            })
            .collect();
        drop(done);
        for sent in 1.. {
            if part_done.recv().is_err() {
                break;
            }
            on_days(sent / THREADS);
        }
        parts.into_iter().map(|part| part.join().map_err(|_| anyhow!("a thread of the demo has panicked"))?).sum()
    })
}

/// Writes the lines of some sensors for a range of times into `body`, up to the start of the demo. Returns their
/// number.
fn write_day(factory: &Factory, sensors: &[&SimulatedSensor], times: Range<i64>, body: &mut String) -> u64 {
    body.clear();
    for sensor in sensors {
        let mut time_s = times.start;
        while time_s < times.end.min(factory.began + 1) {
            factory.write_lines(sensor, time_s, body);
            time_s += factory.step(sensor, time_s, STEP);
        }
    }
    body.lines().count() as u64
}
