//! The mappings for common devices and services.

use crate::mapping::Mapping;

/// The files of the built-in mappings. Each is named after its mapping.
const FILES: [&str; 1] = [include_str!("builtin/tasmota-sensor.toml")];

/// The built-in mappings, in the order of their names.
pub fn all() -> impl Iterator<Item = Mapping> {
    // A test checks that all of them are valid.
    FILES.iter().filter_map(|text| Mapping::from_toml(text).ok())
}

/// The built-in mapping with this name.
#[must_use]
pub fn get(name: &str) -> Option<Mapping> {
    all().find(|mapping| mapping.name == name)
}
