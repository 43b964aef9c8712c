//! Faults that tests ask for: a kill or a halt at a named point, and a wrong clock. Compiled in only with the feature
//! `faults`, which no release has. Seeded bugs are source edits, listed in `tests/mutants.toml`.

#[cfg(feature = "faults")]
mod active {
    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// `FAULT_KILL_AT=point:n`: the process kills itself the nth time it comes to that point.
    static KILL: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let (point, times) = point_of("FAULT_KILL_AT")?;
        Some((point, times.parse().ok()?))
    });

    /// `FAULT_HALT_AT=point:file`: every thread that comes to that point waits there while the file is there.
    static HALT: LazyLock<Option<(String, String)>> = LazyLock::new(|| point_of("FAULT_HALT_AT"));

    /// The point in a variable, and what follows it.
    fn point_of(variable: &str) -> Option<(String, String)> {
        let text = std::env::var(variable).ok()?;
        text.split_once(':').map(|(point, rest)| (point.to_owned(), rest.to_owned()))
    }

    fn millis(variable: &str) -> Option<i64> {
        std::env::var(variable).ok()?.parse().ok()
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
        if let Some((_, file)) = HALT.as_ref().filter(|(at, _)| at == name) {
            while is_halted(file) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let Some((at, times)) = &*KILL else { return };
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
        let Some((_, file)) = HALT.as_ref().filter(|(at, _)| at == name) else { return };
        while is_halted(file) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `FAULT_CLOCK_MS`: by how many milliseconds this machine's clock is ahead of what it should say.
    pub fn clock_ms() -> i64 {
        millis("FAULT_CLOCK_MS").unwrap_or_default()
    }

    /// `FAULT_LATER_MS`: how many milliseconds later it is than all clocks say, so that a test has a time of day of its own.
    pub fn later() -> Duration {
        static LATER: LazyLock<Duration> = LazyLock::new(|| {
            let later = millis("FAULT_LATER_MS").and_then(|ms| u64::try_from(ms).ok());
            Duration::from_millis(later.unwrap_or_default())
        });
        *LATER
    }

    /// `FAULT_STEP=file`: by how many milliseconds the wall clock was set forward, or back, as the file says at any moment. What
    /// counts from the start of the machine does not notice.
    pub fn step_ms() -> i64 {
        static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FAULT_STEP").ok());
        let Some(file) = &*FILE else { return 0 };
        std::fs::read_to_string(file).ok().and_then(|ms| ms.trim().parse().ok()).unwrap_or_default()
    }
}

#[cfg(feature = "faults")]
pub use active::{clock_ms, halt_at, later, point, step_ms};

#[cfg(not(feature = "faults"))]
pub use inactive::{clock_ms, halt_at, later, point, step_ms};

/// Without the feature `faults`: no point does anything, and the clocks are right.
#[cfg(not(feature = "faults"))]
mod inactive {
    #[inline(always)]
    pub fn point(_name: &str) {}

    #[inline(always)]
    pub async fn halt_at(_name: &str) {}

    #[inline(always)]
    pub fn clock_ms() -> i64 {
        0
    }

    #[inline(always)]
    pub fn later() -> std::time::Duration {
        std::time::Duration::ZERO
    }

    #[inline(always)]
    pub fn step_ms() -> i64 {
        0
    }
}
