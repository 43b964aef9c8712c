//! The clocks, the faults that tests ask for, and files that are replaced as a whole.

pub mod clock;
pub mod faults;
pub mod files;
