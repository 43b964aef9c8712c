//! Admission of writes: memory reservation, validation of points, quotas, and the append to the WAL.

pub mod accepted_times;
pub mod bytes_in_flight;
pub mod in_validation;
pub mod owners;
pub mod quota;
pub mod submit;
pub mod validate;
pub mod write_policy;
