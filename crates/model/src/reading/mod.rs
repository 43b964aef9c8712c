//! The types of a reading, the field values of one sensor at one timestamp. They do not depend on wire formats, stores
//! or HTTP.

pub mod duration;
pub mod limits;
pub mod rejection;
pub mod sensor;
pub mod stamp;
pub mod time;
pub mod value;
pub mod varint;

pub use limits::Limits;
pub use rejection::{Reason, Rejection};
pub use sensor::Sensor;
pub use stamp::Stamp;
pub use time::{Day, Hour, Month, Precision};
pub use value::{Family, Value};
