//! The built-in scenarios.

/// Names and texts.
const ALL: [(&str, &str); 9] = [
    ("iot-steady", include_str!("../../scenarios/iot-steady.toml")),
    ("gateway-batches", include_str!("../../scenarios/gateway-batches.toml")),
    ("device-posts", include_str!("../../scenarios/device-posts.toml")),
    ("wide-fleet", include_str!("../../scenarios/wide-fleet.toml")),
    ("hot-sensor", include_str!("../../scenarios/hot-sensor.toml")),
    ("late-data", include_str!("../../scenarios/late-data.toml")),
    ("reconnect-storm", include_str!("../../scenarios/reconnect-storm.toml")),
    ("dashboard-mix", include_str!("../../scenarios/dashboard-mix.toml")),
    ("tsbs-iot", include_str!("../../scenarios/tsbs-iot.toml")),
];

/// The text of the scenario with this name.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}
