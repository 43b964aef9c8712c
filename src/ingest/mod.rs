//! From a request's body to the store. Admission validates lines and appends the request to the WAL as one record;
//! dispatch passes its readings to the shards; shards keep them in memtables and write them to the store in flush
//! tasks. A write is acked when its record is durable, or on request when the store has the readings. Reaches storage
//! only through the trait `bucket::Store`; knows nothing of HTTP.
//!
//! Admission is final: nothing after it validates a reading again.

pub(crate) mod admission;
pub(crate) mod catalog;
pub(crate) mod deleter;
pub(crate) mod deletion;
pub(crate) mod dispatch;
mod error;
pub(crate) mod flush;
#[cfg(test)]
mod law;
mod marks;
pub(crate) mod member;
mod membership;
mod memtable;
pub(crate) mod options;
mod positions;
mod record;
mod rejections;
mod request_keys;
pub(crate) mod retention;
mod service;
mod shard;
mod side_file;
pub mod tail;
mod truncate;

pub use self::admission::bytes_in_flight::BytesInFlight;
pub use self::admission::validate::{ExplainedField, ExplainedPoint, Rejected};
pub use self::catalog::lookup::StorePresence;
pub use self::deletion::DeletedTimes;
pub use self::error::IngestError;
pub use self::flush::dead_letters;
pub use self::flush::failing::FailingDatabase;
pub use self::marks::Mark;
pub use self::membership::passed::{note_registry, note_sealed};
pub use self::options::AcceptedTimes;
pub use self::positions::{Lag, Ledger};
pub use self::rejections::{KeptLine, KeptLines, Rejections, plain};
pub use self::request_keys::RequestKey;
pub use self::retention::{settings_of_json, settings_to_json};
pub use self::service::{
    Ack, Arrival, Explanation, Ingest, LINES_EXPLAINED, MetaArrival, MetaOutcome, MetaRefusal, MetaWish, PolicyError,
    PolicyTerms, RenameRefusal, SetSettings, SettingChange, Stores, Wish, check_database_name,
};
pub use self::truncate::Closing;
pub use crate::config::AckLevel;
