//! Attacks on the room of the catalog by one database or token.

use std::sync::Arc;

use super::*;
use crate::access::{Allowance, Usage};

const BYTES_MAX: usize = 256 << 10;

fn catalog(sensors_max: usize) -> Catalog {
    let mut options = crate::config::small();
    options.catalog.max_bytes = BYTES_MAX;
    options.limits.sensors = sensors_max;
    Catalog::new(&options)
}

fn token() -> Allowance {
    Some(Arc::new(Usage::new("token", "t", Quota::default())))
}

fn sensor(number: usize) -> Sensor {
    let tags = [("sensor", format!("{number}-{}", "x".repeat(100)))];
    Sensor::new("m", tags.iter().map(|(key, value)| (*key, &**value))).expect("valid tags")
}

/// Adds sensors until the catalog takes no more, and returns their number.
fn fill(catalog: &Catalog, name: &str, allowance: &Allowance) -> usize {
    let database = catalog.enlist_database(name);
    let before = database.sensor_count();
    for number in before..before + 10_000 {
        let wanted = WantedSensor { sensor: sensor(number), allowance: allowance.clone() };
        let found = LookupResult { counts: true, ..LookupResult::default() };
        catalog.add_sensors(&database, vec![wanted], found, catalog.sensors_max());
        if database.sensor_count() == number {
            let limit = catalog.limit_for_sensor(Some(&database), allowance.as_deref(), &sensor(number));
            assert!(limit.is_some(), "the client learns the limit");
            break;
        }
    }
    database.sensor_count() - before
}

/// Regression: one token filled the catalog in 34 s, and no other database got a new sensor.
#[test]
fn a_database_leaves_room_for_others() {
    // The bound is that of bytes, or that of sensors.
    for sensors_max in [1_000_000, 160] {
        let alone = fill(&catalog(sensors_max), "big", &None);
        assert!(alone == sensors_max || alone * sensor::memory(&sensor(100)) > BYTES_MAX * 95 / 100, "{alone}");
        let catalog = catalog(sensors_max);
        catalog.enlist_database("small");
        let big = fill(&catalog, "big", &None);
        // Its policies have no room of their own.
        assert!(fill(&catalog, "big/week", &None) <= 1);
        let small = fill(&catalog, "small", &None);
        assert!(small >= 10 && big >= 14 * small && big <= 16 * small, "{big} and {small} of {sensors_max}");
    }
}

/// A token that may write to all databases fills several of them.
#[test]
fn a_token_leaves_room_for_others() {
    for sensors_max in [1_000_000, 160] {
        let catalog = catalog(sensors_max);
        let greedy = token();
        let big: usize = (0..50).map(|number| fill(&catalog, &format!("big{number}"), &greedy)).sum();
        let small = fill(&catalog, "small", &token());
        assert!(small >= 10 && big >= 14 * small && big <= 16 * small, "{big} and {small} of {sensors_max}");
    }
}

/// The names of fields take room, too.
#[test]
fn fields_leave_room_for_others() {
    let catalog = catalog(1_000_000);
    catalog.enlist_database("small");
    let big = catalog.enlist_database("big");
    let wanted = WantedSensor { sensor: sensor(0), allowance: None };
    catalog.add_sensors(&big, vec![wanted], LookupResult::default(), usize::MAX);
    let known = catalog.sensor(&big, &sensor(0).key).expect("it was added");
    let mut claims = Claims::default();
    let mut number = 0;
    let name = |number: usize| format!("{number}-{}", "x".repeat(50));
    while catalog.limit_for_field(&known, None, &name(number)).is_none() {
        let _ = claims.claim(&known, &name(number), crate::reading::Family::Number, 1_000);
        number += 1;
    }
    assert!(number > 10 && number < 1_000, "{number} fields");
    assert!(fill(&catalog, "small", &None) > 5);
}
