//! Counters, and functions from window to window, against a plain model of all readings.

use super::{start, summary};
use crate::support::prelude::*;

const CONFIG: &str = "[seal]\nafter = \"0s\"\ndirect_min = 0\n[clock]\nmax_offset = \"1s\"\n";
const FIRST: i64 = 1_740_787_200 * SECOND;

/// Readings of a sensor, in order of time.
type Readings = Vec<(i64, f64)>;

/// The result of each window, by its number.
type Results = BTreeMap<i64, f64>;

/// Returns the result of a function of single windows.
fn of_windows(function: &str, readings: &Readings, step: i64) -> Results {
    let mut windows: BTreeMap<i64, Readings> = BTreeMap::new();
    for (time, value) in readings {
        windows.entry(time.div_euclid(step)).or_default().push((*time, *value));
    }
    let mut results = Results::new();
    for (window, readings_of_window) in &windows {
        let values: Vec<f64> = readings_of_window.iter().map(|(_, value)| *value).collect();
        let sum = values.iter().sum::<f64>();
        let result = match function {
            "last" => values.last().copied(),
            "max" => values.iter().copied().reduce(f64::max),
            "sum" => Some(sum),
            "count" => Some(values.len() as f64),
            "avg" => Some(sum / values.len() as f64),
            counter => {
                let before = readings.iter().rfind(|(time, _)| time.div_euclid(step) < *window);
                let followed: Readings = before.into_iter().chain(readings_of_window).copied().collect();
                let change =
                    |pair: &[(i64, f64)]| if pair[1].1 < pair[0].1 { pair[1].1 } else { pair[1].1 - pair[0].1 };
                let increase = followed.windows(2).map(change).sum::<f64>();
                let seconds = (followed[followed.len() - 1].0 - followed[0].0) as f64 / SECOND as f64;
                (followed.len() > 1).then_some(if counter == "rate" { increase / seconds } else { increase })
            }
        };
        results.extend(result.map(|result| (*window, result)));
    }
    results
}

/// A function from window to window.
#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Difference,
    /// The unit in seconds.
    Derivative(f64),
    Average(usize),
}

impl Then {
    fn windows(self) -> i64 {
        match self {
            Self::Nothing => 0,
            Self::Difference | Self::Derivative(_) => 1,
            Self::Average(count) => count as i64 - 1,
        }
    }

    fn apply(self, results: &Results, step: i64) -> Results {
        let all: Vec<(i64, f64)> = results.iter().map(|(window, value)| (*window, *value)).collect();
        let change = |pair: &[(i64, f64)]| (pair[1].0, pair[1].1 - pair[0].1);
        match self {
            Self::Nothing => results.clone(),
            Self::Difference => all.windows(2).map(change).collect(),
            Self::Derivative(unit) => {
                let seconds = |pair: &[(i64, f64)]| ((pair[1].0 - pair[0].0) * step / SECOND) as f64;
                all.windows(2).map(|pair| (pair[1].0, change(pair).1 / seconds(pair) * unit)).collect()
            }
            Self::Average(count) => {
                let mean = |some: &[(i64, f64)]| some.iter().map(|(_, value)| value).sum::<f64>() / count as f64;
                all.windows(count).map(|some| (some[count - 1].0, mean(some))).collect()
            }
        }
    }
}

/// The names of functions with their parts.
const FUNCTIONS: [(&str, &str, Then); 9] = [
    ("increase", "increase", Then::Nothing),
    ("rate", "rate", Then::Nothing),
    ("difference(last)", "last", Then::Difference),
    ("difference(count)", "count", Then::Difference),
    ("derivative(avg)", "avg", Then::Derivative(1.0)),
    ("derivative(max,1m)", "max", Then::Derivative(60.0)),
    ("moving_average(sum,3)", "sum", Then::Average(3)),
    ("moving_average(rate,4)", "rate", Then::Average(4)),
    ("moving_average(max,2)", "max", Then::Average(2)),
];

struct Case {
    server: Server,
    sensors: BTreeMap<String, Readings>,
    end: i64,
}

impl Case {
    /// Returns the expected results of a series. The function sees the windows before the range that it needs.
    fn expected(&self, sensors: &[&str], (_, inner, then): (&str, &str, Then), step: i64, from: i64) -> Results {
        let first = from.div_euclid(step);
        let is_counter = ["rate", "increase"].contains(&inner);
        let seen_from = (first - then.windows() - i64::from(is_counter)) * step;
        let seen = |name: &str| -> Readings {
            self.sensors[name].iter().filter(|(time, _)| *time >= seen_from).copied().collect()
        };
        let mut results = Results::new();
        if is_counter {
            for (window, value) in sensors.iter().flat_map(|name| of_windows(inner, &seen(name), step)) {
                *results.entry(window).or_default() += value;
            }
        } else {
            let mut all: Readings = sensors.iter().flat_map(|name| seen(name)).collect();
            all.sort_by_key(|(time, _)| *time);
            results = of_windows(inner, &all, step);
        }
        let mut results = then.apply(&results, step);
        results.retain(|window, _| *window >= first);
        results
    }

