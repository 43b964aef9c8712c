//! Takes a write from its parsed body to its ack, independently of HTTP. Admission validates the lines and appends the
//! request to the WAL as one record, which [`crate::buffer`] takes to the store. A write is acked once its record is
//! durable or, on request, once the store has the readings.
//!
//! Admission is final: nothing after it validates a reading again.

pub(crate) mod admission;
mod error;
mod rejections;
mod request_keys;
mod service;
pub mod tail;

pub use self::admission::accepted_times::AcceptedTimes;
pub use self::admission::bytes_in_flight::BytesInFlight;
pub use self::admission::submit::{Deleted, DeletionWait};
pub use self::admission::validate::{ExplainedField, ExplainedPoint, RejectionSummary};
pub use self::error::IngestError;
pub use self::rejections::{KeptLine, KeptLines, Rejections, plain, without_tokens};
pub use self::request_keys::RequestKey;
pub(crate) use self::service::merge_sensors;
pub use self::service::{
    Ack, Arrival, Explanation, FirstTime, Ingest, LINES_EXPLAINED, MappingRefusal, MetaArrival, MetaOutcome,
    MetaRefusal, MetaRequest, MetaUpdate, PolicyError, PolicyTerms, RenameRefusal, Retry, SetSettings, SettingChange,
    Turn, check_database_name, check_new_name,
};
pub use crate::buffer::flush::dead_letters;
pub use crate::buffer::flush::failing::FailingDatabase;
pub use crate::buffer::truncate::Closing;
pub use crate::catalog::deletion::DeletedTimes;
pub use crate::catalog::lookup::StorePresence;
pub use crate::config::AckLevel;
pub use crate::members::marks::Mark;
pub use crate::members::positions::{Lag, Ledger};
pub use crate::members::retention::{settings_of_json, settings_to_json};
pub use crate::members::store_time::{note_registry_time, note_sealed_days};
