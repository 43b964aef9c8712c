//! Nested statements.

use super::{FILLS, Maker, TRANSFORMATIONS, UNORDERED, grouping};
use crate::influxql::generated::data::Measurement;

/// Common properties of nested statements.
struct Nest {
    measurement: &'static Measurement,
    tags: &'static [&'static str],
    /// True if the outermost statement does not group by the tags.
    is_joined: bool,
    /// True if only the innermost statement has a range start.
    is_open: bool,
    order: &'static str,
    range: String,
}

impl Maker {
    /// Returns nested statements of depth `deep`.
    pub(super) fn subquery(&mut self, deep: usize) -> String {
        let measurement = self.measurement();
        let tags = if self.random.once_in(3) { measurement.tags } else { &[] };
        let nest = Nest {
            measurement,
            tags,
            is_joined: deep == 1 && !tags.is_empty() && self.random.once_in(3),
            is_open: self.random.once_in(4),
            order: self.random.pick(&["", "", "", " ORDER BY time DESC"]),
            range: self.range(),
        };
        let mut text = self.innermost(&nest);
        if !measurement.tags.is_empty() && self.random.once_in(8) {
            text += &format!("), (SELECT f AS x FROM gamma WHERE {}{}", nest.range, nest.order);
        }
        for level in (1..=deep).rev() {
            text = self.around(&text, &nest, level == 1);
        }
        // Rows without a number count for a LIMIT.
        if text.contains("(SELECT stddev(") {
            text = text.replace(" LIMIT 5", "").replace(" LIMIT 9", "");
        }
        // InfluxDB converts integers beside floats to floats, and fills accordingly.
        if text.contains("), (") {
            text =
                text.replace("fill(-2.5)", "fill(7)").replace("fill(linear)", "fill(null)").replace("stddev(", "mean(");
        }
        text
    }

    /// Returns a statement with a numeric column `x`.
    fn innermost(&mut self, nest: &Nest) -> String {
        let Nest { measurement, tags, is_joined, is_open, order, range } = nest;
        let condition = self.condition(measurement).map(|condition| format!(" AND {condition}")).unwrap_or_default();
        let from = measurement.name;
        let number = self.field(measurement, "top");
        let limit = if !is_joined && self.random.once_in(8) { " LIMIT 9" } else { "" };
        let function = match self.random.below(8) {
            0 => "",
            1 => "+",
            2 => self.random.pick(&TRANSFORMATIONS),
            3 if !is_joined && order.is_empty() && limit.is_empty() => self.random.pick(&["distinct", "top", "bottom"]),
            _ => self.aggregate_of_rows(),
        };
        let field = if matches!(function, "mode" | "distinct" | "count_distinct") { "i" } else { number };
        let columns = match function {
            "" => format!("{number} AS x"),
            "+" => "f + i AS x, f, i".to_owned(),
            function => self.call(function, field) + " AS x",
        };
        let is_windowed =
            !matches!(function, "" | "+") && !TRANSFORMATIONS.contains(&function) && !self.random.once_in(4);
        let needs_range = *is_open || is_windowed || TRANSFORMATIONS.contains(&function);
        let filter = if needs_range || self.random.once_in(2) {
            format!(" WHERE {range}{condition}")
        } else {
            condition.replacen(" AND ", " WHERE ", 1)
        };
        let grouping = if is_windowed {
            // InfluxDB fills merged groups with values of each other.
            let fills = if *is_joined { &FILLS[..3] } else { &FILLS };
            grouping(Some(self.window()), tags) + self.random.pick(fills)
        } else {
            grouping(None, tags)
        };
        format!("SELECT {columns} FROM {from}{filter}{grouping}{order}{limit}")
    }

    /// Returns a statement whose column `x` is computed from the `x` of another.
    fn around(&mut self, inner: &str, nest: &Nest, is_last: bool) -> String {
        let Nest { is_joined, is_open, order, .. } = nest;
        let condition = self.condition_on_rows(nest.tags);
        let tags = if *is_joined { &[] } else { nest.tags };
        let function = if is_last { self.random.pick(&UNORDERED) } else { self.aggregate_of_rows() };
        let function = if UNORDERED.contains(&function) { function } else { "median" };
        // The choice of a percentile among equal rows is undefined.
        let mut columns = self.call(if function == "percentile" { "median" } else { function }, "x") + " AS x";
        let mut grouping_by = grouping(None, tags);
        // In inherited windows, InfluxDB reads beyond the range.
        let is_transformed = TRANSFORMATIONS.iter().any(|name| inner.contains(&format!("FROM (SELECT {name}(")));
        match self.random.below(8) {
            0 if !is_joined => {
                let function = self.random.pick(&TRANSFORMATIONS);
                columns = self.call(function, "x") + " AS x";
            }
            1 if !is_joined => {
                let host = if is_last && !tags.is_empty() && !inner.contains("), (") { ", host" } else { "" };
                columns = format!("{} AS x{host}", self.random.pick(&["x * 2", "x", "-x + 3"]));
            }
            // Without a start, InfluxDB makes windows since the beginning of time.
            _ if *is_open => {}
            // InfluxDB does not always count rows of windows that start before the range.
            2 | 3 if self.random.once_in(10) && !is_transformed => {}
            _ => {
                columns = self.call(function, "x") + " AS x";
                grouping_by = grouping(Some(self.window()), tags) + self.random.pick(&FILLS);
            }
        }
        let range = match nest.range.split_once(" AND ") {
            Some((_, end)) if *is_open => end,
            _ => &nest.range,
        };
        let limit = if self.random.once_in(8) { " LIMIT 5" } else { "" };
        format!("SELECT {columns} FROM ({inner}) WHERE {range}{condition}{grouping_by}{order}{limit}")
    }

    /// Returns a function for rows of another statement, rarely one for which InfluxDB has no number.
    fn aggregate_of_rows(&mut self) -> &'static str {
        match self.aggregate() {
            "stddev" if !self.random.once_in(5) => "mean",
            function => function,
        }
    }

    fn condition_on_rows(&mut self, tags: &[&str]) -> &'static str {
        match tags {
            [] => self.random.pick(&["", "", "", " AND x > 0", " AND x < 100"]),
            _ => self.random.pick(&["", "", "", " AND x > 0", " AND host = 'a'", " AND host != 'b'"]),
        }
    }
}
