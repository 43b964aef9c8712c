//! The results as one page.
use super::results::Results;
/// The page.
pub fn page(results: &Results) -> String {
    format!("{}", results.format)
}
