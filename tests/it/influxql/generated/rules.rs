//! Known InfluxDB faults; each is verified with an equivalent statement that avoids the fault.

use serde_json::Value;

/// A fault of InfluxDB.
pub struct Rule {
    pub reason: &'static str,
    /// Returns the equivalent statement, or `None` if the fault does not apply.
    pub instead: fn(&str) -> Option<String>,
    /// Makes both answers comparable: InfluxDB's to the equivalent, hourglass's to the original.
    pub adapt: fn(&str, &mut [Value; 2]),
}

/// In order of application, if several are needed.
pub const RULES: [Rule; 9] = [
    Rule {
        reason: "InfluxDB's integral() takes the value at a window's edge for an integer reading's own",
        instead: |statement| {
            let edited = ["i", "n", "k"].iter().fold(statement.to_owned(), |text, field| {
                text.replace(&format!("integral({field}"), &format!("integral({field}::float"))
            });
            (edited != statement).then_some(edited)
        },
        adapt: |_, _| {},
    },
    Rule {
        reason: "InfluxDB shows the series of integral(), and their last windows behind them, in an order of chance",
        instead: |statement| is_integral(statement).then(|| statement.to_owned()),
        adapt: |_, [expected, _]| {
            let series = series(expected);
            let key = |series: &Value| [series["name"].to_string(), series["tags"].to_string()];
            series.sort_by_key(key);
            series.dedup_by(|next, series| {
                let is_same = key(next) == key(series);
                if is_same {
                    rows(series).append(rows(next));
                }
                is_same
            });
        },
    },
    Rule {
        reason: "InfluxDB's integral() is negative backwards, and stands at the windows' ends",
        instead: |statement| {
            (is_integral(statement) && statement.contains(DESCENDING)).then(|| statement.replace(DESCENDING, ""))
        },
        adapt: |_, [expected, _]| {
            let series = series(expected);
            series.reverse();
            series.iter_mut().for_each(|series| rows(series).reverse());
        },
    },
    Rule {
        reason: "InfluxDB has the integral() of a range at the epoch, and every other function where the range starts",
        instead: |statement| is_integral(statement).then(|| statement.to_owned()),
        adapt: |_, both| forgive_epoch(both),
    },
    Rule {
        reason: "InfluxDB takes LIMIT and OFFSET of the readings, before top() and bottom() see them",
        instead: |statement| {
            let is_ranking = ["SELECT top(", "SELECT bottom("].iter().any(|start| statement.starts_with(start));
            without_limit(statement).filter(|_| is_ranking)
        },
        adapt: |statement, [expected, _]| cut(statement, expected),
    },
    Rule {
        reason: "InfluxDB takes LIMIT and OFFSET of the rows of each function, before it joins them",
        instead: |statement| {
            let (columns, rest) = statement.split_once(" FROM ")?;
            let is_joined = columns.matches('(').count() > 1 || ["(*", "(/"].iter().any(|all| columns.contains(all));
            without_limit(statement).filter(|_| is_joined && !rest.starts_with('('))
        },
        adapt: |statement, [expected, _]| cut(statement, expected),
    },
    Rule {
        reason: "InfluxDB has nothing previous for fill(previous) in what an OFFSET leaves out",
        instead: |statement| {
            let begins_anew = statement.contains("fill(previous)") && statement.contains(" OFFSET ");
            without_limit(statement).filter(|_| begins_anew)
        },
        adapt: |statement, [expected, _]| cut(statement, expected),
    },
    Rule {
        reason: "InfluxDB ends with the first row of a subquery whose window begins before the range",
        instead: |statement| {
            let edited = without_start(statement);
            (edited != statement).then_some(edited)
        },
        // Without a start, a total row has the epoch as its time.
        adapt: |_, both| forgive_epoch(both),
    },
    Rule {
        reason: "stddev() of one value is null, and no value; InfluxDB goes on with what is not a number",
        instead: |statement| {
            let edited = without_nan(statement);
            (edited != statement).then_some(edited)
        },
        adapt: |_, _| {},
    },
];

