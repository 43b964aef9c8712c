//! The shifts of the factory by its own clock: two from Monday to Friday, one on Saturday.

const HOUR: i64 = 3600;
const HOURS_OF_WEEK: usize = 7 * 24;
/// The Unix epoch was a Thursday.
const EPOCH_WEEKDAY: i64 = 3;

/// Returns the share of the factory that works at a time: 0 to 1.
pub fn work_share(time_s: i64) -> f64 {
    hourly_share(hour_of_week(time_s))
}

/// Returns the hours of full work from a fixed Monday in the past until a time. It never falls, and costs constant
/// time.
pub fn worked_hours(time_s: i64) -> f64 {
    let since_monday = time_s + EPOCH_WEEKDAY * 24 * HOUR;
    let week = since_monday.div_euclid(HOURS_OF_WEEK as i64 * HOUR);
    let second_of_week = since_monday.rem_euclid(HOURS_OF_WEEK as i64 * HOUR);
    let hour = hour_of_week(time_s);
    let part = (second_of_week % HOUR) as f64 / HOUR as f64;
    week as f64 * WORKED[HOURS_OF_WEEK] + WORKED[hour] + hourly_share(hour) * part
}

/// Returns the average of [`work_share`] over the last hours, because machines warm up and cool down.
pub fn machine_warmth(time_s: i64, hours: i64) -> f64 {
    (worked_hours(time_s) - worked_hours(time_s - hours * HOUR)) / hours as f64
}

fn hour_of_week(time_s: i64) -> usize {
    let hour = time_s.div_euclid(HOUR) + EPOCH_WEEKDAY * 24;
    usize::try_from(hour.rem_euclid(HOURS_OF_WEEK as i64)).unwrap_or_default()
}

const fn hourly_share(hour_of_week: usize) -> f64 {
    match (hour_of_week / 24, hour_of_week % 24) {
        // The evening shift has fewer machines.
        (0..=4, 6..14) => 1.0,
        (0..=4, 14..22) => 0.8,
        (5, 6..14) => 0.4,
        _ => 0.0,
    }
}

/// The hours of work in a week before each of its hours. The last entry is the whole week.
static WORKED: [f64; HOURS_OF_WEEK + 1] = {
    let mut before = [0.0; HOURS_OF_WEEK + 1];
    let mut hour = 0;
    while hour < HOURS_OF_WEEK {
        before[hour + 1] = before[hour] + hourly_share(hour);
        hour += 1;
    }
    before
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 2026-01-12 00:00 UTC.
    const MONDAY: i64 = 1_768_176_000;

    #[test]
    fn the_week_has_its_shifts() {
        let share = |day: i64, hour: i64| work_share(MONDAY + (day * 24 + hour) * HOUR);
        assert_eq!((share(0, 5), share(0, 6), share(0, 13), share(0, 14), share(0, 22)), (0.0, 1.0, 1.0, 0.8, 0.0));
        assert_eq!((share(5, 7), share(5, 15), share(6, 10)), (0.4, 0.0, 0.0));
        assert_eq!(share(-1, 10), 0.0, "Sunday");
    }

    #[test]
    fn worked_hours_are_the_sum_of_the_shares() {
        let step = 600;
        let mut sum = worked_hours(MONDAY);
        for time_s in (MONDAY..MONDAY + 15 * 24 * HOUR).step_by(step as usize) {
            assert!((worked_hours(time_s) - sum).abs() < 1e-6, "{time_s}");
            sum += work_share(time_s) * step as f64 / HOUR as f64;
        }
        assert!((machine_warmth(MONDAY + 9 * HOUR, 2) - 1.0).abs() < 1e-9);
        assert!((machine_warmth(MONDAY + 7 * HOUR, 2) - 0.5).abs() < 1e-9);
    }
}
