//! Fault injection for tests: a kill or a halt at a named point, and a wrong clock. It is compiled only with the
//! feature `faults`, which no release has.

#[cfg(feature = "faults")]
mod active {
    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// `FAULT_KILL_AT=point:n`: the process kills itself when it reaches that point for the nth time.
    static KILL: LazyLock<Option<(String, u64)>> = LazyLock::new(|| nth_of("FAULT_KILL_AT"));

    /// `FAULT_FAIL_AT=point:n`: what is done at that point fails the nth time.
    static FAIL: LazyLock<Option<(String, u64)>> = LazyLock::new(|| nth_of("FAULT_FAIL_AT"));

    /// `FAULT_HALT_AT=point:file`: every thread that reaches that point waits there while the file exists.
    static HALT: LazyLock<Option<(String, String)>> = LazyLock::new(|| point_of("FAULT_HALT_AT"));

    /// The point in an environment variable, and the text after the colon.
    fn point_of(variable: &str) -> Option<(String, String)> {
        let text = std::env::var(variable).ok()?;
        text.split_once(':').map(|(point, rest)| (point.to_owned(), rest.to_owned()))
    }

    fn nth_of(variable: &str) -> Option<(String, u64)> {
        let (point, times) = point_of(variable)?;
        Some((point, times.parse().ok()?))
    }

    fn millis(variable: &str) -> Option<i64> {
        std::env::var(variable).ok()?.parse().ok()
    }

    /// Returns true if a thread must wait here. It then creates the file with the extension `met`, to notify the test.
    fn is_halted(file: &str) -> bool {
        let file = Path::new(file);
        let is_halted = file.exists();
        if is_halted {
            let _ = std::fs::write(file.with_extension("met"), "");
        }
        is_halted
    }

    /// Waits, or kills the process with SIGKILL, if the test requested it for this point.
    pub fn point(name: &str) {
        if let Some((_, file)) = HALT.as_ref().filter(|(at, _)| at == name) {
            while is_halted(file) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let Some((at, times)) = &*KILL else { return };
        if at == name && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *times {
            // Kill the process from outside, so that nothing is flushed or dropped.
            let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
            loop {
                std::thread::park();
            }
        }
    }

    /// Returns true if the test requested a failure at this point.
    pub fn fails(name: &str) -> bool {
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let at = FAIL.as_ref().filter(|(at, _)| at == name);
        at.is_some_and(|(_, times)| PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *times)
    }

    /// The halt of [`point`], for tasks that must not block their thread.
    pub async fn halt_at(name: &str) {
        let Some((_, file)) = HALT.as_ref().filter(|(at, _)| at == name) else { return };
        while is_halted(file) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `FAULT_CLOCK_MS`: the milliseconds by which this machine's clock is ahead.
    pub fn clock_ms() -> i64 {
        millis("FAULT_CLOCK_MS").unwrap_or_default()
    }

    /// `FAULT_LATER_MS`: the milliseconds that are added to the time of all clocks, so that a test can choose its time.
    pub fn later() -> Duration {
        static LATER: LazyLock<Duration> = LazyLock::new(|| {
            let later = millis("FAULT_LATER_MS").and_then(|ms| u64::try_from(ms).ok());
            Duration::from_millis(later.unwrap_or_default())
        });
        *LATER
    }

    /// `FAULT_STEP=file`: the milliseconds by which the wall clock was set forward or back, read from the file at each
    /// call. The time since boot is not affected.
    pub fn step_ms() -> i64 {
        static FILE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("FAULT_STEP").ok());
        let Some(file) = &*FILE else { return 0 };
        std::fs::read_to_string(file).ok().and_then(|ms| ms.trim().parse().ok()).unwrap_or_default()
    }
}

#[cfg(feature = "faults")]
pub use active::{clock_ms, fails, halt_at, later, point, step_ms};

#[cfg(not(feature = "faults"))]
pub use inactive::{clock_ms, fails, halt_at, later, point, step_ms};

/// Without the feature `faults`, points do nothing and the clocks are right.
#[cfg(not(feature = "faults"))]
mod inactive {
    #[inline(always)]
    pub fn point(_name: &str) {}

    #[inline(always)]
    pub fn fails(_name: &str) -> bool {
        false
    }

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
