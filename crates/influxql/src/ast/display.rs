//! Prints statements and expressions.

use std::fmt::{self, Display, Formatter, Write};

use super::super::civil;
use super::super::duration;
use super::super::lexer::needs_quotes;
use super::{
    CardinalityOf, Expr, Fill, FromSource, KeyFilter, Listing, Literal, Measurement, MeasurementName, NewPolicy,
    Operator, OrderBy, PolicyStatement, Select, SelectColumn, Statement, WildcardKind,
};

/// An identifier, quoted if necessary.
pub(super) struct Identifier<'a>(pub(super) &'a str);

impl Display for Identifier<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() || needs_quotes(self.0) { quote(f, self.0, '"') } else { f.write_str(self.0) }
    }
}

fn quote(f: &mut Formatter<'_>, text: &str, quote: char) -> fmt::Result {
    f.write_char(quote)?;
    for found in text.chars() {
        match found {
            '\n' => f.write_str("\\n")?,
            '\\' => f.write_str("\\\\")?,
            _ if found == quote => write!(f, "\\{found}")?,
            _ => f.write_char(found)?,
        }
    }
    f.write_char(quote)
}

fn regex(f: &mut Formatter<'_>, pattern: &str) -> fmt::Result {
    write!(f, "/{}/", pattern.replace('/', "\\/"))
}

/// Writes items separated by commas.
fn list<T: Display>(f: &mut Formatter<'_>, items: impl IntoIterator<Item = T>) -> fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Integer(value) => write!(f, "{value}"),
            Literal::Unsigned(value) => write!(f, "{value}"),
            Literal::Number(value) => {
                // InfluxDB always prints three decimal places. All are printed if three would change the number.
                let short = format!("{value:.3}");
                if short.parse() == Ok(*value) { f.write_str(&short) } else { write!(f, "{value}") }
            }
            Literal::String(value) => quote(f, value, '\''),
            Literal::Boolean(value) => write!(f, "{value}"),
            Literal::Duration(value) => f.write_str(&duration::format(*value)),
            Literal::Regex(pattern) => regex(f, pattern),
            Literal::Time(value) => write!(f, "'{}'", civil::rfc3339(*value)),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Reference { name, kind } => {
                Identifier(name).fmt(f)?;
                kind.map_or(Ok(()), |kind| write!(f, "::{}", kind.as_str()))
            }
            Expr::Literal(literal) => literal.fmt(f),
            Expr::Binary { operator, left, right } => {
                left.fmt(f)?;
                write!(f, " {} ", operator.as_str())?;
                match sign(*operator, right) {
                    Some((sign, operand)) => write!(f, "{sign}{operand}"),
                    None => right.fmt(f),
                }
            }
            Expr::Paren(inner) => {
                f.write_char('(')?;
                inner.fmt(f)?;
                f.write_char(')')
            }
            Expr::Call { name, args } => {
                // `distinct` is a keyword, but as a function name it is not quoted.
                if name == "distinct" { f.write_str(name) } else { Identifier(name).fmt(f) }?;
                f.write_char('(')?;
                list(f, args)?;
                f.write_char(')')
            }
            Expr::Wildcard(WildcardKind::All) => f.write_char('*'),
            Expr::Wildcard(WildcardKind::Field) => f.write_str("*::field"),
            Expr::Wildcard(WildcardKind::Tag) => f.write_str("*::tag"),
            Expr::Distinct(name) => write!(f, "DISTINCT {}", Identifier(name)),
        }
    }
}

/// The sign and the operand of a right operand that was written with a sign. The parser turns `-a` into `-1 * a`; after
/// an operator that binds at least as tightly, only the form with the sign parses to the same tree.
fn sign(before: Operator, right: &Expr) -> Option<(char, &Expr)> {
    let Expr::Binary { operator, left, right } = right else { return None };
    match **left {
        Expr::Literal(Literal::Integer(factor @ (1 | -1))) if before.precedence() >= operator.precedence() => {
            Some((if factor == 1 { '+' } else { '-' }, right))
        }
        _ => None,
    }
}

