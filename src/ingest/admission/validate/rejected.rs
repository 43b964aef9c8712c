//! The rejections of one request: counts by reason, the first ones in full, and the lines to keep.

use std::collections::BTreeMap;

use crate::reading::Rejection;

/// Most rejections of one request that are reported in full; the rest is only counted.
const REJECTIONS_TOLD: usize = 100;
/// Maximum bytes of one request's rejected lines that are kept.
const KEPT_BYTES: usize = 1 << 20;

/// What a request had rejected.
#[derive(Debug, Default)]
pub struct Rejected {
    /// Rejected lines and rejected single fields of lines.
    pub count: usize,
    /// Lines of which nothing was accepted.
    pub lines: usize,
    /// The first rejections, for the answer.
    pub told: Vec<Rejection>,
    /// Counts by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Rejected lines with the reasons, up to [`KEPT_BYTES`].
    pub kept: Vec<RejectedLine>,
    kept_bytes: usize,
}

/// A rejected line.
#[derive(Debug)]
pub struct RejectedLine {
    /// In the request, from 1.
    pub number: usize,
    /// From 1; 0 for the whole line.
    pub column: usize,
    /// As sent; only its beginning if it is long or no UTF-8.
    pub text: Box<str>,
    /// The only field that was rejected; `None` if nothing of the line was accepted.
    pub field: Option<Box<str>>,
    /// The timestamp of the fields that were accepted.
    pub time: Option<i64>,
    pub code: &'static str,
    pub reason: String,
}

impl Rejected {
    /// Counts a rejection, and keeps its line if `keeps_lines`.
    pub fn note(&mut self, mut rejection: Rejection, keeps_lines: bool) {
        self.count += 1;
        self.lines += usize::from(!rejection.reason.keeps_other_fields());
        *self.reasons.entry(rejection.reason.label()).or_default() += 1;
        if keeps_lines {
            self.keep(&mut rejection);
        }
        if self.told.len() < REJECTIONS_TOLD {
            self.told.push(rejection);
        }
    }

    fn keep(&mut self, rejection: &mut Rejection) {
        let text = rejection.whole.take().map_or_else(|| rejection.text.as_str().into(), |whole| whole.0);
        let bytes = size_of::<RejectedLine>() + text.len();
        if self.kept_bytes + bytes > KEPT_BYTES {
            return;
        }
        self.kept_bytes += bytes;
        let Rejection { line: number, column, reason, .. } = rejection;
        let field = reason.field().map(Box::from);
        self.kept.push(RejectedLine {
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
