//! Random statements: every function with every fill, then any. Undefined behaviour is left out: the order of rows at
//! one time, and OFFSET without LIMIT.

mod nest;

use crate::support::prelude::*;

use super::super::data::{BASE, HOUR, MINUTE, SECOND};
use super::data::{MEASUREMENTS, Measurement, TIES};

/// Aggregates with one row per window; `arguments` has what follows the field.
const AGGREGATES: [&str; 13] = [
    "count",
    "sum",
    "mean",
    "min",
    "max",
    "spread",
    "first",
    "last",
    "stddev",
    "median",
    "mode",
    "percentile",
    "count_distinct",
];
const RANKINGS: [&str; 2] = ["top", "bottom"];
const TRANSFORMATIONS: [&str; 7] = [
    "derivative",
    "non_negative_derivative",
    "difference",
    "non_negative_difference",
    "moving_average",
    "cumulative_sum",
    "elapsed",
];
/// Selectors, which may have other fields of the reading beside them.
const SELECTORS: [&str; 5] = ["min", "max", "first", "last", "percentile"];
/// Functions that ignore the order of rows at one time.
const UNORDERED: [&str; 9] = ["count", "sum", "mean", "min", "max", "spread", "stddev", "median", "percentile"];
const FILLS: [&str; 7] =
    ["", " fill(null)", " fill(none)", " fill(previous)", " fill(linear)", " fill(7)", " fill(-2.5)"];
const WIDTHS: [&str; 8] = ["5m", "7m", "10m", "30m", "45m", "1h", "90m", "2h"];

/// Generates `count` distinct statements.
pub fn statements(seed: u64, count: usize) -> Vec<String> {
    let mut maker = Maker { random: Random::new(seed) };
    let mut made = Vec::new();
    for fill in FILLS {
        for function in AGGREGATES.iter().chain(&RANKINGS).chain(&["distinct"]) {
            made.extend((0..3).map(|_| maker.windowed(function, fill)));
        }
        for function in TRANSFORMATIONS {
            made.extend((0..3).map(|_| maker.transformed(function, fill)));
        }
        made.extend((0..2).map(|_| maker.integral(fill)));
    }
    let mut known = BTreeSet::new();
    made.retain(|statement| known.insert(statement.clone()));
    while made.len() < count {
        let statement = maker.any();
        if known.insert(statement.clone()) {
            made.push(statement);
        }
    }
    made.truncate(count);
    made
}

struct Maker {
    random: Random,
}

impl Maker {
    fn any(&mut self) -> String {
        // A fraction is truncated for integers only where there are values.
        let fill = self.random.pick(&FILLS);
        let whole_fill = self.random.pick(&FILLS[..6]);
        match self.random.below(20) {
            0 => {
                let function = self.aggregate();
                self.windowed(function, fill)
            }
            1 | 2 => self.whole(),
            3 => self.raw_transformed(),
            4 | 5 => self.raw(),
            6 => self.beside(whole_fill),
            7 | 8 => self.several(whole_fill),
            9 => self.ranked(),
            10 => self.sources(fill),
            11 => self.ties(fill),
            12..16 => self.subquery(1),
            _ => self.subquery(2),
        }
    }

