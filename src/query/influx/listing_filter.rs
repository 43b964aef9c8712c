//! The condition of a listing. InfluxDB judges it by series, except for `SHOW MEASUREMENTS`, and names of fields hold for
//! all series of their measurement.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::condition::of_tags;
use super::show::{Tags, is_of_tags};
use super::statement::StatementFailure;
use crate::influxql::{Expr, Listing, ListingKind, Literal, Operator, ReferenceKind, TimeRange};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::pattern::Patterns;

/// Refuses times in the condition of listings that InfluxDB reads from its index.
pub(super) fn check_times(listing: &Listing, range: &TimeRange) -> Result<(), StatementFailure> {
    let name = match (listing.kind, listing.cardinality.is_some()) {
        (ListingKind::Measurements, false) => "SHOW MEASUREMENTS",
        (ListingKind::Measurements, true) => "SHOW MEASUREMENT EXACT CARDINALITY",
        (ListingKind::Series, true) => "SHOW SERIES EXACT CARDINALITY",
        (ListingKind::TagKeys, true) => "SHOW TAG KEY EXACT CARDINALITY",
        (ListingKind::FieldKeys, true) => "SHOW FIELD KEY CARDINALITY",
        _ => return Ok(()),
    };
    if range.min.is_none() && range.max.is_none() {
        return Ok(());
    }
    Err(StatementFailure::Refused(format!("{name} doesn't support time in WHERE clause")))
}

/// A condition on the series of a listing.
pub(super) struct SeriesFilter<'a> {
    listing: &'a Listing,
    condition: &'a Expr,
    patterns: &'a Patterns,
    /// Measurements with their fields.
    fields: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> SeriesFilter<'a> {
    /// Prepares a condition for these sensors, which include all of their measurements.
    pub(super) fn new(
        listing: &'a Listing,
        condition: &'a Expr,
        patterns: &'a Patterns,
        entries: &'a [DirectoryEntry],
    ) -> Result<Self, StatementFailure> {
        if listing.cardinality.is_none() && !is_of_tags(condition) {
            return Err(StatementFailure::NotOfTags);
        }
        let mut fields: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for entry in entries.iter().filter(|_| listing.cardinality.is_none()) {
            fields.entry(&*entry.sensor.measurement).or_default().extend(entry.fields.iter().map(|(name, _)| &**name));
        }
        Ok(Self { listing, condition, patterns, fields })
    }

    pub(super) fn passes(&self, entry: &DirectoryEntry) -> bool {
        self.holds(self.condition, entry)
    }

    fn holds(&self, condition: &Expr, entry: &DirectoryEntry) -> bool {
        let (operator, left, right) = match condition {
            Expr::Paren(inner) => return self.holds(inner, entry),
            Expr::Binary { operator, left, right } => (*operator, &**left, &**right),
            _ => return self.holds_for_tags(condition, entry),
        };
        match (operator, left, right) {
            (Operator::And, left, right) => self.holds(left, entry) && self.holds(right, entry),
            (Operator::Or, left, right) => self.holds(left, entry) || self.holds(right, entry),
            (_, Expr::Reference { name, kind }, _)
                if *kind != Some(ReferenceKind::Tag) && self.is_field(name, entry) =>
            {
                true
            }
            (_, _, Expr::Literal(Literal::String(_) | Literal::Regex(_)) | Expr::Reference { .. }) => {
                self.holds_for_tags(condition, entry)
            }
            // InfluxDB ignores comparisons with numbers, except in counts.
            _ => self.listing.cardinality.is_none(),
        }
    }

    fn holds_for_tags(&self, condition: &Expr, entry: &DirectoryEntry) -> bool {
        of_tags(condition).holds(&Tags(entry), self.patterns) == Some(true)
    }

    fn is_field(&self, name: &str, entry: &DirectoryEntry) -> bool {
        self.fields.get(&*entry.sensor.measurement).is_some_and(|fields| fields.contains(name))
    }
}

/// The values of each tag of a measurement.
pub(super) type TagValues<'a> = BTreeMap<&'a str, BTreeSet<Cow<'a, str>>>;

/// A comparison with the values of a tag.
enum Test<'a> {
    Is(&'a str),
    Matches(&'a str),
}

/// Returns true if a condition of `SHOW MEASUREMENTS` holds. As in InfluxDB, `tag != 'x'` means that the measurement has
/// the tag, and no series with that value.
pub(super) fn holds_for_measurement(
    condition: &Expr,
    measurement: &str,
    values: &TagValues<'_>,
    patterns: &Patterns,
) -> Result<bool, StatementFailure> {
    let (operator, left, right) = match condition {
        Expr::Paren(inner) => return holds_for_measurement(inner, measurement, values, patterns),
        Expr::Binary { operator, left, right } => (*operator, &**left, &**right),
        _ => return Err(StatementFailure::NotOfTags),
    };
    let is_equality = matches!(operator, Operator::Eq | Operator::EqRegex);
    let side = |condition| holds_for_measurement(condition, measurement, values, patterns);
    let test = match (operator, left, right) {
        // Both sides are judged, because either may be refused.
        (Operator::And, left, right) => return Ok(side(left)? & side(right)?),
        (Operator::Or, left, right) => return Ok(side(left)? | side(right)?),
        (Operator::Eq | Operator::NotEq, _, Expr::Literal(Literal::String(wanted))) => Test::Is(wanted),
        (Operator::EqRegex | Operator::NotEqRegex, _, Expr::Literal(Literal::Regex(pattern))) => Test::Matches(pattern),
        (Operator::Eq | Operator::NotEq, ..) => {
            let operator = operator.as_str();
            return Err(StatementFailure::Refused(format!("right side of '{operator}' must be a tag value string")));
        }
        _ => return Err(StatementFailure::NotOfTags),
    };
    let Expr::Reference { name, .. } = left else { return Err(StatementFailure::NotOfTags) };
    if name == "_name" {
        let matches = match test {
            Test::Is(wanted) => measurement == wanted,
            Test::Matches(pattern) => patterns.matches(pattern, measurement),
        };
        return Ok(matches == is_equality);
    }
    let has_match = |values: &BTreeSet<Cow<'_, str>>| match test {
        Test::Is(wanted) => values.contains(wanted),
        Test::Matches(pattern) => values.iter().any(|value| patterns.matches(pattern, value)),
    };
    Ok(values.get(&**name).is_some_and(|values| has_match(values) == is_equality))
}