const DESCENDING: &str = " ORDER BY time DESC";
const EPOCH: &str = "1970-01-01T00:00:00Z";

fn is_integral(statement: &str) -> bool {
    statement.contains("integral(") && !statement.contains("FROM (")
}

/// Sets the time of hourglass's rows to the epoch where InfluxDB's rows have it.
fn forgive_epoch([expected, actual]: &mut [Value; 2]) {
    for (one, other) in series(expected).iter_mut().zip(series(actual)) {
        for (one, other) in rows(one).iter().zip(rows(other)).filter(|(one, _)| one[0] == EPOCH) {
            other[0] = one[0].clone();
        }
    }
}

/// Returns the statement without LIMIT and OFFSET, if it has them; SLIMIT and SOFFSET stay.
fn without_limit(statement: &str) -> Option<String> {
    let (before, limits) = statement.split_once(" LIMIT ")?;
    let of_series = limits.split_once(" SLIMIT ").map_or(String::new(), |(_, limit)| format!(" SLIMIT {limit}"));
    Some(format!("{before}{of_series}"))
}

/// Applies a statement's LIMIT and OFFSET.
fn cut(statement: &str, answer: &mut Value) {
    let number = |word: &str| -> Option<usize> {
        let (_, rest) = statement.split_once(&format!(" {word} "))?;
        rest.split(' ').next()?.parse().ok()
    };
    let limit = number("LIMIT").unwrap_or(usize::MAX);
    let offset = number("OFFSET").unwrap_or(0);
    for series in series(answer).iter_mut() {
        let kept: Vec<Value> = rows(series).drain(..).skip(offset).take(limit).collect();
        *rows(series) = kept;
    }
    series(answer).retain_mut(|series| !rows(series).is_empty());
}

/// Returns the series of an answer to one statement, possibly none.
pub fn series(answer: &mut Value) -> &mut Vec<Value> {
    let series = &mut answer["results"][0]["series"];
    if series.is_null() {
        *series = Value::Array(Vec::new());
    }
    series.as_array_mut().expect("a list of series")
}

fn rows(series: &mut Value) -> &mut Vec<Value> {
    series["values"].as_array_mut().expect("a list of rows")
}

/// Splits a statement with a subquery into columns, subquery and clauses.
fn parts(statement: &str) -> Option<(&str, &str, &str)> {
    let (columns, rest) = statement.split_once(" FROM (")?;
    let mut depth = 1;
    let end = rest.char_indices().find(|(at, char)| {
        depth += i32::from(*char == '(') - i32::from(*char == ')');
        *char == ')' && depth == 0 && !rest[*at..].starts_with("), (")
    })?;
    Some((columns, &rest[..end.0], &rest[end.0 + 1..]))
}

/// Removes the first time of outer statements without windows.
fn without_start(statement: &str) -> String {
    let Some((columns, inner, clauses)) = parts(statement).filter(|(.., clauses)| !clauses.contains(" GROUP BY time"))
    else {
        return statement.to_owned();
    };
    let inner = without_start(inner);
    match clauses.strip_prefix(" WHERE time >").and_then(|range| range.split_once(" AND ")) {
        Some((_, others)) => format!("{columns} FROM ({inner}) WHERE {others}"),
        None => format!("{columns} FROM ({inner}){clauses}"),
    }
}

/// Adds a condition around each `stddev()` that only numbers meet.
fn without_nan(statement: &str) -> String {
    let Some((columns, inner, clauses)) = parts(statement).filter(|(_, inner, _)| !inner.contains("), (")) else {
        return statement.to_owned();
    };
    let clauses = if inner.starts_with("SELECT stddev(") {
        clauses.replacen(" WHERE ", " WHERE x >= -3 AND ", 1)
    } else {
        clauses.to_owned()
    };
    format!("{columns} FROM ({}){clauses}", without_nan(inner))
}
