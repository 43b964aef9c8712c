use super::*;
use crate::reading::Value;

const HOUR: Hour = Hour(490_001);

struct World {
    cache: SummaryCache,
    changes: HourVersions,
    fields: Vec<Arc<str>>,
}

fn world(bytes_max: usize, max_age: Option<Duration>) -> World {
    let metrics = Metrics::new("0", "test").unwrap();
    let cache = SummaryCache::new(bytes_max, max_age, &metrics).unwrap();
    World { cache, changes: HourVersions::default(), fields: vec!["v".into()] }
}

fn summary(value: i64) -> Summary {
    Summary::fold([Value::Integer(value)].iter()).unwrap()
}

fn found(hour: Hour, has_ends: bool, value: i64) -> FoundHour {
    FoundHour { hour, has_ends, summaries: vec![("v".into(), summary(value))] }
}

impl World {
    fn asked<'a>(&'a self, sensor: &'a str, hours: Range<i64>) -> Hours<'a> {
        let place = self.changes.hash("d", sensor);
        let hours = Hour(HOUR.0 + hours.start)..Hour(HOUR.0 + hours.end);
        Hours { database: "d", sensor, place, hours, fields: &self.fields, ends: false }
    }

    fn moment(&self) -> ReadMoment {
        ReadMoment { changes: self.changes.now(), at: Instant::now() }
    }

    /// Caches this value for the first of the hours; the others are empty.
    fn fill(&self, asked: &Hours<'_>, value: i64) {
        self.fill_with(asked, true, value);
    }

    /// The same; whether the first and last values are known is told.
    fn fill_with(&self, asked: &Hours<'_>, has_ends: bool, value: i64) {
        let found = found(asked.hours.start, has_ends, value);
        self.cache.remember(asked, &[], self.moment(), &self.changes, [found]);
    }

    /// The cached hours with their counts, and how many hours must be read.
    fn recall(&self, asked: &Hours<'_>, open: &[Hour]) -> (Vec<(i64, u64)>, i64) {
        let mut known = Vec::new();
        let unknown = self.cache.recall(asked, open, (&self.changes, Instant::now()), |hour, fields| {
            let count = fields.iter().filter_map(|(_, summary)| summary.as_ref()).map(Summary::count).sum();
            known.push((hour.0 - HOUR.0, count));
        });
        (known, unknown.end.0 - unknown.start.0)
    }
}

#[test]
fn what_was_read_is_remembered_also_that_there_is_nothing() {
    let world = world(1 << 20, None);
    let asked = world.asked("a", 0..30);
    assert_eq!(world.recall(&asked, &[]), (vec![], 30));
    world.fill(&asked, 7);
    let all: Vec<(i64, u64)> = (0..30).map(|hour| (hour, u64::from(hour == 0))).collect();
    assert_eq!(world.recall(&asked, &[]), (all, 0));
    // No hour between the first and the last missing one is passed.
    assert_eq!(world.recall(&world.asked("a", -1..2), &[]), (vec![(0, 1), (1, 0)], 1));
    assert_eq!(world.recall(&world.asked("a", -1..31), &[]).1, 32);
    // Open hours are neither cached nor missing.
    assert_eq!(world.recall(&world.asked("a", 28..31), &[Hour(HOUR.0 + 30)]), (vec![(28, 0), (29, 0)], 0));
    let other = ["w".into()];
    assert_eq!(world.recall(&Hours { fields: &other, ..world.asked("a", 0..1) }, &[]).1, 1);
    assert_eq!(world.recall(&world.asked("b", 0..1), &[]).1, 1);
    assert_eq!(world.recall(&Hours { database: "e", ..world.asked("a", 0..1) }, &[]).1, 1);
}

