//! A group's rows: readings as they are, or the windows of each call, filled, joined by time.

use std::collections::{BTreeMap, HashMap};

use super::evaluate::{Content, Frame, Row, cells};
use super::fill::{constant, fill};
use super::filter::number;
use super::fold::{Pick, Window};
use super::plan::{Call, Function, Input, Plan};
use super::transform::{integral, transform};
use crate::influxql::Fill;
use crate::query::QueryError;
use crate::reading::Value;

/// Readings of all series of a group by time; those of one time in the order of their series.
pub fn raw(mut readings: Vec<Row>, plan: &Plan, frame: &Frame) -> Vec<Row> {
    readings.sort_by_key(|(time, _)| *time);
    if frame.descending {
        readings.reverse();
    }
    fill_missing(frame.fill, plan.beside.len(), readings.iter_mut().map(|(_, beside)| beside));
    readings.into_iter().map(|(time, beside)| (time, cells(plan, &|_| None, &beside))).collect()
}

/// Fills what is missing in each column of rows that are in the order in which they are shown.
fn fill_missing<'r>(fill: Fill, width: usize, rows: impl Iterator<Item = &'r mut Vec<Option<Value>>>) {
    if matches!(fill, Fill::Null | Fill::None | Fill::Linear) {
        return;
    }
    let mut rows: Vec<_> = rows.collect();
    for column in 0..width {
        let mut known = rows.iter().filter_map(|cells| cells.get(column)?.as_ref());
        // A text is filled with the number itself.
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

/// What a call shows: a time, a value, and what else its reading has.
type Shown = (i64, Option<Value>, Vec<Option<Value>>);

/// The rows of all calls of a group, joined by time.
pub fn joined(mut content: Content, plan: &Plan, frame: &Frame) -> Result<Vec<Row>, QueryError> {
    let mut shown: Vec<Vec<Shown>> = Vec::with_capacity(plan.calls.len());
    for (number, call) in plan.calls.iter().enumerate() {
        let windows = std::mem::take(&mut content.windows[number]);
        let values = std::mem::take(&mut content.values[number]);
        shown.push(show(call, windows, values, plan.calls.len() == 1, frame)?);
    }
    if let [only] = &mut *shown {
        fill_missing(frame.fill, plan.beside.len(), only.iter_mut().map(|(_, _, beside)| beside));
        let row = |(time, value, beside): Shown| (time, cells(plan, &|_| value.clone(), &beside));
        return Ok(only.drain(..).map(row).collect());
    }
    let calls = shown.len();
    let mut by_time: BTreeMap<i64, Vec<Option<Value>>> = BTreeMap::new();
    for (number, shown) in shown.into_iter().enumerate() {
        for (time, value, _) in shown {
            by_time.entry(time).or_insert_with(|| vec![None; calls])[number] = value;
        }
    }
    let mut rows: Vec<Row> = by_time.into_iter().collect();
    if frame.descending {
        rows.reverse();
    }
    fill_missing(frame.fill, calls, rows.iter_mut().map(|(_, values)| values));
    Ok(rows.into_iter().map(|(time, values)| (time, cells(plan, &|call| values[call].clone(), &[]))).collect())
}

/// What a call comes to, in the order in which rows are shown.
fn show(
    call: &Call,
    windows: BTreeMap<i64, Window>,
    mut values: Vec<(i64, Value)>,
    single: bool,
    frame: &Frame,
) -> Result<Vec<Shown>, QueryError> {
    let plain = |(time, value): (i64, Value)| (time, Some(value), Vec::new());
    match (&call.input, &call.function) {
        (Input::Field(_), Function::Integral(unit)) => {
            values.sort_by_key(|(time, _)| *time);
            let start = if frame.has_min { frame.min } else { 0 };
            let label = |(time, area): (i64, f64)| (if time == i64::MIN { start } else { time }, Value::Float(area));
            let mut areas: Vec<Shown> =
                integral(&values, *unit, frame.windows.as_ref()).into_iter().map(label).map(plain).collect();
            if frame.descending {
                areas.reverse();
            }
            Ok(areas)
        }
        (Input::Field(_), function) if function.is_transformation() => {
            values.sort_by_key(|(time, _)| *time);
            if frame.descending {
                values.reverse();
            }
            // A subquery has the windows of what is around it, if none of its own.
            let every = frame.windows.as_ref().map(|windows| windows.every);
            Ok(transform(function, &values, every).into_iter().map(plain).collect())
        }
        (Input::Field(_), function) => of_windows(function, windows, single, frame),
        (Input::Call(inner), function) => {
            let lead = Frame { has_min: frame.has_min, ..frame.clone() };
            let lead = match (&frame.windows, function.is_transformation() && call.looks_back()) {
                (Some(windows), true) if frame.descending => {
                    Frame { max: frame.max.saturating_add(windows.every), ..lead }
                }
                (Some(windows), true) if frame.has_min => {
                    Frame { min: frame.min.saturating_sub(windows.every), ..lead }
                }
                _ => lead,
            };
            let shown = show(inner, windows, values, false, &lead)?;
            let values: Vec<(i64, Value)> =
                shown.into_iter().filter_map(|(time, value, _)| Some((time, value?))).collect();
            let every = frame.windows.as_ref().map(|windows| windows.every);
            Ok(transform(function, &values, every).into_iter().map(plain).collect())
        }
    }
}

fn of_windows(
    function: &Function,
    windows: BTreeMap<i64, Window>,
    single: bool,
    frame: &Frame,
) -> Result<Vec<Shown>, QueryError> {
    let Some(first) = windows.keys().next().copied() else { return Ok(Vec::new()) };
    let keeps_time = function.is_ranking() || (single && frame.windows.is_none() && function.is_selector());
    let start = if frame.windows.is_some() { None } else { Some(if frame.has_min { frame.min } else { 0 }) };
    let mut shown: Vec<Shown> = Vec::new();
    let is_list = function.is_ranking() || *function == Function::Distinct;
    // The latest window first, and of each its rows by time.
    let backwards = is_list && frame.descending;
    let mut windows: Vec<(i64, Window)> = windows.into_iter().collect();
    if backwards {
        windows.reverse();
    }
    for (window, filling) in windows {
        let label = start.unwrap_or(window);
        let show = |pick: Pick| {
            let time = pick.time.filter(|_| keeps_time).unwrap_or(label);
            (time, Some(pick.value), pick.beside)
        };
        shown.extend(filling.finish(function, frame.descending).into_iter().map(show));
    }
    if shown.len() > frame.limits.windows {
        return Err(QueryError::TooManyWindows { limit: frame.limits.windows });
    }
    let Some(grid) = frame.windows.as_ref().filter(|_| !is_list && frame.fill != Fill::None) else {
        if frame.descending && !is_list {
            shown.reverse();
        }
        return Ok(shown);
    };
    if shown.is_empty() {
        return Ok(shown);
    }
    // A window of a subquery may begin before the first one. Backwards all between them are shown.
    let from = match (frame.has_min, frame.descending) {
        (true, false) => frame.min,
        (true, true) => frame.min.min(first),
        (false, _) => first,
    };
    let mut starts =
        grid.starts(from, frame.max, frame.limits.windows).map_err(|limit| QueryError::TooManyWindows { limit })?;
    if frame.descending {
        starts.reverse();
        shown.reverse();
    }
    let mut beside: HashMap<i64, Vec<Option<Value>>> = HashMap::new();
    let mut values = Vec::with_capacity(shown.len());
    for (time, value, others) in shown {
        values.extend(value.map(|value| (time, value)));
        beside.insert(time, others);
    }
    let counts = matches!(function, Function::Count | Function::CountDistinct);
    let filled = fill(frame.fill, &starts, values, counts, frame.descending);
    let row = |(time, value): (i64, Option<Value>)| (time, value, beside.remove(&time).unwrap_or_default());
    Ok(filled.into_iter().map(row).collect())
}
