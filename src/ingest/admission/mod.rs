//! Admission: bounds on a request's memory, validation of its points, quota charges, and the append to the WAL. What is
//! admitted is final: nothing after this validates a reading again.

pub mod accepted_times;
pub mod bytes_in_flight;
pub mod quota;
pub mod submit;
pub mod under_way;
pub mod validate;
pub mod write_policy;
