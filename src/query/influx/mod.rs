//! Runs parsed InfluxQL statements. Only `select`, `show` and `delete_targets` read data; the other modules are pure.

mod build;
mod cardinality;
mod condition;
mod delete_targets;
mod delete_values;
mod expand;
mod explain;
mod listing_filter;
mod notices;
mod plan;
mod policies;
mod rows;
mod run;
mod schema;
mod select;
mod service;
mod show;
mod statement;
mod zones;

pub use self::delete_targets::{DeleteTargets, sensor_test};
pub use self::delete_values::ValueCondition;
pub use self::policies::expired_notice;
pub use self::policies::expired_readings_notice;
pub use self::rows::{ResultCell, ResultSeries, StatementAnswer};
pub use self::statement::{StatementContext, StatementFailure};
pub use self::zones::{is_zone, zone_offset};
pub use super::engine::windows::zone as zone_named;
pub use super::pattern::fault as pattern_fault;
