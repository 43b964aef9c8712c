//! Reasons for which a service did not start, with the exit status of each (sysexits.h).

use std::process::ExitCode;

/// A service that did not start. As the context of an error, its text comes first.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct NotStarted {
    status: u8,
    text: String,
}

impl NotStarted {
    /// The configuration does not allow a start (`EX_CONFIG`). A restart is useless.
    pub(crate) fn config(text: String) -> Self {
        Self { status: 78, text }
    }

    /// A listening address or the store cannot be used (`EX_UNAVAILABLE`).
    pub(crate) fn unavailable(text: String) -> Self {
        Self { status: 69, text }
    }

    /// The data folder cannot be created (`EX_CANTCREAT`).
    pub(crate) fn folder(text: String) -> Self {
        Self { status: 73, text }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}
