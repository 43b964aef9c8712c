//! Errors of store operations.

#[cfg(doc)]
use super::pages::Extent;
use hourglass_model::reading::Hour;

/// The result of a store operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// The error of a store operation.
///
/// Clients and the log see the text, which says what failed and then what to do. It names no host, user or database of the
/// store, and contains no more of the driver's message than a code and a short text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The store is unreachable or has no primary; nothing was written.
    #[error("the store is unavailable: {0}; retry later, and check the store if the error persists")]
    Unavailable(String),
    /// The connection broke, the deadline passed, or the primary changed during the command, which may have been
    /// applied. It can be sent again, because merging is idempotent.
    #[error("the store did not confirm the command: {0}; retry, because it can safely be sent again")]
    Unknown(String),
    /// Every attempt lost the compare-and-set to another writer; nothing was written.
    #[error("could not write the document, because other writers kept changing it: {0}; retry later")]
    Contended(String),
    /// Readings expired between two reads of one operation.
    #[error("readings of {0} expired during the read; read them again")]
    ReadAgain(String),
    /// Another transaction has locked the document or committed first; nothing was written. The condition is
    /// temporary: MongoDB aborts transactions that nobody commits.
    #[error("the document is locked by another transaction: {0}; retry later")]
    Busy(String),
    /// The store did not write this one document, for an unrecognized and possibly temporary reason; nothing was
    /// written.
    #[error(
        "the store failed to write the document: {0}; hourglass retries, and the WAL keeps the readings until then"
    )]
    Failing(String),
    /// The store permanently refuses this document because of its content: the document is too large, or the
    /// collection's validator rejected it. No other failure may be reported as this variant: refused readings go to
    /// the dead letters.
    #[error("the store refused the document: {0}; see the dead letters (GET /api/v1/dead-letters)")]
    Refused(String),
    /// The store answers but is unusable as configured. Only an operator can fix this.
    #[error("store: {cause}; {}", cause.advice())]
    Unusable {
        /// The cause.
        cause: Unusable,
        /// The user, the place and the store's message. For the operator only.
        detail: String,
    },
    /// The store's address is invalid.
    #[error("store.uri: {0}; correct the address (see docs/reference/configuration.md)")]
    Address(String),
    /// The collections of this database are unusable or differ from those that hourglass needs. A write may have been
    /// applied in part.
    #[error(
        "the store failed on this database: {0}; repair its collections, and the WAL keeps the readings until then"
    )]
    Database(String),
    /// An hour of the sensor is larger than [`Extent::hour_bytes`].
    #[error("one hour of a sensor has more than {limit} bytes of readings")]
    HourTooLarge {
        /// Maximum number of bytes per hour.
        limit: usize,
        /// The hour.
        hour: Hour,
    },
    /// A document is damaged.
    #[error("unreadable document {id}: {detail}; run hourglass verify to check all documents")]
    Unreadable {
        /// The document's id.
        id: String,
        /// The defect.
        detail: String,
    },
    /// A later version of this program wrote the document in a form that this version does not know. The document is
    /// neither changed nor removed, and operations that need it wait.
    #[error(
        "document {id} was written by a newer version of hourglass: {detail}; start that version here too, because \
         operations on this document wait until then"
    )]
    Newer {
        /// The document's id.
        id: String,
        /// The form of the document, and the forms that this program knows.
        detail: String,
    },
}

/// The reason that a store which answers is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The user lacks a privilege that hourglass needs, or the store requires a user and none is configured.
    NotAuthorised,
    /// The user is unknown or the password is wrong.
    WrongCredentials,
    /// The server is standalone, or its replica set has another name.
    NotReplicaSet,
    /// The server's version lacks the transactions and snapshots that hourglass needs.
    TooOld,
    /// The stored documents are older than version 1.
    Older,
}

impl Unusable {
    /// Returns the name that logs and `/health` show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAuthorised => "not authorised",
            Self::WrongCredentials => "wrong credentials",
            Self::NotReplicaSet => "not a replica set",
            Self::TooOld => "too old",
            Self::Older => "older than version 1",
        }
    }

    /// Returns the advice for the operator.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::NotAuthorised => "set a user in store.uri that has the role readWrite on its database",
            Self::WrongCredentials => "correct user, password and authSource in store.uri",
            Self::NotReplicaSet => {
                "start mongod with --replSet (one node is enough) and set the same name in store.uri (replicaSet=)"
            }
            Self::TooOld => "use MongoDB 5.0 or newer",
            Self::Older => {
                "set another database in store.uri, because hourglass cannot read documents older than version 1"
            }
        }
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl StorageError {
    /// Returns true if the store or one of its databases fails, so that the next command to this database would most likely
    /// fail too.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unknown(_) | Self::Unusable { .. } | Self::Database(_))
    }

    /// Returns true if a single document is unreadable and other documents are not affected.
    #[must_use]
    pub fn is_document_error(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Newer { .. })
    }

    /// Returns true if a concurrent change is the only cause, so that a retry succeeds eventually.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Contended(_) | Self::Busy(_) | Self::ReadAgain(_))
    }

    /// Returns true if the whole store is unreachable. Any other error can concern one database only. For example, a
    /// deadline can pass because one collection is locked.
    #[must_use]
    pub fn is_store_unreachable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Returns the value of the metric label `class`.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Unknown(_) => "unknown",
            Self::Contended(_) => "contended",
            Self::Busy(_) | Self::ReadAgain(_) => "busy",
            Self::Failing(_) => "failing",
            Self::Refused(_) => "refused",
            Self::Unusable { cause: Unusable::NotAuthorised | Unusable::WrongCredentials, .. } => "denied",
            Self::Unusable { cause: Unusable::NotReplicaSet | Unusable::TooOld | Unusable::Older, .. } => "unsupported",
            Self::Address(_) => "address",
            Self::Database(_) => "database",
            Self::HourTooLarge { .. } => "large",
            Self::Unreadable { .. } => "unreadable",
            Self::Newer { .. } => "newer",
        }
    }
}