    fn check(&self, group_by: &str, function: (&str, &str, Then), step: (&str, i64), from: i64) {
        let (name, ..) = function;
        let asked =
            format!("measurement=m&group_by={group_by}&agg=count,{name}&step={}&from={from}&to={}", step.0, self.end);
        let found = summary(&self.server, &asked);
        for (series, windows) in &found {
            let sensors: Vec<&str> =
                self.sensors.keys().map(String::as_str).filter(|key| group_by == "*" || key == series).collect();
            let results = self.expected(&sensors, function, step.1, from);
            let within = |name: &&str| self.sensors[*name].iter().filter(|(time, _)| *time >= from);
            let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
            for (time, _) in sensors.iter().flat_map(within) {
                *counts.entry(time.div_euclid(step.1)).or_default() += 1;
            }
            let expected: BTreeSet<i64> = results.keys().chain(counts.keys()).copied().collect();
            let shown: BTreeSet<i64> = windows.iter().map(|window| start(window).div_euclid(step.1)).collect();
            assert_eq!(shown, expected, "{series}: {asked}");
            for window in windows {
                let number = start(window).div_euclid(step.1);
                let cells = &window["fields"]["v"];
                assert_eq!(
                    cells["count"].as_u64(),
                    counts.get(&number).map(|count| *count as u64),
                    "{series}: {asked}"
                );
                let result = results.get(&number).copied();
                assert!(is_near(cells[name].as_f64(), result), "{series}: {asked}: {window}, expected {result:?}");
            }
        }
        assert_eq!(found.len(), if group_by == "*" { 1 } else { self.sensors.len() }, "{asked}");
    }

    fn check_all(&self) {
        for function in FUNCTIONS {
            self.check("none", function, ("1h", HOUR), FIRST);
            self.check("none", function, ("90m", HOUR * 3 / 2), FIRST + 30 * HOUR + 17 * MINUTE);
            self.check("none", function, ("1d", DAY), FIRST + 2 * DAY);
            self.check("none", function, ("10m", 10 * MINUTE), FIRST + 4 * DAY + MINUTE);
            // Readings of several sensors have different times, so that there is one last one.
            self.check("*", function, ("1h", HOUR), FIRST + 30 * HOUR + 17 * MINUTE);
        }
    }
}

/// Equal but for the last bits, which JSON may change.
fn is_near(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-12 * other.abs().max(1e-6),
        (one, other) => one.is_none() && other.is_none(),
    }
}

tests! {
    fn functions_equal_those_of_the_readings_embedded() => functions_equal_those_of_the_readings(&stores()[0]);
    fn functions_equal_those_of_the_readings_in_mongodb() => functions_equal_those_of_the_readings(&stores()[1]);
}

fn functions_equal_those_of_the_readings(store: &str) {
    let server = Launch::with_store(store).config(CONFIG).start();
    let mut random = Random::new(seed());
    let mut sensors: BTreeMap<String, Readings> = BTreeMap::new();
    for sensor in 0..3 {
        let mut level = 0.0;
        let mut time = FIRST + sensor;
        let mut readings = Readings::new();
        while time < FIRST + 5 * DAY {
            // Counters in eighths, with resets and gaps.
            level = if random.once_in(40) { random.below(4) as f64 } else { level + random.below(50) as f64 / 8.0 };
            readings.push((time, level));
            time += (1 + random.below(20)) * MINUTE + if random.once_in(60) { 7 * HOUR } else { 0 };
        }
        sensors.insert(format!("m,s={sensor}"), readings);
    }
    let line = |key: &str, (time, value): &(i64, f64)| format!("{key} v={value} {time}\n");
    let lines = sensors.iter().flat_map(|(key, readings)| readings.iter().map(move |reading| line(key, reading)));
    write_to(&server, "db=d&precision=ns", lines.collect::<String>());
    let case = Case { server, sensors, end: FIRST + 5 * DAY };
    case.check_all();
    flush(&case.server);
    case.check_all();
    seal(&case.server);
    case.check_all();
    empty_windows_are_filled_with_results(&case);
    unknown_functions_are_refused(&case.server);
}

fn empty_windows_are_filled_with_results(case: &Case) {
    let key = "m,s=0";
    let from = FIRST + 3 * HOUR;
    for name in ["difference(last)", "rate"] {
        let asked = |fill: &str| format!("sensor={key}&agg={name}&step=10m&from={from}&to={}&fill={fill}", case.end);
        let plain = summary(&case.server, &asked("none"));
        let cell = |window: &Value| window["fields"]["v"][name].clone();
        let known: BTreeMap<i64, Value> = plain[key].iter().map(|window| (start(window), cell(window))).collect();
        for (fill, shown) in [("null", Value::Null), ("7", json!(7))] {
            let filled = summary(&case.server, &asked(fill));
            assert_eq!(filled[key].len() as i64, (case.end - from) / (10 * MINUTE), "{name} {fill}");
            for window in &filled[key] {
                let expected = known.get(&start(window)).unwrap_or(&shown);
                assert_eq!(cell(window).as_f64(), expected.as_f64(), "{name} {fill}: {window}");
            }
        }
    }
}

fn unknown_functions_are_refused(server: &Server) {
    for bad in ["derivative(avg,x)", "difference", "moving_average(avg)", "difference(rate(avg))"] {
        let answer = get(&server.url(&format!("{}measurement=m&agg={bad}", super::SUMMARY))).expect(400);
        assert!(answer.text().contains(&format!("parameter agg: \\\"{bad}\\\" is not")), "{}", answer.text());
    }
    let csv = get(&server.url(&format!(
        "{}sensor=m,s=1&agg=difference(last),derivative(avg,1m)&format=csv&to={}",
        super::SUMMARY,
        FIRST
    )))
    .expect(200);
    assert_eq!(csv.text(), "sensor,tag.s,start,end,v.difference(last),\"v.derivative(avg,1m)\"\r\n");
}
