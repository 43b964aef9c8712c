//! Commands for the jobs and the instances of a running service.

mod instances;
mod jobs;

pub use instances::{InstanceCommand, instances};
pub use jobs::{JobCommand, jobs};
