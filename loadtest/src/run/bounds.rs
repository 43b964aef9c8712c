//! Validates a parsed scenario; each error names the key.

use anyhow::{Result, ensure};

use super::scenario::{Constant, Faults, Field, Measurement, Number, Queries, Scenario, Tag};

/// Maximum number of decimals; with more, values in the smallest unit would not fit into an i64.
const DECIMALS_MAX: u32 = 9;
/// A double represents every integer up to 2^53 exactly; beyond, the server may return another number than was sent.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Fails at the first key that is out of bounds, and names it.
pub fn check(scenario: &Scenario) -> Result<()> {
    ensure!(!scenario.description.contains('\n'), "description: must be one line");
    ensure!(!scenario.duration.0.is_zero(), "duration: must not be 0");
    ensure!(scenario.connections > 0, "connections: must not be 0");
    ensure!(scenario.lines > 0, "lines: must not be 0");
    ensure!(scenario.rate.is_none_or(is_positive), "rate: must be above 0");
    ensure!(is_positive(scenario.speed), "speed: must be above 0");
    ensure!(!scenario.measurements.is_empty(), "measurements: there must be one");
    for (place, one) in scenario.measurements.iter().enumerate() {
        measurement(one)?;
        let is_twice =
            scenario.measurements[..place].iter().any(|other| other.name == one.name && is_alike(other, one));
        ensure!(!is_twice, "measurements.{}: another one has the same sensors", one.name);
    }
    faults(&scenario.faults)?;
    scenario.queries.as_ref().map_or(Ok(()), |asked| queries(asked, scenario))
}

/// Whether two measurements may have the same sensors: their tags have the same keys and the same number prefixes.
fn is_alike(one: &Measurement, other: &Measurement) -> bool {
    let shape = |of: &Measurement| -> Vec<(String, String)> {
        let about = |tag: &Tag| match tag {
            Tag::Numbered { prefix, .. } => prefix.clone(),
            Tag::Choice { .. } => String::new(),
            Tag::Fixed { value } => value.clone(),
        };
        of.tags.iter().map(|(key, tag)| (key.clone(), about(tag))).collect()
    };
    shape(one) == shape(other)
}

fn measurement(one: &Measurement) -> Result<()> {
    let name = format!("measurements.{}", one.name);
    ensure!(!one.name.is_empty(), "measurements.name: must not be empty");
    ensure!(one.devices > 0, "{name}.devices: must not be 0");
    ensure!(!one.interval.0.is_zero(), "{name}.interval: must not be 0");
    ensure!(one.jitter < one.interval, "{name}.jitter: must be shorter than the interval, or readings could coincide");
    ensure!(!one.fields.is_empty(), "{name}.fields: there must be one");
    let numbered = one.tags.values().filter(|tag| matches!(tag, Tag::Numbered { .. })).count();
    ensure!(numbered == 1, "{name}.tags: exactly one must be of the kind numbered, which names the device");
    for (key, tag) in &one.tags {
        ensure!(!matches!(tag, Tag::Choice { values } if values.is_empty()), "{name}.tags.{key}.values: is empty");
        let is_empty = match tag {
            Tag::Numbered { .. } => false,
            Tag::Choice { values } => values.iter().any(String::is_empty),
            Tag::Fixed { value } => value.is_empty(),
        };
        ensure!(!is_empty, "{name}.tags.{key}: line protocol has no empty tag values");
    }
    one.fields.iter().try_for_each(|(key, of)| field(one, &format!("{name}.fields.{key}"), of))
}

