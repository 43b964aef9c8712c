//! A simulated factory that sends over HTTP, as devices do: a month of history, which is sealed, and then readings each
//! second, with the faults that factories have. Everything about the factory is a function of a seed and the time.
//! Knows the service by its HTTP interface alone.

mod factory;
mod faults;
mod history;
mod live;
mod noise;
mod sender;
mod shifts;
mod signals;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use self::factory::Factory;
use self::faults::Faults;
use self::sender::Sender;

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Simulation {
    /// The same seed makes the same factory.
    pub seed: u64,
    /// Days of history.
    pub days: u32,
}

/// The history that was sent and sealed.
#[derive(Debug, Clone, Copy)]
pub struct History {
    pub sensors: usize,
    pub readings: u64,
}

/// Sends the past to the service at `http://HOST:PORT`, has it sealed, and sends the present until the service stops.
/// Calls `on_days` with the number of days sent, and `on_history` when all of them are sealed.
///
/// # Errors
/// If the past cannot be sent or sealed.
pub fn run(
    simulation: Simulation,
    base: &str,
    is_stopping: impl Fn() -> bool + Send + Sync + 'static,
    on_days: impl FnMut(usize),
    on_history: impl FnOnce(History),
) -> anyhow::Result<()> {
    let factory = Factory::new(simulation.seed, now_seconds());
    let sender = Sender::new(base, is_stopping);
    let is_introduced = AtomicBool::new(false);
    thread::scope(|scope| {
        let made = send_past(simulation, &factory, &sender, on_days).and_then(|readings| {
            scope.spawn(|| live::send(&factory, &sender, Faults::new(base, &is_introduced)));
            sender.seal().context("sealing the history")?;
            Ok(readings)
        });
        match made {
            // What failed because the service stops is no failure.
            _ if sender.is_told() => Ok(()),
            Ok(readings) => {
                on_history(History { sensors: factory.sensors.len(), readings });
                is_introduced.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                sender.give_up();
                Err(error)
            }
        }
    })
}

/// Returns the number of readings. The database keeps values of another type meanwhile, and rejects them from then on.
fn send_past(
    simulation: Simulation,
    factory: &Factory,
    sender: &Sender,
    on_days: impl FnMut(usize),
) -> anyhow::Result<u64> {
    sender.set_drift("keep").context("setting up the database")?;
    sender.describe(&factory.metadata()).context("describing the sensors")?;
    let readings = history::send(factory, sender, simulation.days, on_days).context("sending the history")?;
    sender.set_drift("reject").context("setting up the database")?;
    Ok(readings)
}

/// Seconds since the epoch.
fn now_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Escapes a text for use as the value of a URL parameter.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
