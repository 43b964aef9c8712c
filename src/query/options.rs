//! Bounds on queries.

use std::time::Duration;

/// Most columns that one statement computes.
pub const COLUMNS_MAX: usize = 4096;
/// Most regular expressions per request, not counting lists of texts such as `^(a|b)$`.
pub const PATTERNS_MAX: usize = 16;

/// Config section `[query]`.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Most memory per request, answer included.
    pub request_bytes: usize,
    /// Most memory of all requests together.
    pub bytes: usize,
    /// Most memory of all requests of one token.
    pub token_bytes: usize,
    /// Most queries running at a time.
    pub concurrent: usize,
    /// Longest range of a query.
    pub span_max: Duration,
    /// Most sensors per query.
    pub series_max: usize,
    /// How old may be what this process knows of other instances' sensors and of the hours they wrote.
    pub cache_max_age: Duration,
    /// Memory for cached summaries and sensors; zero turns the caches off.
    pub cache_bytes: usize,
    /// How long a query waits while readings are read back from the WAL or the store is unavailable.
    pub wait: Duration,
    /// Longest time for one request, including the wait for its turn.
    pub timeout: Duration,
    /// Requests that take at least this long are logged.
    pub log_after: Duration,
}

#[cfg(test)]
impl QueryOptions {
    /// Nothing is cached, and nothing of a request is bounded but its time, a minute.
    pub fn of_tests() -> Self {
        let (none, most) = (Duration::ZERO, usize::MAX);
        Self {
            request_bytes: most,
            bytes: most,
            token_bytes: most,
            concurrent: 1,
            span_max: none,
            series_max: most,
            cache_max_age: none,
            cache_bytes: 0,
            wait: none,
            timeout: Duration::from_secs(60),
            log_after: Duration::MAX,
        }
    }
}
