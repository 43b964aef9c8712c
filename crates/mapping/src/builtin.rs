//! The mappings for common devices and services.

use std::sync::{Arc, LazyLock};

use crate::mapping::Mapping;

/// The files of the built-in mappings. Each is named after its mapping.
const FILES: [&str; 12] = [
    include_str!("builtin/chirpstack.toml"),
    include_str!("builtin/esphome-binary.toml"),
    include_str!("builtin/esphome-sensor.toml"),
    include_str!("builtin/homeassistant-statestream.toml"),
    include_str!("builtin/owntracks.toml"),
    include_str!("builtin/plain.toml"),
    include_str!("builtin/shelly-rpc.toml"),
    include_str!("builtin/shelly-status.toml"),
    include_str!("builtin/tasmota-sensor.toml"),
    include_str!("builtin/tasmota-state.toml"),
    include_str!("builtin/the-things-stack.toml"),
    include_str!("builtin/zigbee2mqtt.toml"),
];

// A test checks that all of them are valid.
static ALL: LazyLock<Vec<Arc<Mapping>>> =
    LazyLock::new(|| FILES.iter().filter_map(|text| Mapping::from_toml(text).ok().map(Arc::new)).collect());

/// The built-in mappings, in the order of their names.
#[must_use]
pub fn all() -> &'static [Arc<Mapping>] {
    &ALL
}

/// The built-in mapping with this name.
#[must_use]
pub fn get(name: &str) -> Option<&'static Arc<Mapping>> {
    all().iter().find(|mapping| mapping.name == name)
}

/// The name and the TOML text of each built-in mapping.
pub fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    all().iter().map(|mapping| &*mapping.name).zip(FILES)
}
