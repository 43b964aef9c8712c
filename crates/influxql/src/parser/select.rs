//! Parses SELECT and the clauses that it shares with other statements.

use super::super::ast::{
    Expr, Fill, FromSource, Literal, Measurement, MeasurementName, Operator, Select, SelectColumn,
};
use super::super::error::ParseError;
use super::super::token::TokenKind;
use super::{MAX_DIMENSIONS, Parsed, Parser, unexpected};

impl Parser<'_, '_> {
    /// Parses a SELECT after its first word.
    pub(super) fn select(&mut self) -> Parsed<Select> {
        let columns = self.columns()?;
        let into = self.target()?;
        self.expect(TokenKind::From)?;
        Ok(Select {
            columns,
            into,
            sources: self.list(Self::source)?,
            condition: self.condition()?,
            group_by: self.group_by()?,
            fill: self.fill()?,
            ascending: self.order()?,
            limit: self.count(TokenKind::Limit)?,
            offset: self.count(TokenKind::Offset)?,
            slimit: self.count(TokenKind::SLimit)?,
            soffset: self.count(TokenKind::SOffset)?,
            zone: self.zone()?,
        })
    }

    fn columns(&mut self) -> Parsed<Vec<SelectColumn>> {
        let mut columns = Vec::new();
        loop {
            columns.push(self.column()?);
            if !self.accept_raw(TokenKind::Comma) {
                return Ok(columns);
            }
        }
    }

    fn column(&mut self) -> Parsed<SelectColumn> {
        let expr = if let Some(pattern) = self.regex()? {
            Expr::Literal(Literal::Regex(pattern))
        } else {
            let first = self.next();
            let position = first.position;
            self.put_back(first);
            let expr = self.expression()?;
            if let Some(operator) = last_comparison(&expr) {
                let operator = operator.as_str();
                return Err(ParseError(format!(
                    "invalid operator {operator} in SELECT clause at {position}; operator is intended for WHERE clause"
                )));
            }
            expr
        };
        let alias = if self.accept(TokenKind::As) { Some(self.identifier()?) } else { None };
        self.accept_raw(TokenKind::Whitespace);
        Ok(SelectColumn { expr, alias })
    }

    fn target(&mut self) -> Parsed<Option<Measurement>> {
        if !self.accept(TokenKind::Into) {
            return Ok(None);
        }
        let mut names = self.segments(None)?;
        let name = if names.len() < 3 && self.lexer.peek_char() == Some(':') {
            self.expect(TokenKind::Colon)?;
            self.expect(TokenKind::Measurement)?;
            MeasurementName::OfSource
        } else {
            MeasurementName::Exact(names.pop().unwrap_or_default())
        };
        Ok(Some(measurement(names, name)))
    }

    fn source(&mut self) -> Parsed<FromSource> {
        if let Some(pattern) = self.regex()? {
            return Ok(FromSource::Measurement(measurement(Vec::new(), MeasurementName::Regex(pattern))));
        }
        if self.accept(TokenKind::LeftParen) {
            self.expect(TokenKind::Select)?;
            let select = self.descend(Self::select)?;
            self.expect(TokenKind::RightParen)?;
            return Ok(FromSource::Subquery(Box::new(select)));
        }
        self.named_measurement().map(FromSource::Measurement)
    }

    /// `FROM …` of a statement other than SELECT; empty if it is absent.
    pub(super) fn optional_sources(&mut self) -> Parsed<Vec<Measurement>> {
        if self.accept(TokenKind::From) { self.list(Self::measurement) } else { Ok(Vec::new()) }
    }

    /// Parses a measurement by name or regex, optionally with database and policy.
    pub(super) fn measurement(&mut self) -> Parsed<Measurement> {
        if let Some(pattern) = self.regex()? {
            return Ok(measurement(Vec::new(), MeasurementName::Regex(pattern)));
        }
        self.named_measurement()
    }

    /// Names, or names and a regex after the last dot.
    fn named_measurement(&mut self) -> Parsed<Measurement> {
        let mut names = self.segments(None)?;
        if names.len() < 3
            && let Some(pattern) = self.regex()?
        {
            return Ok(measurement(names, MeasurementName::Regex(pattern)));
        }
        let name = MeasurementName::Exact(names.pop().unwrap_or_default());
        Ok(measurement(names, name))
    }

    /// `WHERE …`
    pub(super) fn condition(&mut self) -> Parsed<Option<Expr>> {
        if self.accept(TokenKind::Where) { self.expression().map(Some) } else { Ok(None) }
    }

    /// `GROUP BY …`
    pub(super) fn group_by(&mut self) -> Parsed<Vec<Expr>> {
        let mut dimensions = Vec::new();
        if !self.accept(TokenKind::Group) {
            return Ok(dimensions);
        }
        self.expect(TokenKind::By)?;
        loop {
            dimensions.push(if let Some(pattern) = self.regex()? {
                Expr::Literal(Literal::Regex(pattern))
            } else {
                let dimension = self.expression()?;
                self.accept_raw(TokenKind::Whitespace);
                dimension
            });
            if !self.accept_raw(TokenKind::Comma) {
                return Ok(dimensions);
            }
            if dimensions.len() == MAX_DIMENSIONS {
                return Err(ParseError::limit("the number of dimensions of one statement", MAX_DIMENSIONS));
            }
        }
    }

