//! SHOW.

use super::super::ast::{Counted, KeyFilter, Listing, Statement};
use super::super::token::Token;
use super::{Parsed, Parser, unexpected};

impl Parser<'_, '_> {
    pub(super) fn show(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            Token::Continuous => self.shown("SHOW CONTINUOUS QUERIES", &[Token::Queries]),
            Token::Databases => Ok(Statement::ShowDatabases),
            Token::Diagnostics => self.shown_for_module("SHOW DIAGNOSTICS"),
            Token::Field => self.show_field(),
            Token::Grants => {
                self.expect(Token::For)?;
                self.identifier()?;
                Ok(Statement::Unsupported { what: "SHOW GRANTS" })
            }
            Token::Measurement => self.show_measurement(),
            Token::Measurements => self.show_measurements(),
            Token::Queries => self.shown("SHOW QUERIES", &[]),
            Token::Retention => {
                self.expect(Token::Policies)?;
                Ok(Statement::ShowRetentionPolicies { database: self.on_database()? })
            }
            Token::Series => self.show_series(),
            Token::Shard => self.shown("SHOW SHARD GROUPS", &[Token::Groups]),
            Token::Shards => self.shown("SHOW SHARDS", &[]),
            Token::Stats => self.shown_for_module("SHOW STATS"),
            Token::Subscriptions => self.shown("SHOW SUBSCRIPTIONS", &[]),
            Token::Tag => self.show_tag(),
            Token::Users => self.shown("SHOW USERS", &[]),
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

    /// A statement that is complete behind `rest`.
    fn shown(&mut self, what: &'static str, rest: &[Token]) -> Parsed<Statement> {
        rest.iter().try_for_each(|&token| self.expect(token))?;
        Ok(Statement::Unsupported { what })
    }

    fn shown_for_module(&mut self, what: &'static str) -> Parsed<Statement> {
        if self.accept(Token::For) {
            self.string()?;
        }
        Ok(Statement::Unsupported { what })
    }

    fn on_database(&mut self) -> Parsed<Option<String>> {
        if self.accept(Token::On) { self.identifier().map(Some) } else { Ok(None) }
    }

    fn sources_clause(&mut self, listing: &mut Listing) -> Parsed<()> {
        if self.accept(Token::From) {
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
        listing.limit = self.count(Token::Limit)?;
        listing.offset = self.count(Token::Offset)?;
        Ok(())
    }

    fn show_measurements(&mut self) -> Parsed<Statement> {
        let mut listing = Listing { database: self.on_database()?, ..Listing::default() };
        let mut matching = None;
        if self.accept(Token::With) {
            self.expect(Token::Measurement)?;
            let lexeme = self.next();
            if !matches!(lexeme.token, Token::Eq | Token::EqRegex) {
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
            Token::Exact => {
                self.expect(Token::Cardinality)?;
                self.cardinality(Counted::Measurements, true)
            }
            Token::Cardinality => self.cardinality(Counted::Measurements, false),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    fn show_series(&mut self) -> Parsed<Statement> {
        let exact = self.accept(Token::Exact);
        if self.accept(Token::Cardinality) {
            return self.cardinality(Counted::Series, exact);
        }
        let mut listing = self.scope()?;
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        Ok(Statement::ShowSeries(listing))
    }

    fn show_field(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            Token::Key => self.key_cardinality(Counted::FieldKeys),
            Token::Keys => {
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
            Token::Key => self.key_cardinality(Counted::TagKeys),
            Token::Keys => self.show_tag_keys(),
            Token::Values => self.show_tag_values(),
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS", "VALUES"])),
        }
    }

    fn show_tag_keys(&mut self) -> Parsed<Statement> {
        let mut listing = self.scope()?;
        let keys = if self.accept(Token::With) { Some(self.key_filter()?) } else { None };
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        listing.slimit = self.count(Token::SLimit)?;
        listing.soffset = self.count(Token::SOffset)?;
        Ok(Statement::ShowTagKeys { keys, listing })
    }

    fn show_tag_values(&mut self) -> Parsed<Statement> {
        if self.accept(Token::Exact) {
            self.expect(Token::Cardinality)?;
            return self.cardinality(Counted::TagValues, true);
        }
        if self.accept(Token::Cardinality) {
            return self.cardinality(Counted::TagValues, false);
        }
        let mut listing = self.scope()?;
        self.expect(Token::With)?;
        let keys = self.key_filter()?;
        listing.condition = self.condition()?;
        self.order_and_limits(&mut listing)?;
        Ok(Statement::ShowTagValues { keys, listing })
    }

    fn key_cardinality(&mut self, of: Counted) -> Parsed<Statement> {
        let exact = self.accept(Token::Exact);
        let lexeme = self.next();
        match lexeme.token {
            Token::Cardinality => self.cardinality(of, exact),
            _ if exact => Err(unexpected(&lexeme, &["CARDINALITY"])),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    /// What stands behind CARDINALITY.
    fn cardinality(&mut self, of: Counted, exact: bool) -> Parsed<Statement> {
        let mut listing = self.scope()?;
        let keys = if of == Counted::TagValues {
            self.expect(Token::With)?;
            Some(self.key_filter()?)
        } else {
            None
        };
        listing.condition = self.condition()?;
        let group_by = self.group_by()?;
        listing.limit = self.count(Token::Limit)?;
        listing.offset = self.count(Token::Offset)?;
        Ok(Statement::ShowCardinality { of, exact, keys, listing, group_by })
    }

    /// `KEY …` behind WITH.
    fn key_filter(&mut self) -> Parsed<KeyFilter> {
        self.expect(Token::Key)?;
        let lexeme = self.next();
        match lexeme.token {
            Token::In => {
                self.expect(Token::LeftParen)?;
                let keys = self.identifiers()?;
                self.expect(Token::RightParen)?;
                Ok(KeyFilter::In(keys))
            }
            Token::Eq => self.identifier().map(KeyFilter::Is),
            Token::NotEq => self.identifier().map(KeyFilter::IsNot),
            Token::EqRegex => self.key_pattern().map(KeyFilter::Matches),
            Token::NotEqRegex => self.key_pattern().map(KeyFilter::MatchesNot),
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
