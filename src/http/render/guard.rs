//! `guard=spreadsheet`: text of a CSV answer that a spreadsheet takes for a formula. Whoever may write a tag or a string
//! may write `=HYPERLINK(…)`, which runs where somebody else opens the table (OWASP, CSV injection). Off by default, since
//! programs want the text as it was written.

use crate::http::errors::{ApiError, ApiResult};

/// What is done to text, never to numbers, booleans and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    Off,
    /// A leading apostrophe keeps a formula text. All text is quoted: some programs also begin a cell behind `;` or a tab.
    Spreadsheet,
}

impl Guard {
    /// By the parameter `guard`.
    pub fn named(name: Option<&str>) -> ApiResult<Self> {
        match name {
            None | Some("") => Ok(Self::Off),
            Some("spreadsheet") => Ok(Self::Spreadsheet),
            Some(other) => Err(ApiError::Bad(format!("parameter guard: {other:?} is not spreadsheet"))),
        }
    }

    /// Writes a cell of text, in quotes if it needs them or is guarded.
    pub fn text(self, out: &mut String, text: &str, needs_quotes: bool) {
        let is_guarded = self == Self::Spreadsheet;
        if !is_guarded && !needs_quotes {
            out.push_str(text);
            return;
        }
        out.push('"');
        if is_guarded && is_formula(text) {
            out.push('\'');
        }
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    }
}

/// Whether a spreadsheet may begin a formula here, also behind what it may leave out: spaces, quotes and what cannot be
/// seen. The wide forms count, because some programs take them for the narrow ones.
fn is_formula(text: &str) -> bool {
    let left_out = |c: char| {
        c.is_whitespace() || c.is_control() || "\"'`\u{2018}\u{2019}\u{201c}\u{201d}\u{200b}\u{feff}".contains(c)
    };
    let begins = |c: char| "=+-@\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}".contains(c);
    text.starts_with(['\t', '\r', '\n']) || text.trim_start_matches(left_out).starts_with(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_kept_text() {
        for text in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\t1",
            "\r1",
            "\n1",
            " =1",
            "\"=1",
            "'=1",
            "\" '\t=1",
            "\u{feff}=1",
            "\u{ff1d}1",
            "=cmd|' /C calc'!A0",
            "-",
        ] {
            let mut out = String::new();
            Guard::Spreadsheet.text(&mut out, text, false);
            assert_eq!(out, format!("\"'{}\"", text.replace('"', "\"\"")), "{text:?}");
        }
        for text in ["", "a", "a=1", "1-1", "climate,sensor=temp-01", " a", "\"a\"", "é", "a\t=1", "1;=1"] {
            let mut out = String::new();
            Guard::Spreadsheet.text(&mut out, text, false);
            assert_eq!(out, format!("\"{}\"", text.replace('"', "\"\"")), "{text:?}");
        }
        let mut out = String::new();
        Guard::Off.text(&mut out, "=1", false);
        assert_eq!(out, "=1");
    }
}