fn field(owner: &Measurement, name: &str, field: &Field) -> Result<()> {
    match field {
        Field::Walk(of) => number(name, of, &["step", "changes"]),
        Field::Drain(of) => number(name, of, &["step"]),
        Field::Wave(of) => number(name, of, &["period"]),
        Field::Uniform(of) => number(name, of, &["changes"]),
        Field::Choice { values, changes } => {
            ensure!(!values.is_empty(), "{name}.values: is empty");
            share(&format!("{name}.changes"), *changes)
        }
        Field::Flag { share: often } => share(&format!("{name}.share"), *often),
        Field::ByTag { tag, values } => {
            let missing = match owner.tags.get(tag) {
                Some(Tag::Choice { values: known }) => known.iter().find(|known| !values.contains_key(*known)),
                Some(Tag::Fixed { value }) => Some(value).filter(|value| !values.contains_key(*value)),
                _ => anyhow::bail!("{name}.tag: '{tag}' is no tag of the kind choice or fixed"),
            };
            ensure!(missing.is_none(), "{name}.values: '{}' is missing", missing.map_or("", |value| value));
            Ok(())
        }
        Field::Fixed { value: Constant::Float(value) } => {
            ensure!(value.is_finite(), "{name}.value: must be finite");
            Ok(())
        }
        Field::Fixed { .. } => Ok(()),
    }
}

/// `takes` lists the allowed keys beyond those of every number.
fn number(name: &str, number: &Number, takes: &[&str]) -> Result<()> {
    let Number { least, most, decimals, integer, step, changes, period } = *number;
    ensure!(least <= most, "{name}.least: must not be above most");
    ensure!(decimals <= DECIMALS_MAX, "{name}.decimals: must not be above {DECIMALS_MAX}");
    ensure!(!integer || decimals == 0, "{name}.decimals: an integer has none");
    let units = least.abs().max(most.abs()) * f64::from(10_u32.pow(decimals));
    ensure!(units < EXACT_MAX, "{name}.most: has more digits than a float can hold");
    let given = [("step", step.is_some()), ("changes", changes.is_some()), ("period", period.is_some())];
    for (key, is_given) in given {
        ensure!(!is_given || takes.contains(&key), "{name}.{key}: this kind does not take it");
        let is_needed = key != "changes" && takes.contains(&key);
        ensure!(is_given || !is_needed, "{name}.{key}: is missing");
    }
    ensure!(step.is_none_or(is_positive), "{name}.step: must be above 0");
    ensure!(period.is_none_or(|period| !period.0.is_zero()), "{name}.period: must not be 0");
    share(&format!("{name}.changes"), changes.unwrap_or(1.0))
}

fn faults(faults: &Faults) -> Result<()> {
    ensure!(faults.batch > 0, "faults.batch: must not be 0");
    let shares = [
        ("batch_missing", faults.batch_missing),
        ("batch_late", faults.batch_late),
        ("entry_missing", faults.entry_missing),
        ("entry_late", faults.entry_late),
        ("field_missing", faults.field_missing),
        ("tag_missing", faults.tag_missing),
        ("posts_twice", faults.posts_twice),
    ];
    shares.into_iter().try_for_each(|(key, value)| share(&format!("faults.{key}"), value))?;
    for (what, missing, late) in
        [("batch", faults.batch_missing, faults.batch_late), ("entry", faults.entry_missing, faults.entry_late)]
    {
        ensure!(missing + late < 1.0, "faults.{what}_missing: nothing would be sent at its time");
    }
    ensure!(faults.late_by.is_none_or(|by| !by.0.is_zero()), "faults.late_by: must not be 0");
    ensure!(faults.reconnect_every.is_none_or(|every| !every.0.is_zero()), "faults.reconnect_every: must not be 0");
    Ok(())
}

fn queries(queries: &Queries, scenario: &Scenario) -> Result<()> {
    ensure!(queries.connections > 0, "queries.connections: must not be 0");
    ensure!(!queries.templates.is_empty(), "queries.templates: there must be one");
    for template in &queries.templates {
        let name = format!("queries.templates.{}", template.name);
        ensure!(is_positive(template.rate), "{name}.rate: must be above 0");
        ensure!(template.path.starts_with('/'), "{name}.path: must begin with /");
        let Some(measurement) = &template.measurement else { continue };
        let is_known = scenario.measurements.iter().any(|one| one.name == *measurement);
        ensure!(is_known, "{name}.measurement: there is no '{measurement}'");
    }
    Ok(())
}

fn share(name: &str, share: f64) -> Result<()> {
    ensure!((0.0..=1.0).contains(&share), "{name}: must be 0 to 1");
    Ok(())
}

fn is_positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}
