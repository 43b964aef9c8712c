//! Prints statements that only read, so that tests see all that was parsed.

use std::fmt::{self, Display, Formatter, Write};

use super::super::ast::display::{Identifier, condition, list, optional, sources};
use super::super::{
    Cardinality, Expr, Fill, FromSource, KeyFilter, Listing, ListingKind, Literal, MeasurementName, Select,
    SelectColumn, Statement,
};

/// A statement that prints as text which parses to the same tree.
pub(super) struct Printed<'a>(pub(super) &'a Statement);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Statement::Select(select) => select.fmt(f),
            Statement::Explain { select, analyze } => {
                write!(f, "EXPLAIN {}{select}", if *analyze { "ANALYZE " } else { "" })
            }
            Statement::ShowDatabases => f.write_str("SHOW DATABASES"),
            Statement::ShowRetentionPolicies { database } => {
                f.write_str("SHOW RETENTION POLICIES")?;
                optional(f, " ON ", database.as_deref())
            }
            Statement::Show(listing) => listing.fmt(f),
            other => other.fmt(f),
        }
    }
}

impl Display for SelectColumn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)?;
        optional(f, " AS ", self.alias.as_deref())
    }
}

impl Display for FromSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FromSource::Measurement(measurement) => measurement.fmt(f),
            FromSource::Subquery(select) => write!(f, "({select})"),
        }
    }
}

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        list(f, &self.columns)?;
        if let Some(target) = &self.into {
            write!(f, " INTO {target}")?;
        }
        sources(f, &self.sources)?;
        condition(f, self.condition.as_ref())?;
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group_by)?;
        }
        match self.fill {
            Fill::Null => {}
            Fill::None => f.write_str(" fill(none)")?,
            Fill::Previous => f.write_str(" fill(previous)")?,
            Fill::Linear => f.write_str(" fill(linear)")?,
            Fill::Integer(value) => write!(f, " fill({value})")?,
            Fill::Float(value) => write!(f, " fill({})", Literal::Number(value))?,
        }
        if let Some(ascending) = self.ascending {
            write!(f, " ORDER BY time {}", if ascending { "ASC" } else { "DESC" })?;
        }
        limits(f, [self.limit, self.offset, self.slimit, self.soffset])?;
        if let Some(zone) = &self.zone {
            write!(f, " TZ({})", Literal::String(zone.clone()))?;
        }
        Ok(())
    }
}

fn limits(f: &mut Formatter<'_>, limits: [u64; 4]) -> fmt::Result {
    for (word, limit) in ["LIMIT", "OFFSET", "SLIMIT", "SOFFSET"].iter().zip(limits) {
        if limit > 0 {
            write!(f, " {word} {limit}")?;
        }
    }
    Ok(())
}

impl Display for KeyFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let regex = |pattern: &str| Expr::Literal(Literal::Regex(pattern.to_owned()));
        match self {
            KeyFilter::Is(key) => write!(f, "= {}", Identifier(key)),
            KeyFilter::IsNot(key) => write!(f, "!= {}", Identifier(key)),
            KeyFilter::Matches(pattern) => write!(f, "=~ {}", regex(pattern)),
            KeyFilter::MatchesNot(pattern) => write!(f, "!~ {}", regex(pattern)),
            KeyFilter::In(keys) => {
                f.write_str("IN (")?;
                list(f, keys.iter().map(|key| Identifier(key)))?;
                f.write_char(')')
            }
        }
    }
}

impl Display for Listing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = self.cardinality.is_some();
        f.write_str(match self.kind {
            ListingKind::Measurements if counts => "SHOW MEASUREMENT",
            ListingKind::Measurements => "SHOW MEASUREMENTS",
            ListingKind::Series => "SHOW SERIES",
            ListingKind::TagKeys if counts => "SHOW TAG KEY",
            ListingKind::TagKeys => "SHOW TAG KEYS",
            ListingKind::TagValues => "SHOW TAG VALUES",
            ListingKind::FieldKeys if counts => "SHOW FIELD KEY",
            ListingKind::FieldKeys => "SHOW FIELD KEYS",
        })?;
        f.write_str(match self.cardinality {
            None => "",
            Some(Cardinality::Estimated) => " CARDINALITY",
            Some(Cardinality::Exact) => " EXACT CARDINALITY",
        })?;
        optional(f, " ON ", self.database.as_deref())?;
        optional(f, ".", self.policy.as_deref())?;
        sources(f, &self.sources)?;
        if let Some(measurement) = &self.matching {
            let is_regex = matches!(measurement.name, MeasurementName::Regex(_));
            write!(f, " WITH MEASUREMENT {} {measurement}", if is_regex { "=~" } else { "=" })?;
        }
        if let Some(keys) = &self.keys {
            write!(f, " WITH KEY {keys}")?;
        }
        condition(f, self.condition.as_ref())?;
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group_by)?;
        }
        limits(f, [self.limit, self.offset, self.slimit, self.soffset])
    }
}
