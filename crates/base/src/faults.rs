//! Faults that tests ask for: a kill or a halt at a named point, and a wrong clock. Compiled in only with the feature
//! `faults`, which no release has. Seeded bugs are source edits, listed in `tests/mutants.toml`.

#[cfg(feature = "faults")]
mod active {
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// `FAULT_KILL_AT=point:n`: the process kills itself the nth time it comes to that point.
    fn kill() -> Option<&'static (String, u64)> {
        static KILL: OnceLock<Option<(String, u64)>> = OnceLock::new();
        let parse = || {
            let text = std::env::var("FAULT_KILL_AT").ok()?;
            let (point, times) = text.split_once(':')?;
            Some((point.to_owned(), times.parse().ok()?))
        };
        KILL.get_or_init(parse).as_ref()
    }

    /// `FAULT_HALT_AT=point:file`: every thread that comes to that point waits there while the file is there.
    fn halt() -> Option<&'static (String, String)> {
        static HALT: OnceLock<Option<(String, String)>> = OnceLock::new();
        let parse = || {
            let text = std::env::var("FAULT_HALT_AT").ok()?;
            let (point, file) = text.split_once(':')?;
            Some((point.to_owned(), file.to_owned()))
        };
        HALT.get_or_init(parse).as_ref()
    }

    /// Whether a thread must wait here. Creates the file with the extension `met` if so, so that the test knows that one
    /// waits.
    fn is_halted(file: &str) -> bool {
        let file = Path::new(file);
        let is_halted = file.exists();
        if is_halted {
            let _ = std::fs::write(file.with_extension("met"), "");
        }
        is_halted
    }

    /// Waits, or kills the process as SIGKILL does, when a test asked for it here.
    pub fn point(name: &str) {
        if let Some((_, file)) = halt().filter(|(at, _)| at == name) {
            while is_halted(file) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let Some((at, times)) = kill() else { return };
        if at == name && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *times {
            // Nothing is flushed or dropped, which is what makes it a kill.
            let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
            loop {
                std::thread::park();
            }
        }
    }

    /// As [`point`] where it halts, for a task that must not keep its thread from others meanwhile.
    pub async fn halt_at(name: &str) {
        let Some((_, file)) = halt().filter(|(at, _)| at == name) else { return };
        while is_halted(file) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `FAULT_CLOCK_MS`: by how many milliseconds this machine's clock is ahead of what it should say.
    pub fn clock_ms() -> i64 {
        std::env::var("FAULT_CLOCK_MS").ok().and_then(|ms| ms.parse().ok()).unwrap_or_default()
    }

    /// `FAULT_LATER_MS`: how many milliseconds later it is than all clocks say, so that a test has a time of day of its own.
    pub fn later() -> Duration {
        static LATER: OnceLock<Duration> = OnceLock::new();
        let parse = || std::env::var("FAULT_LATER_MS").ok().and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
        *LATER.get_or_init(|| parse().unwrap_or_default())
    }

    /// `FAULT_STEP=file`: by how many milliseconds the wall clock was set forward, or back, as the file says at any moment. What
    /// counts from the start of the machine does not notice.
    pub fn step_ms() -> i64 {
        static FILE: OnceLock<Option<String>> = OnceLock::new();
        let Some(file) = FILE.get_or_init(|| std::env::var("FAULT_STEP").ok()) else { return 0 };
        std::fs::read_to_string(file).ok().and_then(|ms| ms.trim().parse().ok()).unwrap_or_default()
    }
}

#[cfg(feature = "faults")]
pub use active::{clock_ms, halt_at, later, point, step_ms};

/// Nothing: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// Nothing: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub async fn halt_at(_name: &str) {}

/// The clock is right: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn clock_ms() -> i64 {
    0
}

/// It is as late as the clocks say: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn later() -> std::time::Duration {
    std::time::Duration::ZERO
}

/// Nobody sets the clock: the feature `faults` is off.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub fn step_ms() -> i64 {
    0
}
