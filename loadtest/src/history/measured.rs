//! The figures of what is measured beside the comparison: their file format, and their table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fleet::Fleet;
use crate::stats::{median, three_digits};

/// The file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// What was measured, by its flag.
    pub what: String,
    pub machine: Value,
    pub load_average_before: String,
    pub data: Fleet,
    pub turns: Vec<MeasuredTurn>,
}

/// The figures of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasuredTurn {
    /// The store, and what else distinguishes it from others: the column in the table.
    pub variant: String,
    pub round: usize,
    /// By name, in the order of the names; the unit is in the name.
    pub figures: BTreeMap<String, f64>,
}

impl Measured {
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }

    /// As a Markdown table: medians over the rounds, with the least and the greatest if there are several.
    pub fn markdown(&self) -> String {
        let mut variants: Vec<&str> = Vec::new();
        for turn in &self.turns {
            if !variants.contains(&&*turn.variant) {
                variants.push(&turn.variant);
            }
        }
        let mut names: Vec<&String> = self.turns.iter().flat_map(|turn| turn.figures.keys()).collect();
        names.sort();
        names.dedup();
        // Writing to a String cannot fail.
        let mut text =
            format!("| {} | {} |\n|---|{}\n", self.what, variants.join(" | "), "---|".repeat(variants.len()));
        for name in names {
            let cell = |variant: &&str| {
                let of_variant = self.turns.iter().filter(|turn| turn.variant == **variant);
                let figures: Vec<f64> = of_variant.filter_map(|turn| turn.figures.get(name)).copied().collect();
                let (least, greatest) = figures.iter().fold((f64::MAX, f64::MIN), |(a, b), f| (a.min(*f), b.max(*f)));
                match figures.len() {
                    0 => "–".to_owned(),
                    1 => three_digits(figures[0]),
                    _ => format!(
                        "{} ({}–{})",
                        three_digits(median(figures.iter().copied())),
                        three_digits(least),
                        three_digits(greatest)
                    ),
                }
            };
            let cells: Vec<String> = variants.iter().map(cell).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Values;
    use super::*;

    #[test]
    fn the_table_has_medians_and_their_range() {
        let turn = |variant: &str, round, value| MeasuredTurn {
            variant: variant.to_owned(),
            round,
            figures: [("ack p99, ms".to_owned(), value)].into(),
        };
        let data = Fleet { days: 1, sensors: 1, interval_s: 60, values: Values::Waves };
        let (what, load_average_before) = ("--live".to_owned(), String::new());
        let turns = vec![turn("before", 1, 4.0), turn("after", 1, 2.0), turn("before", 2, 6.0), turn("before", 3, 5.0)];
        let text = Measured { what, machine: Value::Null, load_average_before, data, turns }.markdown();
        assert!(text.ends_with("| ack p99, ms | 5 (4–6) | 2 |\n"), "{text}");
    }
}
