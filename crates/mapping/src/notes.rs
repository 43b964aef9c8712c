//! The trace of a mapping, for people who write one.

use std::fmt;

use crate::mapping::Source;

/// Maximum number of lines of a trace.
pub const LINES_MAX: usize = 500;
/// Maximum number of characters of a line.
const LINE_CHARS_MAX: usize = 300;

/// Lines that say which rule made which part of a reading; empty and free of cost unless they are wanted.
#[derive(Debug, Default)]
pub(crate) struct Notes(Option<Vec<String>>);

impl Notes {
    pub fn on() -> Self {
        Self(Some(Vec::new()))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub fn add(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0
            && lines.len() < LINES_MAX
        {
            lines.push(line().chars().take(LINE_CHARS_MAX).collect());
        }
    }

    pub fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("constant"),
            Self::Topic(level) => write!(f, "topic level {level}"),
            Self::Path(path) => write!(f, "path {:?}", path.as_str()),
        }
    }
}
