//! The plan of a summary query: which hours are answered by stored summaries and which need
//! their readings. Pure.

use std::ops::Range;

use super::hours_of;
use crate::reading::Hour;

/// Where an hour's part of the answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The pages' stored summaries: the hour lies within the range and within one window.
    Summaries,
    /// The readings themselves.
    Readings,
}

const HOUR_NS: i64 = 3_600_000_000_000;

/// The hours of a range in order, each stretch with its source. Windows that begin and end with
/// hours take whole hours from summaries; everything else is folded from readings, as are the `open`
/// hours: of those not everything is in the store.
pub fn plan(range: &Range<i64>, step: i64, open: &[Hour]) -> Vec<(Range<Hour>, Source)> {
    let hours = hours_of(range);
    if step % HOUR_NS != 0 {
        return vec![(hours, Source::Readings)];
    }
    let starts_whole = hours.start.start_ns() >= range.start;
    let first_whole = if starts_whole { hours.start } else { hours.start.next() };
    let last = Hour::of(range.end.saturating_sub(1));
    let ends_whole = last.end_ns() <= range.end;
    let end_whole = if ends_whole { hours.end } else { last };
    if first_whole >= end_whole {
        return vec![(hours, Source::Readings)];
    }
    let mut stretches = vec![(hours.start..first_whole, Source::Readings)];
    let mut from = first_whole;
    for hour in open.iter().filter(|hour| (first_whole..end_whole).contains(*hour)) {
        stretches.push((from..*hour, Source::Summaries));
        stretches.push((*hour..hour.next(), Source::Readings));
        from = hour.next();
    }
    stretches.push((from..end_whole, Source::Summaries));
    stretches.push((end_whole..hours.end, Source::Readings));
    stretches.retain(|(hours, _)| hours.start < hours.end);
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(from: i64, to: i64, step: i64, open: &[Hour]) -> String {
        let stretch = |(hours, source): (Range<Hour>, Source)| match source {
            Source::Summaries => format!("summaries {}..{}", hours.start.0, hours.end.0),
            Source::Readings => format!("readings {}..{}", hours.start.0, hours.end.0),
        };
        plan(&(from..to), step, open).into_iter().map(stretch).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn whole_hours_come_from_summaries_and_edges_from_readings() {
        const H: i64 = HOUR_NS;
        for (from, to, step, expected) in [
            (0, 3 * H, H, "summaries 0..3"),
            (-2 * H, H, 2 * H, "summaries -2..1"),
            (1, 3 * H, H, "readings 0..1, summaries 1..3"),
            (0, 3 * H - 1, H, "summaries 0..2, readings 2..3"),
            (H / 2, 2 * H + 1, H, "readings 0..1, summaries 1..2, readings 2..3"),
            (1, H, H, "readings 0..1"),
            (H / 2, H + H / 2, H, "readings 0..2"),
            (0, 3 * H, H / 2, "readings 0..3"),
            (0, 3 * H, H + H / 2, "readings 0..3"),
            (5, 5, H, ""),
        ] {
            assert_eq!(show(from, to, step, &[]).replace("readings 0..0", ""), expected, "{from}..{to} by {step}");
        }
    }
    #[test]
    fn hours_that_are_not_wholly_in_the_store_come_from_readings() {
        const H: i64 = HOUR_NS;
        let expected = "summaries 0..1, readings 1..2, readings 2..3, summaries 3..5, readings 5..6";
        assert_eq!(show(0, 5 * H + 1, H, &[Hour(-1), Hour(1), Hour(2), Hour(5)]), expected);
        assert_eq!(show(0, 2 * H, H, &[Hour(0), Hour(1)]), "readings 0..1, readings 1..2");
    }
}
