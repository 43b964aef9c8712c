//! Makes a group's rows: readings as they are, or the windows of each call, filled and joined by time.

use std::collections::{BTreeMap, HashMap};

use super::fill::{Fill, Grid, constant, fill};
use super::fold::OpenWindow;
use super::number::{arithmetic, number};
use super::plan::{Call, Function, Input, Node, Plan};
use super::transform::{integral, transform};
use super::windows::Windows;
use crate::query::engine::frame::{Frame, GroupContent, ResultRow, label};
use crate::reading::Value;

/// The readings of all series of a group, by time; those of one time in the order of their series.
pub fn raw(mut readings: Vec<ResultRow>, plan: &Plan, frame: &Frame) -> Vec<ResultRow> {
    readings.sort_by_key(|(time, _)| *time);
    if frame.descending {
        readings.reverse();
    }
    fill_missing(frame.fill, plan.beside.len(), readings.iter_mut().map(|(_, beside)| beside));
    readings
}

/// Applies `fill` to each column of rows in display order.
fn fill_missing<'r>(fill: Fill, width: usize, rows: impl Iterator<Item = &'r mut Vec<Option<Value>>>) {
    if matches!(fill, Fill::Null | Fill::None | Fill::Linear) {
        return;
    }
    let mut rows: Vec<_> = rows.collect();
    for column in 0..width {
        let mut known = rows.iter().filter_map(|cells| cells.get(column)?.as_ref());
        // A column without numbers is filled with the number as written.
        let mut shown = constant(fill, known.next().filter(|value| number(value).is_some()));
        for cells in &mut rows {
            cells.resize(cells.len().max(width), None);
            match &cells[column] {
                None => cells[column].clone_from(&shown),
                Some(value) if fill == Fill::Previous => shown = Some(value.clone()),
                Some(_) => {}
            }
        }
    }
}

/// A row of one call: a time, a value, and the reading's other parts.
type Shown = (i64, Option<Value>, Vec<Option<Value>>);

/// The rows of all calls of a group, joined by time. Each has the results of the calls, and of a single call the
/// reading's `Plan::beside` parts.
pub fn result_rows(mut content: GroupContent, plan: &Plan, frame: &Frame, gathered_by: &[usize]) -> Vec<ResultRow> {
    let counters = std::mem::take(&mut content.counters);
    for (number, counters) in counters.into_iter().enumerate() {
        content.windows[number].extend(counters.finish(plan.calls[number].innermost().0));
    }
    let first = content.windows.iter().filter_map(|windows| windows.keys().next().copied()).min();
    let frame = &match first.filter(|_| frame.fills_together && !frame.has_min) {
        Some(min) => Frame { min, has_min: true, ..frame.clone() },
        None => frame.clone(),
    };
    let mut shown: Vec<Vec<Shown>> = Vec::with_capacity(plan.calls.len());
    for (number, call) in plan.calls.iter().enumerate() {
        let windows = &mut content.windows[gathered_by[number]];
        let values = std::mem::take(&mut content.values[number]);
        shown.push(show(call, windows, values, plan.calls.len() == 1, frame));
    }
    if let [only] = &mut *shown {
        fill_missing(frame.fill, plan.beside.len(), only.iter_mut().map(|(_, _, beside)| beside));
        let row = |(time, value, beside): Shown| (time, std::iter::once(value).chain(beside).collect());
        return only.drain(..).map(row).collect();
    }
    let calls = shown.len();
    let mut by_time: BTreeMap<i64, Vec<Option<Value>>> = BTreeMap::new();
    for (number, shown) in shown.into_iter().enumerate() {
        for (time, value, _) in shown {
            by_time.entry(time).or_insert_with(|| vec![None; calls])[number] = value;
        }
    }
    let mut rows: Vec<ResultRow> = by_time.into_iter().collect();
    if frame.descending {
        rows.reverse();
    }
    if !frame.fills_together {
        fill_missing(frame.fill, calls, rows.iter_mut().map(|(_, values)| values));
    }
    rows
}

