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

    /// A listening address, the data folder or the store cannot be used (`EX_UNAVAILABLE`). Not `EX_TEMPFAIL`, which says
    /// that records are left.
    pub(crate) fn unavailable(text: String) -> Self {
        Self { status: 69, text }
    }

    /// The data folder cannot be created (`EX_CANTCREAT`).
    pub(crate) fn folder(text: String) -> Self {
        Self { status: 73, text }
    }

    /// Adds the attempt to an error. If another process uses the folder, it determines the exit status.
    pub(crate) fn if_in_use(is_in_use: bool, error: impl Into<anyhow::Error>, attempt: String) -> anyhow::Error {
        let error = error.into();
        if is_in_use { error.context(Self::unavailable(attempt)) } else { error.context(attempt) }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}
