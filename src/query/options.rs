//! Fixed bounds on queries.

/// Maximum number of columns that one statement computes.
pub const COLUMNS_MAX: usize = 4096;
/// Maximum number of regular expressions per request, not counting lists of texts such as `^(a|b)$`.
pub const PATTERNS_MAX: usize = 16;

/// Settings without a cache and without bounds, except a timeout of one minute.
#[cfg(test)]
pub fn unbounded_settings() -> crate::config::QuerySettings {
    use std::time::Duration;

    let max = usize::MAX;
    crate::config::QuerySettings {
        request_bytes: max,
        bytes: max,
        token_bytes: max,
        concurrent: 1,
        series_max: max,
        cache_max_age: Duration::ZERO,
        cache_bytes: 0,
        wait: Duration::ZERO,
        timeout: Duration::from_secs(60),
        log_after: Duration::MAX,
        ..crate::config::Settings::default().query
    }
}
