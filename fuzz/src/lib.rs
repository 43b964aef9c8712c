//! Fuzz targets: functions of bytes that panic if a property does not hold for an external input. libFuzzer runs them.
//! `cargo test` and the driver of this package run them with the normal toolchain.

pub mod driver;
pub mod random;
pub mod second;
pub mod served;
pub mod targets;

#[cfg(test)]
mod tests;