    fn aggregate(&mut self) -> &'static str {
        self.random.pick(&AGGREGATES)
    }

    fn measurement(&mut self) -> &'static Measurement {
        // The first measurement has most fields.
        &MEASUREMENTS[self.random.pick(&[0, 0, 0, 1, 1, 2])]
    }

    /// Returns a field for the function, without ties where they would be ambiguous.
    fn field(&mut self, measurement: &Measurement, function: &str) -> &'static str {
        let fields: &[&str] = match function {
            "mode" | "distinct" | "count_distinct" => &["k", "k", "i", "f", "s"],
            "count" | "first" | "last" | "elapsed" => &["f", "g", "i", "n", "k", "b", "s"],
            "min" | "max" => &["f", "g", "i", "n", "b"],
            "integral" => &["f", "f", "g", "i", "k"],
            "sum" | "mean" | "spread" | "median" | "stddev" => &["f", "f", "g", "i", "n", "k"],
            _ => &["f", "f", "g", "i", "n"],
        };
        let known_fields: Vec<&str> =
            fields.iter().copied().filter(|field| measurement.fields.contains(field)).collect();
        self.random.pick(&known_fields)
    }

    fn call(&mut self, function: &str, argument: &str) -> String {
        let unit = self.random.pick(&["", "", ", 1s", ", 10s", ", 1m", ", 1h"]);
        match function {
            "count_distinct" => format!("count(distinct({argument}))"),
            "percentile" => format!("percentile({argument}, {})", self.random.pick(&["50", "62.5", "90", "99", "100"])),
            "top" | "bottom" => format!("{function}({argument}, {})", 1 + self.random.below(4)),
            "derivative" | "non_negative_derivative" | "elapsed" | "integral" => {
                format!("{function}({argument}{unit})")
            }
            "moving_average" => format!("moving_average({argument}, {})", 2 + self.random.below(4)),
            _ => format!("{function}({argument})"),
        }
    }

    /// Returns a time, on a window border or not.
    fn time(&mut self, from: i64) -> String {
        let time = match self.random.below(4) {
            0 => from - from % HOUR,
            1 => from - from % (10 * MINUTE),
            2 => from - from % SECOND,
            _ => from,
        };
        match self.random.below(2) {
            0 => format!("{time}"),
            _ => format!("{}ms", time / 1_000_000),
        }
    }

    /// Returns a time range of some hours.
    fn range(&mut self) -> String {
        let from = BASE - HOUR / 2 + self.random.below(4 * HOUR);
        let to = from + HOUR + self.random.below(3 * HOUR);
        let from = self.time(from);
        let to = self.time(to);
        format!("time {} {from} AND time {} {to}", self.random.pick(&[">=", ">"]), self.random.pick(&["<", "<="]))
    }

    /// Returns windows, some with an offset.
    fn window(&mut self) -> String {
        let width = self.random.pick(&WIDTHS);
        match self.random.below(3) {
            0 => format!("time({width}, {})", self.random.pick(&["3m", "-3m", "17s", "1h", "90m"])),
            _ => format!("time({width})"),
        }
    }

    /// Returns a condition on tags and fields, or none.
    fn condition(&mut self, measurement: &Measurement) -> Option<String> {
        match self.random.below(10) {
            0 => Some(self.comparison(measurement)),
            1 => Some(format!("{} AND {}", self.comparison(measurement), self.comparison(measurement))),
            2 => Some(format!("({} OR {})", self.comparison(measurement), self.comparison(measurement))),
            _ => None,
        }
    }

    fn comparison(&mut self, measurement: &Measurement) -> String {
        let of_tags = "host = 'a' | host != 'a' | host =~ /[ab]/ | host !~ /^[ab]$/ | region = 'eu' | region != 'eu'";
        let more = "region = '' | unit = 'x' | f > 0 | f <= 250.5 | f != 0 | i < 1000 | i >= -2000 | g > 0 | n < 0";
        let of_fields = "k = 7 | k != 7 | b = true | b != true | s = 'usual' | s != 'usual' | f > i";
        let sums = "i * 2 < f + 100 | f - 10 > -500";
        let all: Vec<&str> = [of_tags, more, of_fields, sums].iter().flat_map(|some| some.split(" | ")).collect();
        loop {
            let chosen = self.random.pick(&all);
            let mut words = chosen.split(' ').filter(|word| word.starts_with(char::is_alphabetic));
            let is_known = |word: &str| measurement.fields.contains(&word) || measurement.tags.contains(&word);
            if words.all(|word| is_known(word) || word == "true") {
                return chosen.to_owned();
            }
        }
    }

    /// Returns `WHERE` with an optional range and condition.
    fn filter(&mut self, measurement: &Measurement, needs_range: bool) -> String {
        let range = (needs_range || self.random.once_in(2)).then(|| self.range());
        let both: Vec<String> = range.into_iter().chain(self.condition(measurement)).collect();
        if both.is_empty() { String::new() } else { format!(" WHERE {}", both.join(" AND ")) }
    }

    fn tags(&mut self, measurement: &Measurement) -> Vec<&'static str> {
        match (measurement.tags, self.random.below(5)) {
            ([], _) | (_, 0 | 1) => Vec::new(),
            (tags, 2) => tags.to_vec(),
            (_, 3) => vec!["*"],
            (tags, _) => vec![self.random.pick(tags)],
        }
    }

    /// Returns order and limits. Measurements with one series have no series order.
    fn tail(&mut self, columns: &str, tags: &[&str]) -> String {
        let mut tail = String::new();
        if self.random.once_in(3) {
            tail += " ORDER BY time DESC";
        }
        // InfluxDB interprets a LIMIT of top() differently.
        let is_ranking = RANKINGS.iter().any(|ranking| columns.starts_with(ranking));
        if self.random.once_in(if is_ranking { 12 } else { 4 }) {
            tail += &format!(" LIMIT {}", 4 + self.random.below(9));
            if self.random.once_in(2) {
                tail += &format!(" OFFSET {}", self.random.below(6));
            }
        }
        if tags.len() == 1 && tags[0] != "*" && self.random.once_in(4) {
            tail += &format!(" SLIMIT {}", 1 + self.random.below(2));
            if self.random.once_in(2) {
                tail += &format!(" SOFFSET {}", self.random.below(3));
            }
        }
        tail
    }

    fn windowed(&mut self, function: &str, fill: &str) -> String {
        let measurement = self.measurement();
        let field = self.field(measurement, function);
        let call = self.call(function, field);
        self.over_windows(&call, measurement, fill)
    }

    /// Windows that start between readings, where InfluxDB loses an area.
    fn integral(&mut self, fill: &str) -> String {
        let measurement = self.measurement();
        let field = self.field(measurement, "integral");
        let (call, filter, tags) =
            (self.call("integral", field), self.filter(measurement, true), self.tags(measurement));
        let grouping = grouping(Some(format!("time({}, 17s)", self.random.pick(&WIDTHS))), &tags);
        let order = self.random.pick(&["", "", " ORDER BY time DESC"]);
        format!("SELECT {call} FROM {}{filter}{grouping}{fill}{order}", measurement.name)
    }

    fn over_windows(&mut self, columns: &str, measurement: &Measurement, fill: &str) -> String {
        let filter = self.filter(measurement, true);
        let tags = self.tags(measurement);
        let grouping = grouping(Some(self.window()), &tags);
        let tail = self.tail(columns, &tags);
        format!("SELECT {columns} FROM {}{filter}{grouping}{fill}{tail}", measurement.name)
    }

    fn transformed(&mut self, function: &str, fill: &str) -> String {
        let measurement = self.measurement();
        let inner = self.random.pick(&["count", "sum", "mean", "min", "max", "last", "median", "percentile"]);
        let field = self.field(measurement, "top");
        let inner = self.call(inner, field);
        let call = self.call(function, &inner);
        self.over_windows(&call, measurement, fill)
    }

    /// Returns a statement without windows over these columns.
    fn plain(&mut self, columns: &str, measurement: &Measurement, fill: &str) -> String {
        let filter = self.filter(measurement, false);
        let tags = self.tags(measurement);
        let grouping = grouping(None, &tags);
        let tail = self.tail(columns, &tags);
        format!("SELECT {columns} FROM {}{filter}{grouping}{fill}{tail}", measurement.name)
    }

    fn whole(&mut self) -> String {
        let measurement = self.measurement();
        let function = match self.random.below(24) {
            0..3 => "distinct",
            3 => "integral",
            _ => self.aggregate(),
        };
        let field = self.field(measurement, function);
        let call = self.call(function, field);
        self.plain(&call, measurement, "")
    }

    fn raw_transformed(&mut self) -> String {
        let measurement = self.measurement();
        let function = self.random.pick(&TRANSFORMATIONS);
        let field = self.field(measurement, function);
        let call = self.call(function, field);
        self.plain(&call, measurement, "")
    }

    fn raw(&mut self) -> String {
        let measurement = self.measurement();
        let columns = match self.random.below(6) {
            0 => "*".to_owned(),
            1 => self.random.pick(&["*::field", "*::tag, f", "/^[fik]$/", "f, *"]).to_owned(),
            2 => self
                .random
                .pick(&["f + i", "f * 2 - i", "i / 3", "i % 7", "-f", "(f + 1) * (i - 2)", "i & 255"])
                .to_owned(),
            3 => format!("f AS x, {}", measurement.tags.first().unwrap_or(&"i")),
            _ => {
                let count = 1 + self.random.below(3);
                let all: BTreeSet<&str> = (0..count).map(|_| self.random.pick(measurement.fields)).collect();
                Vec::from_iter(all).join(", ")
            }
        };
        let fill = self.random.pick(&["", "", "", " fill(previous)", " fill(previous)", " fill(3)", " fill(null)"]);
        self.plain(&columns, measurement, fill)
    }

    /// A selector beside fields and tags of the selected reading.
    fn beside(&mut self, fill: &str) -> String {
        let measurement = self.measurement();
        let function = self.random.pick(&SELECTORS);
        let field = self.field(measurement, "top");
        let call = self.call(function, field);
        let others: Vec<&str> = measurement.fields.iter().chain(measurement.tags).copied().collect();
        let one = self.random.pick(&others);
        let other = self.random.pick(&others);
        let columns = self.random.pick(&[format!("{call}, {one}"), format!("{one}, {call} AS x, {other}")]);
        match self.random.below(2) {
            0 => self.plain(&columns, measurement, ""),
            _ => self.over_windows(&columns, measurement, fill),
        }
    }

    /// Several calls, and expressions over them.
    fn several(&mut self, fill: &str) -> String {
        let measurement = self.measurement();
        let mut calls = Vec::new();
        for _ in 0..3 {
            let function = self.aggregate();
            let field = self.field(measurement, function);
            calls.push((function, self.call(function, field)));
        }
        let one = &calls[0].1;
        let other = &calls[1].1;
        let is_number = |function: &str| {
            matches!(function, "count" | "sum" | "mean" | "spread" | "stddev" | "median" | "count_distinct")
        };
        let operator = self.random.pick(&["+", "-", "*", "/"]);
        let is_windowed = !self.random.once_in(3);
        let columns = match self.random.below(6) {
            0 if is_number(calls[0].0) && is_number(calls[1].0) => format!("{one} {operator} {other}"),
            1 if is_number(calls[0].0) => format!("{one} {operator} 3 AS x, {other} AS y"),
            2 => self.random.pick(&["mean(*)", "max(*)", "count(*)", "last(/^[fik]$/)", "sum(*), count(f)"]).to_owned(),
            3 => format!("{one} AS x, {other} AS y, {} AS z", calls[2].1),
            4 if is_windowed && is_number(calls[0].0) && calls[0].0 != "stddev" => {
                let function = self.random.pick(&TRANSFORMATIONS);
                format!("{} AS x, {other} AS y", self.call(function, one))
            }
            _ => format!("{one} AS x, {other} AS y"),
        };
        if is_windowed { self.over_windows(&columns, measurement, fill) } else { self.plain(&columns, measurement, "") }
    }

    /// `top` and `bottom`, per tag value, and with fields beside them.
    fn ranked(&mut self) -> String {
        let measurement = self.measurement();
        let function = self.random.pick(&RANKINGS);
        let field = self.field(measurement, function);
        let count = 1 + self.random.below(4);
        let tags = if self.random.once_in(2) { measurement.tags.first() } else { None };
        let tags: String = tags.iter().map(|tag| format!(", {tag}")).collect();
        let other = self.random.pick(&["", "", ", i", ", f"]);
        let columns = format!("{function}({field}{tags}, {count}){other}");
        match self.random.below(2) {
            0 => self.plain(&columns, measurement, ""),
            _ => self.over_windows(&columns, measurement, ""),
        }
    }

    fn sources(&mut self, fill: &str) -> String {
        let all = Measurement { name: "", series: &[], tags: &["host"], fields: &["f", "i"] };
        let name = self.random.pick(&["alpha, beta", "beta, gamma", "/^(alpha|gamma)$/", "alpha, beta, gamma", "/a$/"]);
        let all = Measurement { name, ..all };
        let function = self.aggregate();
        let field = self.field(&all, function);
        let call = self.call(function, field);
        match self.random.below(3) {
            0 => self.plain(&call, &all, ""),
            1 => self.plain("f, i, host", &all, ""),
            _ => self.over_windows(&call, &all, fill),
        }
    }

    /// Equal times and values, with functions that InfluxDB defines for them.
    fn ties(&mut self, fill: &str) -> String {
        let functions =
            ["count", "sum", "mean", "min", "max", "spread", "first", "last", "stddev", "median", "count_distinct"];
        let function = self.random.pick(&functions);
        let field = if matches!(function, "count" | "first" | "last") {
            self.random.pick(TIES.fields)
        } else {
            self.random.pick(&["f", "i"])
        };
        let call = self.call(function, field);
        match self.random.below(3) {
            0 if !matches!(function, "first" | "last") => self.plain(&call, &TIES, ""),
            _ => self.over_windows(&call, &TIES, fill),
        }
    }
}

/// Returns `GROUP BY` with windows and tags.
fn grouping(window: Option<String>, tags: &[&str]) -> String {
    let all: Vec<&str> = window.as_deref().into_iter().chain(tags.iter().copied()).collect();
    if all.is_empty() { String::new() } else { format!(" GROUP BY {}", all.join(", ")) }
}
