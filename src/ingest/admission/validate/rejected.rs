//! The rejections of one request: counts by reason, the first rejections in full, and the lines to keep.

use std::collections::BTreeMap;

use crate::reading::Rejection;

/// Maximum number of rejections of one request that are reported in full. The rest is only counted.
const REPORTED_MAX: usize = 100;
/// Maximum bytes of one request's rejected lines that are kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The rejections of one request.
#[derive(Debug, Default)]
pub struct RejectionSummary {
    /// The number of rejected lines and rejected single fields.
    pub count: usize,
    /// The number of lines of which nothing was accepted.
    pub line_count: usize,
    /// The first rejections, for the response.
    pub reported: Vec<Rejection>,
    /// Counts by the label of a [`crate::reading::Reason`].
    pub reasons: BTreeMap<&'static str, u64>,
    /// Rejected lines with their reasons, up to [`KEPT_BYTES_MAX`].
    pub kept_lines: Vec<RejectedLine>,
    kept_bytes: usize,
}

/// A rejected line.
#[derive(Debug)]
pub struct RejectedLine {
    /// The line in the request, from 1.
    pub number: usize,
    /// The column, from 1; 0 for the whole line.
    pub column: usize,
    /// The line as sent, or its beginning if it is long or not UTF-8.
    pub text: Box<str>,
    /// The rejected field. `None` if the whole line was rejected.
    pub field: Option<Box<str>>,
    /// The timestamp of the accepted fields.
    pub time: Option<i64>,
    pub code: &'static str,
    pub reason: String,
}

impl RejectionSummary {
    /// Counts a rejection, and keeps its line if `keeps_lines`.
    pub fn note(&mut self, mut rejection: Rejection, keeps_lines: bool) {
        self.count += 1;
        self.line_count += usize::from(!rejection.reason.keeps_other_fields());
        *self.reasons.entry(rejection.reason.label()).or_default() += 1;
        if keeps_lines {
            self.keep(&mut rejection);
        }
        if self.reported.len() < REPORTED_MAX {
            self.reported.push(rejection);
        }
    }

    fn keep(&mut self, rejection: &mut Rejection) {
        let text = rejection.whole.take().map_or_else(|| rejection.text.as_str().into(), |whole| whole.0);
        let bytes = size_of::<RejectedLine>() + text.len();
        if self.kept_bytes + bytes > KEPT_BYTES_MAX {
            return;
        }
        self.kept_bytes += bytes;
        let Rejection { line: number, column, reason, .. } = rejection;
        let field = reason.field().map(Box::from);
        self.kept_lines.push(RejectedLine {
            number: *number,
            column: *column,
            text,
            field,
            time: None,
            code: reason.label(),
            reason: reason.to_string(),
        });
    }
}
