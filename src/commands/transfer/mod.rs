//! Readings in and out of a running service: `write`, `import` and `export`.
//!
//! A [`RowReader`] reads line protocol, CSV or NDJSON in chunks and makes [`Batch`]es of line protocol, which a
//! [`Sender`] sends. Databases of InfluxDB and collections of MongoDB are other sources of batches. So all formats share the checks, the retries, and the count of what was sent.

mod balance;
mod batch;
mod columns;
mod documents;
mod export;
mod import;
mod influx;
mod lines;
mod mongodb;
mod objects;
mod reader;
mod sender;
mod state;
mod table;
mod totals;
mod write;

use columns::RowFlags;
use influx::InfluxSource;
use mongodb::MongoSource;
use reader::{BatchSource, RowReader, open_source};
use sender::Sender;

pub use export::{ExportFlags, SelectorFlags, export};
pub use import::{ImportFlags, import};
pub use write::{WriteFlags, write};