/// The rows of one call, in display order.
fn show(
    call: &Call,
    windows: &mut BTreeMap<i64, OpenWindow>,
    mut values: Vec<(i64, Value)>,
    single: bool,
    frame: &Frame,
) -> Vec<Shown> {
    let plain = |(time, value): (i64, Value)| (time, Some(value), Vec::new());
    match (&call.input, &call.function) {
        (Input::Field(_), Function::Integral(unit)) => {
            values.sort_by_key(|(time, _)| *time);
            let row = |(start, area): (i64, f64)| plain((label(start, frame), Value::Float(area)));
            let mut areas: Vec<Shown> = integral(&values, *unit, frame.windows.as_ref()).into_iter().map(row).collect();
            if frame.descending {
                areas.reverse();
            }
            areas
        }
        (Input::Field(_), function) if function.is_transformation() => {
            values.sort_by_key(|(time, _)| *time);
            if frame.descending {
                values.reverse();
            }
            // A subquery without windows of its own has those of the outer query.
            let every = frame.windows.as_ref().map(Windows::usual_length);
            transform(function, &values, every).into_iter().map(plain).collect()
        }
        (Input::Field(_), function) => of_windows(function, windows, single, frame),
        (Input::Call(inner), function) => {
            let lead = frame.clone();
            let lead = match (&frame.windows, function.is_transformation() && call.looks_back()) {
                (Some(_), true) if frame.descending => Frame { max: frame.max.saturating_add(frame.lead), ..lead },
                (Some(_), true) if frame.has_min => Frame { min: frame.min.saturating_sub(frame.lead), ..lead },
                _ => lead,
            };
            // Empty windows are filled before the function in InfluxQL, and after it where columns are filled together.
            let lead = if frame.fills_together { Frame { fill: Fill::None, ..lead } } else { lead };
            let shown = show(inner, windows, values, false, &lead);
            let values: Vec<(i64, Value)> =
                shown.into_iter().filter_map(|(time, value, _)| Some((time, value?))).collect();
            let every = frame.windows.as_ref().map(Windows::usual_length);
            let shown = transform(function, &values, every).into_iter().map(plain).collect();
            if frame.fills_together { fill_windows(shown, frame.min, false, frame) } else { shown }
        }
    }
}

fn of_windows(function: &Function, windows: &mut BTreeMap<i64, OpenWindow>, single: bool, frame: &Frame) -> Vec<Shown> {
    let Some(first) = windows.keys().next().copied() else { return Vec::new() };
    let keeps_time = function.is_ranking() || (single && frame.windows.is_none() && function.is_selector());
    let mut shown: Vec<Shown> = Vec::new();
    let is_list = function.is_ranking() || *function == Function::Distinct;
    // The latest window first; within a window the rows stay in time order.
    let backwards = is_list && frame.descending;
    let mut windows: Vec<(&i64, &mut OpenWindow)> = windows.iter_mut().collect();
    if backwards {
        windows.reverse();
    }
    for (window, filling) in windows {
        let label = label(*window, frame);
        let before = shown.len();
        filling.finish(function, frame.descending, |pick| {
            let time = pick.time.filter(|_| keeps_time).unwrap_or(label);
            shown.push((time, Some(pick.value), pick.beside));
        });
        if frame.fills_together && shown.len() == before {
            // A window with readings is not filled, although a percentile of few readings has no value.
            shown.push((label, Some(Value::Float(f64::NAN)), Vec::new()));
        }
    }
    if is_list {
        return shown;
    }
    if frame.descending {
        shown.reverse();
    }
    fill_windows(shown, first, matches!(function, Function::Count | Function::CountDistinct), frame)
}

/// Fills the windows without rows, if the query asks for it. `first` is the first window with a row.
fn fill_windows(mut shown: Vec<Shown>, first: i64, counts: bool, frame: &Frame) -> Vec<Shown> {
    let Some(grid) = &frame.windows else { return shown };
    if frame.fills_together && frame.lead > 0 {
        let start = grid.around(frame.min).start;
        shown.retain(|(time, ..)| *time >= start);
    }
    if shown.is_empty() || frame.fill == Fill::None {
        return shown;
    }
    // A window of a subquery may begin before the range. In descending order all windows from there on are shown.
    let from = match (frame.has_min, frame.descending) {
        (true, false) => frame.min,
        (true, true) => frame.min.min(first),
        (false, _) => first,
    };
    let starts = grid.starts(from, frame.max, frame.descending, frame.rows_max.unwrap_or(usize::MAX));
    let mut beside: HashMap<i64, Vec<Option<Value>>> = HashMap::new();
    let mut values = Vec::with_capacity(shown.len());
    for (time, value, others) in shown {
        values.extend(value.map(|value| (time, value)));
        beside.insert(time, others);
    }
    let has_numbers = values.first().is_none_or(|(_, value)| number(value).is_some());
    let constants = if frame.fills_together && !has_numbers { frame.fill.without_constant() } else { frame.fill };
    let windows = Grid { starts: &starts, every: grid.usual_length(), descending: frame.descending };
    let filled = fill(constants, &windows, values, counts);
    let row = |(time, value): (i64, Option<Value>)| (time, value, beside.remove(&time).unwrap_or_default());
    filled.into_iter().map(row).collect()
}

/// A column of a row, computed from the results of its calls and from its reading's [`Plan::beside`] parts.
pub fn cell(node: &Node, calls: &[Option<Value>], beside: &[Option<Value>]) -> Option<Value> {
    match node {
        Node::Nothing => None,
        Node::Constant(value) => Some(value.clone()),
        Node::Call(number) => {
            let result = calls.get(*number).cloned().flatten();
            result.filter(|value| !matches!(value, Value::Float(value) if value.is_nan()))
        }
        Node::Part(number) => beside.get(*number).cloned().flatten(),
        Node::Binary(operator, a, b) => arithmetic(*operator, &cell(a, calls, beside)?, &cell(b, calls, beside)?),
        Node::Math(function, a, None) => function.apply(&cell(a, calls, beside)?, None),
        Node::Math(function, a, Some(b)) => function.apply(&cell(a, calls, beside)?, Some(&cell(b, calls, beside)?)),
    }
}
