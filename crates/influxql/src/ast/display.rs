//! Formats expressions, and statements that change data.

use std::fmt::{self, Display, Formatter, Write};

use super::super::civil;
use super::super::duration;
use super::super::lexer::needs_quotes;
use super::{
    Expr, Literal, Measurement, MeasurementName, NewPolicy, Operator, PolicyStatement, Statement, WildcardKind,
};

/// An identifier, quoted if necessary.
pub(crate) struct Identifier<'a>(pub(crate) &'a str);

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
pub(crate) fn list<T: Display>(f: &mut Formatter<'_>, items: impl IntoIterator<Item = T>) -> fmt::Result {
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
                // InfluxDB always prints three decimal places. Print all of them if three would change the number.
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

/// The sign and the operand of a right operand that was written with a sign. The parser turns `-a` into `-1 * a`. After
/// an operator that binds at least as tightly, only the form with the sign parses to the same tree.
fn sign(outer: Operator, right: &Expr) -> Option<(char, &Expr)> {
    let Expr::Binary { operator, left, right } = right else { return None };
    match **left {
        Expr::Literal(Literal::Integer(factor @ (1 | -1))) if outer.precedence() >= operator.precedence() => {
            Some((if factor == 1 { '+' } else { '-' }, right))
        }
        _ => None,
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

pub(crate) fn optional(f: &mut Formatter<'_>, prefix: &str, name: Option<&str>) -> fmt::Result {
    name.map_or(Ok(()), |name| write!(f, "{prefix}{}", Identifier(name)))
}

pub(crate) fn sources(f: &mut Formatter<'_>, sources: &[impl Display]) -> fmt::Result {
    if sources.is_empty() {
        return Ok(());
    }
    f.write_str(" FROM ")?;
    list(f, sources)
}

pub(crate) fn condition(f: &mut Formatter<'_>, condition: Option<&Expr>) -> fmt::Result {
    condition.map_or(Ok(()), |condition| write!(f, " WHERE {condition}"))
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
        f.write_str(if self.is_default { " DEFAULT" } else { "" })
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Select(_) => f.write_str("SELECT"),
            Statement::ShowDatabases | Statement::ShowRetentionPolicies { .. } | Statement::Show(_) => {
                f.write_str("SHOW")
            }
            Statement::ShowQueries => f.write_str("SHOW QUERIES"),
            Statement::ShowUsers => f.write_str("SHOW USERS"),
            Statement::ShowStats { module } | Statement::ShowDiagnostics { module } => {
                let is_stats = matches!(self, Statement::ShowStats { .. });
                f.write_str(if is_stats { "SHOW STATS" } else { "SHOW DIAGNOSTICS" })?;
                module.clone().map_or(Ok(()), |module| write!(f, " FOR {}", Literal::String(module)))
            }
            Statement::Explain { .. } => f.write_str("EXPLAIN"),
            Statement::KillQuery { id } => write!(f, "KILL QUERY {id}"),
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
