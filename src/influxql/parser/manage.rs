//! Statements that change what there is, and those that go no further than their name.

use super::super::ast::{NewPolicy, Source, Statement};
use super::super::error::ParseError;
use super::super::token::{Lexeme, Token};
use super::{Parsed, Parser, START, invalid, unexpected};

impl Parser<'_, '_> {
    pub(super) fn create(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            Token::Continuous => self.unsupported("CREATE CONTINUOUS QUERY", &[Token::Query]),
            Token::Database => self.create_database(),
            Token::User => self.unsupported("CREATE USER", &[]),
            Token::Retention => self.unsupported("CREATE RETENTION POLICY", &[Token::Policy]),
            Token::Subscription => self.unsupported("CREATE SUBSCRIPTION", &[]),
            _ => Err(unexpected(&lexeme, &["CONTINUOUS", "DATABASE", "USER", "RETENTION", "SUBSCRIPTION"])),
        }
    }

    pub(super) fn drop_statement(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            Token::Continuous => self.unsupported("DROP CONTINUOUS QUERY", &[Token::Query]),
            Token::Database => Ok(Statement::DropDatabase { name: self.identifier()? }),
            Token::Measurement => Ok(Statement::DropMeasurement { name: self.identifier()? }),
            Token::Retention => self.unsupported("DROP RETENTION POLICY", &[Token::Policy]),
            Token::Series => self.drop_series(),
            Token::Shard => self.unsupported("DROP SHARD", &[]),
            Token::Subscription => self.unsupported("DROP SUBSCRIPTION", &[]),
            Token::User => self.unsupported("DROP USER", &[]),
            _ => Err(unexpected(
                &lexeme,
                &["CONTINUOUS", "DATABASE", "MEASUREMENT", "RETENTION", "SERIES", "SHARD", "SUBSCRIPTION", "USER"],
            )),
        }
    }

    /// Passes over the rest of a statement that begins with `words`. Its text is not kept: it may be a password.
    pub(super) fn unsupported(&mut self, what: &'static str, words: &[Token]) -> Parsed<Statement> {
        words.iter().try_for_each(|&token| self.expect(token))?;
        loop {
            let lexeme = self.next();
            match lexeme.token {
                Token::Semicolon | Token::Eof => {
                    self.put_back(lexeme);
                    return Ok(Statement::Unsupported { what });
                }
                Token::Illegal | Token::BadString | Token::BadEscape => return Err(unexpected(&lexeme, &[";"])),
                _ => {}
            }
        }
    }

    pub(super) fn explain(&mut self) -> Parsed<Statement> {
        self.accept(Token::Analyze);
        self.expect(Token::Select)?;
        self.select()?;
        Ok(Statement::Unsupported { what: "EXPLAIN" })
    }

    fn create_database(&mut self) -> Parsed<Statement> {
        let name = self.identifier()?;
        if !self.accept(Token::With) {
            return Ok(Statement::CreateDatabase { name, policy: None });
        }
        let first = self.next();
        if !matches!(first.token, Token::Duration | Token::Name | Token::Replication | Token::Shard) {
            return Err(unexpected(&first, &["DURATION", "NAME", "REPLICATION", "SHARD"]));
        }
        self.put_back(first);
        let mut policy = NewPolicy::default();
        if self.accept(Token::Duration) {
            policy.duration = Some(self.duration()?);
        }
        if self.accept(Token::Replication) {
            policy.replication = Some(self.replication()?);
        }
        if self.accept(Token::Shard) {
            self.expect(Token::Duration)?;
            policy.shard_duration = Some(self.duration()?);
        }
        if self.accept(Token::Name) {
            policy.name = Some(self.identifier()?);
        }
        Ok(Statement::CreateDatabase { name, policy: Some(policy) })
    }

    fn replication(&mut self) -> Parsed<u32> {
        let most = i32::MAX;
        let lexeme = self.next();
        if lexeme.token != Token::Integer {
            return Err(unexpected(&lexeme, &["integer"]));
        }
        let value: i64 = lexeme
            .text
            .parse()
            .map_err(|_| invalid(&lexeme, format!("strconv.Atoi: parsing \"{}\": value out of range", lexeme.text)))?;
        u32::try_from(value)
            .ok()
            .filter(|value| (1..=most.unsigned_abs()).contains(value))
            .ok_or_else(|| invalid(&lexeme, format!("invalid value {value}: must be 1 <= n <= {most}")))
    }

    /// `DELETE`, whose first word was taken.
    pub(super) fn delete(&mut self) -> Parsed<Statement> {
        let (first, sources) = self.deleted_sources()?;
        not_qualified(&sources)?;
        let condition = self.condition()?;
        if condition.is_none() && sources.is_empty() {
            return Err(unexpected(&first, &["FROM", "WHERE"]));
        }
        Ok(Statement::Delete { sources, condition })
    }

    fn drop_series(&mut self) -> Parsed<Statement> {
        let (first, sources) = self.deleted_sources()?;
        not_qualified(&sources)?;
        let condition = self.condition()?;
        if condition.is_none() && sources.is_empty() {
            return Err(unexpected(&first, &["FROM", "WHERE"]));
        }
        Ok(Statement::DropSeries { sources, condition })
    }

    /// `FROM …` and the token where it would start.
    fn deleted_sources(&mut self) -> Parsed<(Lexeme, Vec<Source>)> {
        let first = self.next();
        if first.token == Token::From {
            return Ok((first, self.sources(false)?));
        }
        self.put_back(first.clone());
        Ok((first, Vec::new()))
    }
}

/// Deleting works on the request's database, and on series of all policies.
fn not_qualified(sources: &[Source]) -> Parsed<()> {
    let mut problem = None;
    for source in sources {
        let Source::Measurement(measurement) = source else { continue };
        if measurement.database.is_some() {
            problem = Some("database not supported");
        }
        if measurement.policy.is_some() {
            problem = Some("retention policy not supported");
        }
    }
    match problem {
        Some(message) => Err(ParseError::Invalid { message: message.to_owned(), at: START }),
        None => Ok(()),
    }
}
