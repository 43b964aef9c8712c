//! The clocks, and the faults that tests ask for.

pub mod clock;
pub mod faults;
