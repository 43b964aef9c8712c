//! Buckets and the other stored data. A bucket is a set of readings keyed by timestamp. Merging is set union: where two
//! readings share a timestamp, the later value wins, field by field. Every summary is a fold over that set.

pub mod cache;
pub mod columns;
pub mod copies;
pub mod day;
pub mod declared;
pub mod deletions;
pub mod exact;
pub mod expired;
pub mod groups;
pub mod hour_versions;
pub mod meta;
pub mod packed;
pub mod page;
pub mod readings;
pub mod registry;
pub mod rename;
pub mod settings;
pub mod snapshot;
pub mod stamps;
pub mod stored;
pub mod summary;
pub mod totals;
pub mod unflushed;

mod merge;

pub use copies::{CopyRefreshProgress, CopyRule, CopyRules, CopyScope};
pub use day::{DayId, DayPart, DayWrite, StoredDay};
pub use declared::{KindChecks, KindRule, KindRules};
pub use expired::ExpiredDay;
pub use groups::{GroupRule, GroupRules, GroupUpdateProgress};
pub use hour_versions::HourVersions;
pub use merge::{Bucket, Caps, MergeCounts, MergeOptions, PackedBucket, Row};
pub use meta::Meta;
pub use page::{Overflow, Page, StoredPage, WriteKind};
pub use readings::{Reading, Readings};
pub use rename::{Rename, RenameKind, Renames};
pub use settings::{DatabaseSettings, Keep, KnownSettings, SealForm};
pub use stored::{BucketId, SensorDocument, bucket_name};
pub use summary::Summary;
pub use summary::lifetime::{Lifetime, LifetimeFold};
pub use totals::{DaySummaries, MonthId, MonthTotals, MonthWrite, StoredMonth};
pub use unflushed::{CatalogSensor, CatalogVersion, UnflushedError, UnflushedHour, UnflushedReadings};
