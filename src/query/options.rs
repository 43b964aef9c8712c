//! Bounds on queries that no key sets.

/// Most columns that one statement computes.
pub const COLUMNS_MAX: usize = 4096;
/// Most regular expressions per request, not counting lists of texts such as `^(a|b)$`.
pub const PATTERNS_MAX: usize = 16;

/// Settings with which nothing is cached, and nothing of a request is bounded but its time, a minute.
#[cfg(test)]
pub fn of_tests() -> crate::config::QuerySettings {
    use std::time::Duration;

    let most = usize::MAX;
    crate::config::QuerySettings {
        request_bytes: most,
        bytes: most,
        token_bytes: most,
        concurrent: 1,
        series_max: most,
        cache_max_age: Duration::ZERO,
        cache_bytes: 0,
        wait: Duration::ZERO,
        timeout: Duration::from_secs(60),
        log_after: Duration::MAX,
        ..crate::config::Settings::default().query
    }
}