impl Display for SelectColumn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)?;
        optional(f, " AS ", self.alias.as_deref())
    }
}

impl Display for Measurement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(database) = &self.database {
            write!(f, "{}.", Identifier(database))?;
        }
        if let Some(policy) = &self.policy {
            Identifier(policy).fmt(f)?;
        }
        if self.database.is_some() || self.policy.is_some() {
            f.write_char('.')?;
        }
        match &self.name {
            MeasurementName::Exact(name) => Identifier(name).fmt(f),
            MeasurementName::Regex(pattern) => regex(f, pattern),
            MeasurementName::OfSource => f.write_str(":MEASUREMENT"),
        }
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

impl Display for OrderBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(f, "{} ", Identifier(field))?;
        }
        f.write_str(if self.ascending { "ASC" } else { "DESC" })
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
        group_by(f, &self.group_by)?;
        match self.fill {
            Fill::Null => {}
            Fill::None => f.write_str(" fill(none)")?,
            Fill::Previous => f.write_str(" fill(previous)")?,
            Fill::Linear => f.write_str(" fill(linear)")?,
            Fill::Integer(value) => write!(f, " fill({value})")?,
            Fill::Float(value) => write!(f, " fill({})", Literal::Number(value))?,
        }
        if let Some(order) = &self.order {
            write!(f, " ORDER BY {order}")?;
        }
        limits(f, [self.limit, self.offset, self.slimit, self.soffset])?;
        if let Some(zone) = &self.zone {
            f.write_str(" TZ(")?;
            quote(f, zone, '\'')?;
            f.write_char(')')?;
        }
        Ok(())
    }
}

fn optional(f: &mut Formatter<'_>, before: &str, name: Option<&str>) -> fmt::Result {
    name.map_or(Ok(()), |name| write!(f, "{before}{}", Identifier(name)))
}

fn sources(f: &mut Formatter<'_>, sources: &[FromSource]) -> fmt::Result {
    if sources.is_empty() {
        return Ok(());
    }
    f.write_str(" FROM ")?;
    list(f, sources)
}

fn condition(f: &mut Formatter<'_>, condition: Option<&Expr>) -> fmt::Result {
    condition.map_or(Ok(()), |condition| write!(f, " WHERE {condition}"))
}

fn group_by(f: &mut Formatter<'_>, dimensions: &[Expr]) -> fmt::Result {
    if dimensions.is_empty() {
        return Ok(());
    }
    f.write_str(" GROUP BY ")?;
    list(f, dimensions)
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
        match self {
            KeyFilter::Is(key) => write!(f, "= {}", Identifier(key)),
            KeyFilter::IsNot(key) => write!(f, "!= {}", Identifier(key)),
            KeyFilter::Matches(pattern) => f.write_str("=~ ").and_then(|()| regex(f, pattern)),
            KeyFilter::MatchesNot(pattern) => f.write_str("!~ ").and_then(|()| regex(f, pattern)),
            KeyFilter::In(keys) => {
                f.write_str("IN (")?;
                list(f, keys.iter().map(|key| Identifier(key)))?;
                f.write_char(')')
            }
        }
    }
}

impl Display for CardinalityOf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CardinalityOf::Measurements => "MEASUREMENT",
            CardinalityOf::Series => "SERIES",
            CardinalityOf::TagKeys => "TAG KEY",
            CardinalityOf::TagValues => "TAG VALUES",
            CardinalityOf::FieldKeys => "FIELD KEY",
        })
    }
}

impl NewPolicy {
    fn write_terms(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(nanoseconds) = self.duration {
            write!(f, " DURATION {}", duration::format(nanoseconds))?;
        }
        if let Some(replication) = self.replication {
            write!(f, " REPLICATION {replication}")?;
        }
        if let Some(nanoseconds) = self.shard_duration {
            write!(f, " SHARD DURATION {}", duration::format(nanoseconds))?;
        }
        Ok(())
    }
}

