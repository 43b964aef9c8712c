//! What holds whatever comes from outside, as functions of bytes that panic where it does not. A fuzzer feeds them, and
//! so do `cargo test` and this package's own driver, which need no other toolchain than the rest.

pub mod driver;
pub mod random;
pub mod second;
pub mod served;
pub mod targets;

#[cfg(test)]
mod tests;
