//! The regular expressions and databases that a statement names.

use super::{Expr, FromSource, KeyFilter, Listing, Literal, Measurement, MeasurementName, Select, Statement};

impl Statement {
    /// The texts of its regular expressions, in any order; duplicates are possible.
    #[must_use]
    pub fn patterns(&self) -> Vec<&str> {
        let mut found = Vec::new();
        match self {
            Self::Select(select) => of_select(select, &mut found),
            Self::ShowMeasurements { matching, listing } => {
                matching.iter().for_each(|measurement| of_measurement(measurement, &mut found));
                of_listing(listing, &mut found);
            }
            Self::ShowSeries(listing) | Self::ShowFieldKeys(listing) => of_listing(listing, &mut found),
            Self::ShowTagValues { keys, listing } => {
                of_keys(keys, &mut found);
                of_listing(listing, &mut found);
            }
            Self::ShowTagKeys { keys, listing } | Self::ShowCardinality { keys, listing, .. } => {
                keys.iter().for_each(|keys| of_keys(keys, &mut found));
                of_listing(listing, &mut found);
            }
            Self::DropSeries { sources, condition } | Self::Delete { sources, condition } => {
                of_sources(sources, &mut found);
                condition.iter().for_each(|condition| of_expr(condition, &mut found));
            }
            Self::ShowDatabases
            | Self::ShowRetentionPolicies { .. }
            | Self::CreateDatabase { .. }
            | Self::CreatePolicy(_)
            | Self::AlterPolicy(_)
            | Self::DropPolicy { .. }
            | Self::DropDatabase { .. }
            | Self::DropMeasurement { .. }
            | Self::Unsupported { .. } => {}
        }
        found
    }
}

impl Statement {
    /// Passes the databases that the statement reads to `take`: one per measurement of a SELECT, or that of a listing with the
    /// policy of each source; `None` means the request's. So with their policies.
    pub fn each_database(&self, take: &mut impl FnMut(Option<&str>, Option<&str>)) {
        match self {
            Self::Select(select) => databases_of(select, take),
            Self::ShowRetentionPolicies { database } => take(database.as_deref(), Some("")),
            Self::ShowMeasurements { listing, .. }
            | Self::ShowSeries(listing)
            | Self::ShowFieldKeys(listing)
            | Self::ShowTagValues { listing, .. }
            | Self::ShowTagKeys { listing, .. }
            | Self::ShowCardinality { listing, .. } => {
                listing.policies().into_iter().for_each(|policy| take(listing.database.as_deref(), policy));
            }
            _ => {}
        }
    }
}

impl Listing {
    /// The policy of each source, in their order: that which it names, else the listing's. The listing's if there are no sources.
    #[must_use]
    pub fn policies(&self) -> Vec<Option<&str>> {
        let own = self.policy.as_deref();
        if self.sources.is_empty() {
            return vec![own];
        }
        let named = self.sources.iter().map(|source| match source {
            FromSource::Measurement(measurement) => measurement.policy.as_deref(),
            FromSource::Subquery(_) => None,
        });
        named.map(|policy| policy.or(own)).collect()
    }
}

fn databases_of(select: &Select, take: &mut impl FnMut(Option<&str>, Option<&str>)) {
    for source in &select.sources {
        match source {
            FromSource::Measurement(measurement) => {
                take(measurement.database.as_deref(), measurement.policy.as_deref())
            }
            FromSource::Subquery(inner) => databases_of(inner, take),
        }
    }
}

fn of_select<'a>(select: &'a Select, found: &mut Vec<&'a str>) {
    let columns = select.columns.iter().map(|column| &column.expr);
    columns.chain(&select.group_by).chain(&select.condition).for_each(|expr| of_expr(expr, found));
    of_sources(&select.sources, found);
}

fn of_listing<'a>(listing: &'a Listing, found: &mut Vec<&'a str>) {
    of_sources(&listing.sources, found);
    listing.condition.iter().for_each(|condition| of_expr(condition, found));
}

fn of_sources<'a>(sources: &'a [FromSource], found: &mut Vec<&'a str>) {
    for source in sources {
        match source {
            FromSource::Measurement(measurement) => of_measurement(measurement, found),
            FromSource::Subquery(select) => of_select(select, found),
        }
    }
}

fn of_measurement<'a>(measurement: &'a Measurement, found: &mut Vec<&'a str>) {
    if let MeasurementName::Regex(pattern) = &measurement.name {
        found.push(pattern);
    }
}

fn of_keys<'a>(keys: &'a KeyFilter, found: &mut Vec<&'a str>) {
    if let KeyFilter::Matches(pattern) | KeyFilter::MatchesNot(pattern) = keys {
        found.push(pattern);
    }
}

fn of_expr<'a>(expr: &'a Expr, found: &mut Vec<&'a str>) {
    match expr {
        Expr::Literal(Literal::Regex(pattern)) => found.push(pattern),
        Expr::Binary { left, right, .. } => {
            of_expr(left, found);
            of_expr(right, found);
        }
        Expr::Paren(inner) => of_expr(inner, found),
        Expr::Call { args, .. } => args.iter().for_each(|arg| of_expr(arg, found)),
        _ => {}
    }
}
