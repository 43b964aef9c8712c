//! The regular expressions and databases in a statement.

use super::{Expr, FromSource, KeyFilter, Listing, Literal, Measurement, MeasurementName, Select, Statement};

impl Statement {
    /// The patterns of its regular expressions, in any order and with duplicates.
    #[must_use]
    pub fn patterns(&self) -> Vec<&str> {
        let mut found = Vec::new();
        match self {
            Self::Select(select) | Self::Explain { select, .. } => select_patterns(select, &mut found),
            Self::Show(Listing { matching, sources, keys, condition, .. }) => {
                found.extend(matching.iter().chain(sources).filter_map(measurement_pattern));
                if let Some(KeyFilter::Matches(pattern) | KeyFilter::MatchesNot(pattern)) = keys {
                    found.push(pattern);
                }
                condition.iter().for_each(|condition| expr_patterns(condition, &mut found));
            }
            Self::DropSeries { sources, condition } | Self::Delete { sources, condition } => {
                found.extend(sources.iter().filter_map(measurement_pattern));
                condition.iter().for_each(|condition| expr_patterns(condition, &mut found));
            }
            _ => {}
        }
        found
    }

    /// Calls `take` with each database and policy that the statement reads: those of each measurement of a SELECT, or
    /// the database of a listing with the policy of each source. `None` stands for the request's database or policy.
    pub fn each_database(&self, take: &mut impl FnMut(Option<&str>, Option<&str>)) {
        match self {
            Self::Select(select) | Self::Explain { select, .. } => each_database_of_select(select, take),
            Self::ShowRetentionPolicies { database } => take(database.as_deref(), Some("")),
            Self::Show(listing) => {
                listing.policies().into_iter().for_each(|policy| take(listing.database.as_deref(), policy));
            }
            _ => {}
        }
    }
}

impl Listing {
    /// The policy of each source, in order: its own, or else the listing's. Without sources, only the listing's policy.
    #[must_use]
    pub fn policies(&self) -> Vec<Option<&str>> {
        let own = self.policy.as_deref();
        if self.sources.is_empty() {
            return vec![own];
        }
        self.sources.iter().map(|source| source.policy.as_deref().or(own)).collect()
    }
}

fn each_database_of_select(select: &Select, take: &mut impl FnMut(Option<&str>, Option<&str>)) {
    for source in &select.sources {
        match source {
            FromSource::Measurement(measurement) => {
                take(measurement.database.as_deref(), measurement.policy.as_deref())
            }
            FromSource::Subquery(inner) => each_database_of_select(inner, take),
        }
    }
}

fn select_patterns<'a>(select: &'a Select, found: &mut Vec<&'a str>) {
    let columns = select.columns.iter().map(|column| &column.expr);
    columns.chain(&select.group_by).chain(&select.condition).for_each(|expr| expr_patterns(expr, found));
    for source in &select.sources {
        match source {
            FromSource::Measurement(measurement) => found.extend(measurement_pattern(measurement)),
            FromSource::Subquery(inner) => select_patterns(inner, found),
        }
    }
}

fn measurement_pattern(measurement: &Measurement) -> Option<&str> {
    if let MeasurementName::Regex(pattern) = &measurement.name { Some(pattern) } else { None }
}

fn expr_patterns<'a>(expr: &'a Expr, found: &mut Vec<&'a str>) {
    expr.each(&mut |part| {
        if let Expr::Literal(Literal::Regex(pattern)) = part {
            found.push(pattern);
        }
    });
}
