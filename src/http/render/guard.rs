//! `guard=spreadsheet`: protects spreadsheets from CSV injection (OWASP). Any writer can store a string such as
//! `=HYPERLINK(…)`, which runs when somebody else opens the CSV. Off by default, because programs need the original text.

use crate::http::errors::{ApiError, ApiResult};

/// The treatment of text in CSV. Numbers, booleans and times are never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    Off,
    /// Puts an apostrophe before formulas, and quotes all text, because some programs split cells at `;` or tabs.
    Spreadsheet,
}

impl Guard {
    /// Parses the parameter `guard`.
    pub fn parse(name: Option<&str>) -> ApiResult<Self> {
        match name {
            None | Some("") => Ok(Self::Off),
            Some("spreadsheet") => Ok(Self::Spreadsheet),
            Some(other) => Err(ApiError::Bad(format!("parameter guard: {other:?} is not spreadsheet"))),
        }
    }

    /// Writes a text cell, in quotes if necessary or if the guard is on.
    pub fn write_text(self, out: &mut String, text: &str, needs_quotes: bool) {
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

/// Returns true if a spreadsheet may interpret the text as a formula, also after leading spaces, quotes and invisible
/// characters, which some programs ignore. Full-width signs count, because some programs normalize them.
fn is_formula(text: &str) -> bool {
    let is_ignored = |c: char| {
        c.is_whitespace() || c.is_control() || "\"'`\u{2018}\u{2019}\u{201c}\u{201d}\u{200b}\u{feff}".contains(c)
    };
    let starts_formula = |c: char| "=+-@\u{ff1d}\u{ff0b}\u{ff0d}\u{ff20}".contains(c);
    text.starts_with(['\t', '\r', '\n']) || text.trim_start_matches(is_ignored).starts_with(starts_formula)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_text() {
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
            Guard::Spreadsheet.write_text(&mut out, text, false);
            assert_eq!(out, format!("\"'{}\"", text.replace('"', "\"\"")), "{text:?}");
        }
        for text in ["", "a", "a=1", "1-1", "climate,sensor=temp-01", " a", "\"a\"", "é", "a\t=1", "1;=1"] {
            let mut out = String::new();
            Guard::Spreadsheet.write_text(&mut out, text, false);
            assert_eq!(out, format!("\"{}\"", text.replace('"', "\"\"")), "{text:?}");
        }
        let mut out = String::new();
        Guard::Off.write_text(&mut out, "=1", false);
        assert_eq!(out, "=1");
    }
}
