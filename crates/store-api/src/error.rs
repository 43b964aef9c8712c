//! Why a store operation failed.

#[cfg(doc)]
use super::pages::Extent;
use hourglass_model::reading::Hour;

/// The result of a store operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// Why a store operation failed. The text goes to clients and into the log: what happened, then what to do. It names no
/// host, user or database of the store, and nothing of what its driver said beyond a code and a short message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The store is unreachable or has no primary; nothing was written.
    #[error("the store is unavailable: {0}; retry later, and look at the store if it lasts")]
    Unavailable(String),
    /// The connection broke, the deadline passed, or the primary changed during the command, which may have been
    /// applied. Sending it again is safe, because merging is idempotent.
    #[error("the store did not confirm the command: {0}; retry: sending it again is safe")]
    Unknown(String),
    /// Every attempt lost the compare-and-set to another writer; nothing was written.
    #[error("the document was not written, because other writers kept changing it: {0}; retry later")]
    Contended(String),
    /// Readings expired while they were read piece by piece.
    #[error("readings of {0} expired while they were read: read them again")]
    ReadAgain(String),
    /// Another transaction has locked the document or committed first; nothing was written. The condition is
    /// temporary: MongoDB aborts transactions that nobody commits.
    #[error("the document is locked by another transaction: {0}; retry later")]
    Busy(String),
    /// The store did not write this one document, for an unrecognized and possibly temporary reason; nothing was
    /// written.
    #[error(
        "the store failed to write the document: {0}; it is tried again, and until then the WAL keeps the readings"
    )]
    Failing(String),
    /// The store permanently refuses this document because of its content: the document is too large, or the
    /// collection's validator rejected it. No other failure may be reported as this variant: refused readings go to
    /// the dead letters.
    #[error("the store refused the document: {0}; look at the dead letters (GET /api/v1/dead-letters)")]
    Refused(String),
    /// The store answers, and cannot be used as it is configured. Only an operator can mend this.
    #[error("store: {cause}; {}", cause.advice())]
    Unusable {
        /// What is wrong.
        cause: Unusable,
        /// Who was refused, where, and what the store said: for the operator only.
        detail: String,
    },
    /// The store's address is not one that can be used.
    #[error("store.uri: {0}; correct the address (see docs/reference/configuration.md)")]
    Address(String),
    /// The store reported that this database's collections are not as expected, or are not usable at present. A write
    /// may have been applied in part.
    #[error("the store failed on this database: {0}; mend its collections, until then the WAL keeps the readings")]
    Database(String),
    /// An hour of the sensor is larger than [`Extent::hour_bytes`].
    #[error("one hour of a sensor has more than {limit} bytes of readings")]
    HourTooLarge {
        /// The bytes that the scan may need per hour.
        limit: usize,
        /// The hour.
        hour: Hour,
    },
    /// A document is damaged.
    #[error("unreadable document {id}: {detail}; hourglass verify checks all of them")]
    Unreadable {
        /// The document's id.
        id: String,
        /// What is wrong with the document.
        detail: String,
    },
    /// A document has a form that only a later version of this program knows. It is neither changed nor removed, and what
    /// needs it waits.
    #[error(
        "document {id} was written by a newer version of hourglass: {detail}; start that version here too, and until then \
         what needs the document waits"
    )]
    Newer {
        /// The document's id.
        id: String,
        /// Which form it has, and which this program knows.
        detail: String,
    },
}

/// Why a store that answers cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The user may not do what hourglass needs, or no user is named where one is needed.
    NotAuthorised,
    /// The store does not know the user, or the password is another one.
    WrongCredentials,
    /// A standalone server, or a replica set of another name.
    NotReplicaSet,
    /// A version without the transactions and snapshots that hourglass needs.
    TooOld,
    /// A store that was written before version 1 of the stored documents.
    Older,
}

impl Unusable {
    /// The class as people and `/health` know it.
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

    /// What the operator is to do.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::NotAuthorised => "name a user in store.uri that has the role readWrite on its database",
            Self::WrongCredentials => "correct user, password and authSource in store.uri",
            Self::NotReplicaSet => {
                "start mongod with --replSet (one node is enough) and name the same set in store.uri (replicaSet=)"
            }
            Self::TooOld => "use MongoDB 5.0 or newer",
            Self::Older => "name another database in store.uri: no hourglass reads what was stored before version 1",
        }
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl StorageError {
    /// Whether the store or one of its databases fails, and not the document alone: the next command to this database
    /// would most likely fail too.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unknown(_) | Self::Unusable { .. } | Self::Database(_))
    }

    /// Whether one document cannot be read, now or ever: its neighbours can.
    #[must_use]
    pub fn is_of_document(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Newer { .. })
    }

    /// Whether the cause is only a concurrent writer: a retry succeeds in time.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Contended(_) | Self::Busy(_) | Self::ReadAgain(_))
    }

    /// Whether the whole store is unreachable, and not just one database. Every other error may concern one database
    /// only: a deadline, for example, may pass because one collection is locked.
    #[must_use]
    pub fn is_of_store(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// The value of the metric label `class`.
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