    /// Parses a clause that is written like a call of `name`; `None` if it is absent.
    fn clause_call(&mut self, name: &str) -> Parsed<Option<Expr>> {
        let lexeme = self.next();
        let is_present = lexeme.token == TokenKind::Ident && lexeme.text.eq_ignore_ascii_case(name);
        self.put_back(lexeme);
        if !is_present {
            return Ok(None);
        }
        self.expression().map(Some)
    }

    fn fill(&mut self) -> Parsed<Fill> {
        let Some(call) = self.clause_call("fill")? else { return Ok(Fill::Null) };
        let problem = match arguments(&call) {
            None => "fill must be a function call",
            Some([arg]) => match fill_from_argument(arg) {
                Some(fill) => return Ok(fill),
                None => "expected number argument in fill()",
            },
            Some(_) => "fill requires an argument, e.g.: 0, null, none, previous, linear",
        };
        Err(ParseError(problem.to_owned()))
    }

    fn zone(&mut self) -> Parsed<Option<String>> {
        let Some(call) = self.clause_call("tz")? else { return Ok(None) };
        let problem = match arguments(&call) {
            None => "tz must be a function call",
            Some([Expr::Literal(Literal::String(name))]) if (self.options.is_known_zone)(name) => {
                return Ok(Some(name.clone()));
            }
            Some([Expr::Literal(Literal::String(name))]) => {
                return Err(ParseError(format!("unable to find time zone {name}")));
            }
            Some([_]) => "expected string argument in tz()",
            Some(_) => "tz requires exactly one argument",
        };
        Err(ParseError(problem.to_owned()))
    }

    /// `ORDER BY …`: true if the earliest rows come first. InfluxDB allows time only.
    pub(super) fn order(&mut self) -> Parsed<Option<bool>> {
        if !self.accept(TokenKind::Order) {
            return Ok(None);
        }
        self.expect(TokenKind::By)?;
        let first = self.next();
        let ascending = match first.token {
            TokenKind::Asc | TokenKind::Desc => first.token == TokenKind::Asc,
            TokenKind::Ident => {
                let ascending = self.direction();
                if first.text != "time" {
                    return Err(unsupported_order());
                }
                ascending
            }
            _ => return Err(unexpected(&first, &["identifier", "ASC", "DESC"])),
        };
        let mut has_others = false;
        while self.accept(TokenKind::Comma) {
            self.identifier()?;
            self.direction();
            has_others = true;
        }
        if has_others { Err(unsupported_order()) } else { Ok(Some(ascending)) }
    }

    fn direction(&mut self) -> bool {
        self.accept(TokenKind::Asc) || !self.accept(TokenKind::Desc)
    }

    /// `word n`; 0 if it is absent.
    pub(super) fn count(&mut self, word: TokenKind) -> Parsed<u64> {
        if !self.accept(word) {
            return Ok(0);
        }
        let lexeme = self.next();
        if lexeme.token != TokenKind::Integer {
            return Err(unexpected(&lexeme, &["integer"]));
        }
        // InfluxDB clamps numbers to 63 bits. Only a parameter can have a sign.
        if lexeme.text.starts_with('-') {
            return Err(super::invalid(&lexeme, format!("{} must be >= 0", word.as_str())));
        }
        Ok(lexeme.text.parse::<i64>().unwrap_or(i64::MAX).unsigned_abs())
    }
}

fn measurement(qualifiers: Vec<String>, name: MeasurementName) -> Measurement {
    let mut qualifiers = qualifiers.into_iter().rev().map(|qualifier| Some(qualifier).filter(|name| !name.is_empty()));
    let policy = qualifiers.next().flatten();
    Measurement { database: qualifiers.next().flatten(), policy, name }
}

/// The arguments of a call; `None` if the expression is not a call.
fn arguments(call: &Expr) -> Option<&[Expr]> {
    match call {
        Expr::Call { args, .. } => Some(args),
        _ => None,
    }
}

fn fill_from_argument(arg: &Expr) -> Option<Fill> {
    match arg {
        Expr::Literal(Literal::Integer(value)) => Some(Fill::Integer(*value)),
        Expr::Literal(Literal::Number(value)) => Some(Fill::Float(*value)),
        Expr::Reference { name, kind: None } => match name.as_str() {
            "null" => Some(Fill::Null),
            "none" => Some(Fill::None),
            "previous" => Some(Fill::Previous),
            "linear" => Some(Fill::Linear),
            _ => None,
        },
        _ => None,
    }
}

fn unsupported_order() -> ParseError {
    ParseError("only ORDER BY time supported at this time".to_owned())
}

/// The last operator with a boolean result that is not nested in another one.
fn last_comparison(expr: &Expr) -> Option<Operator> {
    match expr {
        Expr::Binary { operator, .. } if operator.is_boolean() => Some(*operator),
        Expr::Binary { left, right, .. } => last_comparison(right).or_else(|| last_comparison(left)),
        Expr::Paren(inner) => last_comparison(inner),
        Expr::Call { args, .. } => args.iter().rev().find_map(last_comparison),
        _ => None,
    }
}
