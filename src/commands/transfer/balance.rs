//! Compares the counts and sums of imported fields with those that the service has in the same range of times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::totals::{FieldTotals, MeasurementTotals, Totals};
use crate::commands::post::{Target, url_encode};
use crate::reading::Limits;
use crate::wire::line_protocol::parse_series;

/// Fields per query.
const FIELDS_AT_ONCE: usize = 50;
/// Relative difference of sums that comes from the order of their addition.
const SUM_TOLERANCE: f64 = 1e-9;

/// The totals of the readings by database, with its retention policy.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Balance(BTreeMap<String, Totals>);

impl Balance {
    pub fn add(&mut self, database: &str, totals: &Totals) {
        if !self.0.contains_key(database) {
            self.0.insert(database.to_owned(), Totals::default());
        }
        if let Some(known) = self.0.get_mut(database) {
            known.merge(totals);
        }
    }

    /// Prints the differences to what the service has.
    pub fn compare(&self, target: &Target) -> anyhow::Result<()> {
        let mut equal = 0;
        let mut different = 0;
        let mut mixed = 0;
        for (database, totals) in &self.0 {
            for (key, measurement) in &totals.0 {
                let limits = Limits { name_bytes: usize::MAX, ..Limits::default() };
                let name = parse_series(key, &limits).map_or_else(|_| key.clone(), |sensor| sensor.measurement.into());
                for fields in measurement.fields.chunks(FIELDS_AT_ONCE) {
                    let stored = stored_totals(target, database, &name, measurement, fields)?;
                    for (field, (count, sum)) in fields.iter().zip(stored) {
                        // InfluxQL counts one family of a field.
                        if field.is_mixed() {
                            mixed += 1;
                            continue;
                        }
                        let tolerance = SUM_TOLERANCE * field.sum.abs().max(sum.abs());
                        let has_sum = !field.is_number() || (field.sum - sum).abs() <= tolerance;
                        if field.count == count && has_sum {
                            equal += 1;
                            continue;
                        }
                        different += 1;
                        let FieldTotals { name: field_name, count: read_count, sum: read_sum, .. } = field;
                        println!(
                            "{name} {field_name}: {read_count} values with sum {read_sum} read, {count} with sum {sum} stored"
                        );
                    }
                }
            }
        }
        println!("{equal} fields have equal counts and sums in the service, {different} differ");
        if mixed > 0 {
            println!("{mixed} fields have values of several types, and were not compared");
        }
        if different > 0 {
            println!("fields differ if values were refused, come twice, or were there before");
        }
        Ok(())
    }
}

/// Returns the count and sum of fields in the range of their measurement.
fn stored_totals(
    target: &Target,
    database: &str,
    measurement: &str,
    range: &MeasurementTotals,
    fields: &[FieldTotals],
) -> anyhow::Result<Vec<(u64, f64)>> {
    let columns = fields.iter().map(|field| {
        let name = quote(&field.name);
        if field.is_number() { format!("count({name}), sum({name})") } else { format!("count({name}), count({name})") }
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let MeasurementTotals { first, last, .. } = range;
    let name = quote(measurement);
    let statement = format!("SELECT {columns} FROM {name} WHERE time >= {first} AND time <= {last}");
    let (database, policy) = database.split_once('/').unwrap_or((database, ""));
    let place = format!("db={}&rp={}", url_encode(database), url_encode(policy));
    let path = format!("/query?{place}&epoch=ns&q={}", url_encode(&statement));
    let answer = target.json("GET", &path, None)?;
    let row = &answer["results"][0]["series"][0]["values"][0];
    let cell = |index: usize| row[index].as_f64().unwrap_or_default();
    Ok((0..fields.len()).map(|field| (cell(1 + 2 * field) as u64, cell(2 + 2 * field))).collect())
}

/// Quotes an identifier of InfluxQL.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the error of the first result, if it has one.
pub fn result_error(answer: &Value) -> Option<&str> {
    answer["results"].as_array()?.iter().find_map(|result| result["error"].as_str())
}
