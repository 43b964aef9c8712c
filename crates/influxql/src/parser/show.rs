//! Parses SHOW statements.

use super::super::ast::{CardinalityOf, KeyFilter, Listing, Statement};
use super::super::token::TokenKind;
use super::{Parsed, Parser, unexpected};

impl Parser<'_, '_> {
    pub(super) fn show(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Continuous => self.shown("SHOW CONTINUOUS QUERIES", &[TokenKind::Queries]),
            TokenKind::Databases => Ok(Statement::ShowDatabases),
            TokenKind::Diagnostics => self.shown_for_module("SHOW DIAGNOSTICS"),
            TokenKind::Field => self.show_field(),
            TokenKind::Grants => {
                self.expect(TokenKind::For)?;
                self.identifier()?;
                Ok(Statement::Unsupported { what: "SHOW GRANTS" })
            }
            TokenKind::Measurement => self.show_measurement(),
            TokenKind::Measurements => self.show_measurements(),
            TokenKind::Queries => self.shown("SHOW QUERIES", &[]),
            TokenKind::Retention => {
                self.expect(TokenKind::Policies)?;
                Ok(Statement::ShowRetentionPolicies { database: self.on_database()? })
            }
            TokenKind::Series => self.show_series(),
            TokenKind::Shard => self.shown("SHOW SHARD GROUPS", &[TokenKind::Groups]),
            TokenKind::Shards => self.shown("SHOW SHARDS", &[]),
            TokenKind::Stats => self.shown_for_module("SHOW STATS"),
            TokenKind::Subscriptions => self.shown("SHOW SUBSCRIPTIONS", &[]),
            TokenKind::Tag => self.show_tag(),
            TokenKind::Users => self.shown("SHOW USERS", &[]),
            _ => Err(unexpected(
                &lexeme,
                &[
                    "CONTINUOUS",
                    "DATABASES",
                    "DIAGNOSTICS",
                    "FIELD",
                    "GRANTS",
                    "MEASUREMENT",
                    "MEASUREMENTS",
                    "QUERIES",
                    "RETENTION",
                    "SERIES",
                    "SHARD",
                    "SHARDS",
                    "STATS",
                    "SUBSCRIPTIONS",
                    "TAG",
                    "USERS",
                ],
            )),
        }
    }

    /// Parses a statement that ends after `rest`.
    fn shown(&mut self, what: &'static str, rest: &[TokenKind]) -> Parsed<Statement> {
        rest.iter().try_for_each(|&token| self.expect(token))?;
        Ok(Statement::Unsupported { what })
    }

    fn shown_for_module(&mut self, what: &'static str) -> Parsed<Statement> {
        if self.accept(TokenKind::For) {
            self.string()?;
        }
        Ok(Statement::Unsupported { what })
    }

    fn on_database(&mut self) -> Parsed<Option<String>> {
        if self.accept(TokenKind::On) { self.identifier().map(Some) } else { Ok(None) }
    }

    fn sources_clause(&mut self, listing: &mut Listing) -> Parsed<()> {
        if self.accept(TokenKind::From) {
            listing.sources = self.sources(false)?;
        }
        Ok(())
    }

    /// `ON … FROM …`
    fn scope(&mut self) -> Parsed<Listing> {
        let mut listing = Listing { database: self.on_database()?, ..Listing::default() };
        self.sources_clause(&mut listing)?;
        Ok(listing)
    }

    /// `ORDER BY … LIMIT … OFFSET …`
    fn order_and_limits(&mut self, listing: &mut Listing) -> Parsed<()> {
        listing.order = self.order()?;
        listing.limit = self.count(TokenKind::Limit)?;
        listing.offset = self.count(TokenKind::Offset)?;
        Ok(())
    }

    fn show_measurements(&mut self) -> Parsed<Statement> {
        let mut listing = Listing { database: self.on_database()?, ..Listing::default() };
        if listing.database.is_some() && self.accept_raw(TokenKind::Dot) {
            listing.policy = Some(self.identifier()?);
        }
        let mut matching = None;
        if self.accept(TokenKind::With) {
            self.expect(TokenKind::Measurement)?;
            let lexeme = self.next();
            if !matches!(lexeme.token, TokenKind::Eq | TokenKind::EqRegex) {
                return Err(unexpected(&lexeme, &["=", "=~"]));
            }
            matching = Some(self.measurement()?);
        }
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        Ok(Statement::ShowMeasurements { matching, listing })
    }

    fn show_measurement(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Exact => {
                self.expect(TokenKind::Cardinality)?;
                self.cardinality(CardinalityOf::Measurements, true)
            }
            TokenKind::Cardinality => self.cardinality(CardinalityOf::Measurements, false),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    fn show_series(&mut self) -> Parsed<Statement> {
        let exact = self.accept(TokenKind::Exact);
        if self.accept(TokenKind::Cardinality) {
            return self.cardinality(CardinalityOf::Series, exact);
        }
        let mut listing = self.scope()?;
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        Ok(Statement::ShowSeries(listing))
    }

    fn show_field(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.key_cardinality(CardinalityOf::FieldKeys),
            TokenKind::Keys => {
                let mut listing = self.scope()?;
                self.order_and_limits(&mut listing)?;
                Ok(Statement::ShowFieldKeys(listing))
            }
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS"])),
        }
    }

    fn show_tag(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.key_cardinality(CardinalityOf::TagKeys),
            TokenKind::Keys => self.show_tag_keys(),
            TokenKind::Values => self.show_tag_values(),
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS", "VALUES"])),
        }
    }

    fn show_tag_keys(&mut self) -> Parsed<Statement> {
        let mut listing = self.scope()?;
        let keys = if self.accept(TokenKind::With) { Some(self.key_filter()?) } else { None };
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        listing.slimit = self.count(TokenKind::SLimit)?;
        listing.soffset = self.count(TokenKind::SOffset)?;
        Ok(Statement::ShowTagKeys { keys, listing })
    }

    fn show_tag_values(&mut self) -> Parsed<Statement> {
        if self.accept(TokenKind::Exact) {
            self.expect(TokenKind::Cardinality)?;
            return self.cardinality(CardinalityOf::TagValues, true);
        }
        if self.accept(TokenKind::Cardinality) {
            return self.cardinality(CardinalityOf::TagValues, false);
        }
        let mut listing = self.scope()?;
        self.expect(TokenKind::With)?;
        let keys = self.key_filter()?;
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        Ok(Statement::ShowTagValues { keys, listing })
    }

    fn key_cardinality(&mut self, of: CardinalityOf) -> Parsed<Statement> {
        let exact = self.accept(TokenKind::Exact);
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Cardinality => self.cardinality(of, exact),
            _ if exact => Err(unexpected(&lexeme, &["CARDINALITY"])),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    /// Parses what follows CARDINALITY.
    fn cardinality(&mut self, of: CardinalityOf, exact: bool) -> Parsed<Statement> {
        let mut listing = self.scope()?;
        let keys = if of == CardinalityOf::TagValues {
            self.expect(TokenKind::With)?;
            Some(self.key_filter()?)
        } else {
            None
        };
        listing.condition = self.condition()?;
        let group_by = self.group_by()?;
        listing.limit = self.count(TokenKind::Limit)?;
        listing.offset = self.count(TokenKind::Offset)?;
        Ok(Statement::ShowCardinality { of, exact, keys, listing, group_by })
    }

    /// Parses `KEY …`, after WITH.
    fn key_filter(&mut self) -> Parsed<KeyFilter> {
        self.expect(TokenKind::Key)?;
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::In => {
                self.expect(TokenKind::LeftParen)?;
                let keys = self.identifiers()?;
                self.expect(TokenKind::RightParen)?;
                Ok(KeyFilter::In(keys))
            }
            TokenKind::Eq => self.identifier().map(KeyFilter::Is),
            TokenKind::NotEq => self.identifier().map(KeyFilter::IsNot),
            TokenKind::EqRegex => self.key_pattern().map(KeyFilter::Matches),
            TokenKind::NotEqRegex => self.key_pattern().map(KeyFilter::MatchesNot),
            _ => Err(unexpected(&lexeme, &["IN", "=", "=~"])),
        }
    }

    fn key_pattern(&mut self) -> Parsed<String> {
        match self.regex()? {
            Some(pattern) => Ok(pattern),
            None => Err(unexpected(&self.next(), &["regex"])),
        }
    }
}