#[test]
fn fields_that_were_read_one_after_the_other_are_known_together() {
    let world = world(1 << 20, None);
    world.fill(&world.asked("a", 0..1), 7);
    let other = ["w".into()];
    world.cache.remember(&Hours { fields: &other, ..world.asked("a", 0..1) }, &[], world.moment(), &world.changes, []);
    let both = ["v".into(), "w".into()];
    assert_eq!(world.recall(&Hours { fields: &both, ..world.asked("a", 0..1) }, &[]), (vec![(0, 1)], 0));
    // Unless the hour has changed in between.
    world.changes.note(world.changes.hash("d", "a"), HOUR);
    world.fill(&world.asked("a", 0..1), 8);
    assert_eq!(world.recall(&Hours { fields: &both, ..world.asked("a", 0..1) }, &[]).1, 1);
}

#[test]
fn first_and_last_values_of_several_pages_are_not_taken_from_it() {
    let world = world(1 << 20, None);
    let asked = world.asked("a", 0..1);
    let with_ends = Hours { ends: true, ..asked.clone() };
    world.fill_with(&asked, false, 7);
    assert_eq!((world.recall(&asked, &[]).1, world.recall(&with_ends, &[]).1), (0, 1));
    // Nor beside another field, of which they are known.
    world.fill(&Hours { fields: &["w".into()], ..asked.clone() }, 2);
    assert_eq!((world.recall(&asked, &[]).1, world.recall(&with_ends, &[]).1), (0, 1));
    world.changes.note(asked.place, HOUR);
    world.fill(&asked, 8);
    assert_eq!(world.recall(&with_ends, &[]), (vec![(0, 1)], 0));
}

#[test]
fn a_read_that_began_before_a_change_is_not_remembered() {
    let world = world(1 << 20, None);
    let asked = world.asked("a", 0..2);
    let moment = world.moment();
    // During the read, the page is written and its readings stop being unflushed.
    world.changes.note(asked.place, HOUR);
    world.cache.remember(&asked, &[], moment, &world.changes, [found(HOUR, true, 1)]);
    assert_eq!(world.recall(&asked, &[]), (vec![(1, 0)], 1));
    // Nor if a later read, which saw the change, has already cached other fields.
    world.fill(&Hours { fields: &["w".into()], ..asked.clone() }, 2);
    world.cache.remember(&asked, &[], moment, &world.changes, [found(HOUR, true, 1)]);
    assert_eq!(world.recall(&asked, &[]).1, 1);
    let moment = world.moment();
    world.changes.note_everything();
    world.cache.remember(&asked, &[], moment, &world.changes, []);
    assert_eq!(world.recall(&asked, &[]), (vec![], 2));
}

#[test]
fn what_others_may_change_is_forgotten_in_time() {
    let world = world(1 << 20, Some(Duration::from_secs(5)));
    let asked = world.asked("a", 0..1);
    world.fill(&asked, 1);
    let at = |seconds: u64| (&world.changes, Instant::now() + Duration::from_secs(seconds));
    assert!(world.cache.recall(&asked, &[], at(4), |_, _| ()).is_empty());
    assert!(!world.cache.recall(&asked, &[], at(5), |_, _| ()).is_empty());
}

#[test]
fn bytes_are_bounded_and_days_that_are_asked_for_stay_longer() {
    let bytes_max = 100_000;
    let world = world(bytes_max, None);
    let names: Vec<String> = (0..500).map(|number| format!("sensor {number}")).collect();
    for name in &names {
        world.fill(&world.asked(name, 0..20), 1);
        let mut state = world.cache.state.lock();
        assert!(state.bytes <= bytes_max, "{}", state.bytes);
        assert_eq!(state.bytes, state.days.values().map(Day::memory).sum::<usize>());
        assert_eq!(state.order.make_contiguous().len(), state.days.len());
        drop(state);
        world.recall(&world.asked(&names[0], 0..20), &[]);
    }
    assert!(world.cache.state.lock().days.len() > 10);
    assert_eq!(world.recall(&world.asked(&names[0], 0..20), &[]).1, 0, "asked for all the time");
    assert_eq!(world.recall(&world.asked(&names[1], 0..20), &[]).1, 20, "never asked for");
    assert_eq!(world.recall(&world.asked(&names[499], 0..20), &[]).1, 0, "the latest");
}
