//! The target `mqtt` for libFuzzer.
#![no_main]
#![allow(missing_docs, reason = "the macro's own functions")]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hourglass_fuzz::targets::mqtt::check(data));
