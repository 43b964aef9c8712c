//! Parses statements that change data, and recognizes unsupported statements by their keywords.

use super::super::ast::{Expr, Measurement, NewPolicy, PolicyStatement, Statement};
use super::super::token::TokenKind;
use super::{Parsed, Parser, START, invalid, invalid_at, unexpected};

impl Parser<'_, '_> {
    pub(super) fn create(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Continuous => self.unsupported("CREATE CONTINUOUS QUERY", &[TokenKind::Query]),
            TokenKind::Database => self.create_database(),
            TokenKind::User => self.unsupported("CREATE USER", &[]),
            TokenKind::Retention => self.create_policy(),
            TokenKind::Subscription => self.unsupported("CREATE SUBSCRIPTION", &[]),
            _ => Err(unexpected(&lexeme, &["CONTINUOUS", "DATABASE", "USER", "RETENTION", "SUBSCRIPTION"])),
        }
    }

    pub(super) fn drop_statement(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Continuous => self.unsupported("DROP CONTINUOUS QUERY", &[TokenKind::Query]),
            TokenKind::Database => Ok(Statement::DropDatabase { name: self.identifier()? }),
            TokenKind::Measurement => Ok(Statement::DropMeasurement { name: self.identifier()? }),
            TokenKind::Retention => {
                let (name, database) = self.named_policy()?;
                Ok(Statement::DropPolicy { name, database })
            }
            TokenKind::Series => {
                let (sources, condition) = self.deletion_scope()?;
                Ok(Statement::DropSeries { sources, condition })
            }
            TokenKind::Shard => self.unsupported("DROP SHARD", &[]),
            TokenKind::Subscription => self.unsupported("DROP SUBSCRIPTION", &[]),
            TokenKind::User => self.unsupported("DROP USER", &[]),
            _ => Err(unexpected(
                &lexeme,
                &["CONTINUOUS", "DATABASE", "MEASUREMENT", "RETENTION", "SERIES", "SHARD", "SUBSCRIPTION", "USER"],
            )),
        }
    }

    /// Skips the rest of a statement that starts with `words`. The text is discarded, because it may contain a
    /// password.
    pub(super) fn unsupported(&mut self, what: &'static str, words: &[TokenKind]) -> Parsed<Statement> {
        words.iter().try_for_each(|&token| self.expect(token))?;
        loop {
            let lexeme = self.next();
            match lexeme.token {
                TokenKind::Semicolon | TokenKind::Eof => {
                    self.put_back(lexeme);
                    return Ok(Statement::Unsupported { what });
                }
                TokenKind::Illegal | TokenKind::BadString | TokenKind::BadEscape => {
                    return Err(unexpected(&lexeme, &[";"]));
                }
                _ => {}
            }
        }
    }

    pub(super) fn kill(&mut self) -> Parsed<Statement> {
        self.expect(TokenKind::Query)?;
        let lexeme = self.next();
        let id = match lexeme.token {
            TokenKind::Integer => lexeme.text.parse().map_err(|error| invalid(&lexeme, error))?,
            _ => return Err(unexpected(&lexeme, &["integer"])),
        };
        if self.accept(TokenKind::On) {
            self.identifier()?;
        }
        Ok(Statement::KillQuery { id })
    }

    pub(super) fn explain(&mut self) -> Parsed<Statement> {
        let analyze = self.accept(TokenKind::Analyze);
        self.expect(TokenKind::Select)?;
        Ok(Statement::Explain { select: Box::new(self.select()?), analyze })
    }

    fn create_database(&mut self) -> Parsed<Statement> {
        let name = self.identifier()?;
        if !self.accept(TokenKind::With) {
            return Ok(Statement::CreateDatabase { name, policy: None });
        }
        let first = self.next();
        if !matches!(first.token, TokenKind::Duration | TokenKind::Name | TokenKind::Replication | TokenKind::Shard) {
            return Err(unexpected(&first, &["DURATION", "NAME", "REPLICATION", "SHARD"]));
        }
        self.put_back(first);
        let mut policy = NewPolicy::default();
        if self.accept(TokenKind::Duration) {
            policy.duration = Some(self.duration()?);
        }
        if self.accept(TokenKind::Replication) {
            policy.replication = Some(self.replication()?);
        }
        if self.accept(TokenKind::Shard) {
            self.expect(TokenKind::Duration)?;
            policy.shard_duration = Some(self.duration()?);
        }
        if self.accept(TokenKind::Name) {
            policy.name = Some(self.identifier()?);
        }
        Ok(Statement::CreateDatabase { name, policy: Some(policy) })
    }

    /// `POLICY name ON database`
    fn named_policy(&mut self) -> Parsed<(String, String)> {
        self.expect(TokenKind::Policy)?;
        let name = self.identifier()?;
        self.expect(TokenKind::On)?;
        Ok((name, self.identifier()?))
    }

    fn create_policy(&mut self) -> Parsed<Statement> {
        let (name, database) = self.named_policy()?;
        self.expect(TokenKind::Duration)?;
        let duration = Some(self.duration()?);
        self.expect(TokenKind::Replication)?;
        let replication = Some(self.replication()?);
        let shard_duration = if self.accept(TokenKind::Shard) { Some(self.duration_of_shards()?) } else { None };
        let policy = NewPolicy { duration, replication, shard_duration, name: Some(name) };
        Ok(Statement::CreatePolicy(PolicyStatement { database, policy, is_default: self.accept(TokenKind::Default) }))
    }

    /// Parses ALTER RETENTION after these words.
    pub(super) fn alter_policy(&mut self) -> Parsed<Statement> {
        let (name, database) = self.named_policy()?;
        let mut altered = PolicyStatement {
            database,
            policy: NewPolicy { name: Some(name), ..NewPolicy::default() },
            is_default: false,
        };
        let mut found = Vec::new();
        loop {
            let lexeme = self.next();
            if found.contains(&lexeme.token) {
                return Err(invalid(&lexeme, format!("found duplicate {} option", lexeme.token.as_str())));
            }
            match lexeme.token {
                TokenKind::Duration => altered.policy.duration = Some(self.duration()?),
                TokenKind::Replication => altered.policy.replication = Some(self.replication()?),
                TokenKind::Shard => altered.policy.shard_duration = Some(self.duration_of_shards()?),
                TokenKind::Default => altered.is_default = true,
                _ if found.is_empty() => {
                    return Err(unexpected(&lexeme, &["DURATION", "REPLICATION", "SHARD", "DEFAULT"]));
                }
                _ => {
                    self.put_back(lexeme);
                    return Ok(Statement::AlterPolicy(altered));
                }
            }
            found.push(lexeme.token);
        }
    }

    /// `DURATION d`, after SHARD.
    fn duration_of_shards(&mut self) -> Parsed<i64> {
        self.expect(TokenKind::Duration)?;
        let lexeme = self.next();
        if lexeme.token == TokenKind::Inf {
            return Err(invalid(&lexeme, "invalid duration INF for shard duration"));
        }
        self.put_back(lexeme);
        self.duration()
    }

    fn replication(&mut self) -> Parsed<u32> {
        let max = i32::MAX;
        let lexeme = self.next();
        if lexeme.token != TokenKind::Integer {
            return Err(unexpected(&lexeme, &["integer"]));
        }
        let value: i64 = lexeme
            .text
            .parse()
            .map_err(|_| invalid(&lexeme, format!("strconv.Atoi: parsing \"{}\": value out of range", lexeme.text)))?;
        u32::try_from(value)
            .ok()
            .filter(|value| (1..=max.unsigned_abs()).contains(value))
            .ok_or_else(|| invalid(&lexeme, format!("invalid value {value}: must be 1 <= n <= {max}")))
    }

    /// Parses DELETE after its first word.
    pub(super) fn delete(&mut self) -> Parsed<Statement> {
        let (sources, condition) = self.deletion_scope()?;
        Ok(Statement::Delete { sources, condition })
    }

    /// `FROM … WHERE …`, at least one of them.
    fn deletion_scope(&mut self) -> Parsed<(Vec<Measurement>, Option<Expr>)> {
        let first = self.next();
        self.put_back(first.clone());
        let sources = self.optional_sources()?;
        not_qualified(&sources)?;
        let condition = self.condition()?;
        if condition.is_none() && sources.is_empty() {
            return Err(unexpected(&first, &["FROM", "WHERE"]));
        }
        Ok((sources, condition))
    }
}

/// Rejects databases and policies. Deletions apply to the request's database and to the series of all policies.
fn not_qualified(sources: &[Measurement]) -> Parsed<()> {
    let mut problem = None;
    for measurement in sources {
        if measurement.database.is_some() {
            problem = Some("database not supported");
        }
        if measurement.policy.is_some() {
            problem = Some("retention policy not supported");
        }
    }
    problem.map_or(Ok(()), |message| Err(invalid_at(START, message)))
}
