//! The domain types that all other modules share. A reading is one sensor's field values at one timestamp. Independent
//! of wire formats, stores and HTTP.

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