impl Display for NewPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(" WITH")?;
        self.write_terms(f)?;
        optional(f, " NAME ", self.name.as_deref())
    }
}

impl Display for PolicyStatement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.policy.name.as_deref().unwrap_or_default();
        write!(f, "RETENTION POLICY {} ON {}", Identifier(name), Identifier(&self.database))?;
        self.policy.write_terms(f)?;
        f.write_str(if self.default { " DEFAULT" } else { "" })
    }
}

impl Listing {
    /// Writes the clauses. `between` follows the sources: the clause that only this statement has.
    fn write(&self, f: &mut Formatter<'_>, between: Option<String>, dimensions: &[Expr]) -> fmt::Result {
        optional(f, " ON ", self.database.as_deref())?;
        optional(f, ".", self.policy.as_deref())?;
        sources(f, &self.sources)?;
        f.write_str(&between.unwrap_or_default())?;
        condition(f, self.condition.as_ref())?;
        group_by(f, dimensions)?;
        if let Some(order) = &self.order {
            write!(f, " ORDER BY {order}")?;
        }
        limits(f, [self.limit, self.offset, self.slimit, self.soffset])
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Select(select) => select.fmt(f),
            Statement::ShowDatabases => f.write_str("SHOW DATABASES"),
            Statement::ShowRetentionPolicies { database } => {
                f.write_str("SHOW RETENTION POLICIES")?;
                optional(f, " ON ", database.as_deref())
            }
            Statement::ShowMeasurements { matching, listing } => {
                f.write_str("SHOW MEASUREMENTS")?;
                let matching = matching.as_ref().map(|measurement| {
                    let is_regex = matches!(measurement.name, MeasurementName::Regex(_));
                    format!(" WITH MEASUREMENT {} {measurement}", if is_regex { "=~" } else { "=" })
                });
                listing.write(f, matching, &[])
            }
            Statement::ShowSeries(listing) => {
                f.write_str("SHOW SERIES")?;
                listing.write(f, None, &[])
            }
            Statement::ShowTagKeys { keys, listing } => {
                f.write_str("SHOW TAG KEYS")?;
                listing.write(f, with_key(keys.as_ref()), &[])
            }
            Statement::ShowTagValues { keys, listing } => {
                f.write_str("SHOW TAG VALUES")?;
                listing.write(f, with_key(Some(keys)), &[])
            }
            Statement::ShowFieldKeys(listing) => {
                f.write_str("SHOW FIELD KEYS")?;
                listing.write(f, None, &[])
            }
            Statement::ShowCardinality { of, exact, keys, listing, group_by } => {
                write!(f, "SHOW {of} {}CARDINALITY", if *exact { "EXACT " } else { "" })?;
                listing.write(f, with_key(keys.as_ref()), group_by)
            }
            Statement::CreateDatabase { name, policy } => {
                write!(f, "CREATE DATABASE {}", Identifier(name))?;
                policy.as_ref().map_or(Ok(()), |policy| policy.fmt(f))
            }
            Statement::CreatePolicy(created) => write!(f, "CREATE {created}"),
            Statement::AlterPolicy(altered) => write!(f, "ALTER {altered}"),
            Statement::DropPolicy { name, database } => {
                write!(f, "DROP RETENTION POLICY {} ON {}", Identifier(name), Identifier(database))
            }
            Statement::DropDatabase { name } => write!(f, "DROP DATABASE {}", Identifier(name)),
            Statement::DropMeasurement { name } => write!(f, "DROP MEASUREMENT {}", Identifier(name)),
            Statement::DropSeries { sources: from, condition: which } => {
                f.write_str("DROP SERIES")?;
                sources(f, from)?;
                condition(f, which.as_ref())
            }
            Statement::Delete { sources: from, condition: which } => {
                f.write_str("DELETE")?;
                sources(f, from)?;
                condition(f, which.as_ref())
            }
            Statement::Unsupported { what } => f.write_str(what),
        }
    }
}

fn with_key(keys: Option<&KeyFilter>) -> Option<String> {
    keys.map(|keys| format!(" WITH KEY {keys}"))
}
