//! Fuzz targets: functions of bytes that panic if a property does not hold for some input from outside. libFuzzer runs
//! them, and so do `cargo test` and this package's own driver, which need only the normal toolchain.

pub mod driver;
pub mod random;
pub mod second;
pub mod served;
pub mod targets;

#[cfg(test)]
mod tests;
