//! A simulated factory of 50 sensors that sends readings over HTTP, as devices do.
//!
//! [`run`] first sends a history of some days, which the service seals, and then a reading per sensor and second, with
//! the usual faults of a factory. The factory is a function of the seed in [`Simulation`] and the time. The crate knows
//! the service only by its HTTP interface.
//!
//! ```no_run
//! use hourglass_demo::{Simulation, run};
//!
//! let simulation = Simulation { seed: 1, days: 30 };
//! run(
//!     simulation,
//!     "http://127.0.0.1:8086",
//!     || false,
//!     |days| println!("{days} days sent"),
//!     |history| println!("{} readings sealed", history.readings),
//! )?;
//! # Ok::<(), anyhow::Error>(())
//! ```

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

/// The parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Simulation {
    /// The same seed makes the same factory.
    pub seed: u64,
    /// Days of history.
    pub days: u32,
}

/// The totals of the sealed history.
#[derive(Debug, Clone, Copy)]
pub struct History {
    pub sensors: usize,
    pub readings: u64,
}

/// Sends the history to the service at `http://HOST:PORT`, seals it, and sends live readings until the service stops.
/// Calls `on_days` with the number of days sent, and `on_history` once all of them are sealed.
///
/// # Errors
/// If the history cannot be sent or sealed.
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
        let sealed = send_history(simulation, &factory, &sender, on_days).and_then(|readings| {
            scope.spawn(|| live::send(&factory, &sender, Faults::new(base, &is_introduced)));
            sender.seal().context("sealing the history")?;
            Ok(readings)
        });
        match sealed {
            // Ignore errors while the service stops.
            _ if sender.is_stopped() => Ok(()),
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

/// Sends the metadata and the history, and returns the number of readings. The database keeps values of another type
/// during the history, and rejects them afterwards.
fn send_history(
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

/// Returns the seconds since the epoch.
fn now_seconds() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}

/// Escapes a text for use as the value of a URL parameter.
fn escape_parameter(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
