//! Parses SHOW statements.

use super::super::ast::{Cardinality, KeyFilter, Listing, ListingKind, Statement};
use super::super::error::ParseError;
use super::super::token::TokenKind;
use super::{MAX_TERMS, Parsed, Parser, unexpected};

impl Parser<'_, '_> {
    pub(super) fn show(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Continuous => self.finish_unsupported("SHOW CONTINUOUS QUERIES", &[TokenKind::Queries]),
            TokenKind::Databases => Ok(Statement::ShowDatabases),
            TokenKind::Diagnostics => Ok(Statement::ShowDiagnostics { module: self.for_module()? }),
            TokenKind::Field => self.show_field(),
            TokenKind::Grants => {
                self.expect(TokenKind::For)?;
                self.identifier()?;
                Ok(Statement::Unsupported { what: "SHOW GRANTS" })
            }
            TokenKind::Measurement => self.expect_cardinality(ListingKind::Measurements),
            TokenKind::Measurements => self.show_measurements(),
            TokenKind::Queries => Ok(Statement::ShowQueries),
            TokenKind::Retention => {
                self.expect(TokenKind::Policies)?;
                Ok(Statement::ShowRetentionPolicies { database: self.on_database()? })
            }
            TokenKind::Series => self.show_series(),
            TokenKind::Shard => self.finish_unsupported("SHOW SHARD GROUPS", &[TokenKind::Groups]),
            TokenKind::Shards => self.finish_unsupported("SHOW SHARDS", &[]),
            TokenKind::Stats => Ok(Statement::ShowStats { module: self.for_module()? }),
            TokenKind::Subscriptions => self.finish_unsupported("SHOW SUBSCRIPTIONS", &[]),
            TokenKind::Tag => self.show_tag(),
            TokenKind::Users => Ok(Statement::ShowUsers),
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

    /// Parses the last tokens of an unsupported statement.
    fn finish_unsupported(&mut self, what: &'static str, tokens: &[TokenKind]) -> Parsed<Statement> {
        tokens.iter().try_for_each(|&token| self.expect(token))?;
        Ok(Statement::Unsupported { what })
    }

    fn for_module(&mut self) -> Parsed<Option<String>> {
        if self.accept(TokenKind::For) { self.string().map(Some) } else { Ok(None) }
    }

    fn on_database(&mut self) -> Parsed<Option<String>> {
        if self.accept(TokenKind::On) { self.identifier().map(Some) } else { Ok(None) }
    }

    /// Parses `ON … FROM …`, and `WITH KEY …` for tag values.
    fn parse_scope(&mut self, kind: ListingKind) -> Parsed<Listing> {
        let database = self.on_database()?;
        let sources = self.optional_sources()?;
        let mut listing = Listing { kind, database, sources, ..Listing::default() };
        if kind == ListingKind::TagValues {
            self.expect(TokenKind::With)?;
            listing.keys = Some(self.parse_key_filter()?);
        }
        Ok(listing)
    }

    /// Parses `WHERE … ORDER BY … LIMIT … OFFSET …`.
    fn parse_filter(&mut self, mut listing: Listing) -> Parsed<Listing> {
        listing.condition = self.condition()?;
        self.parse_order(listing)
    }

    /// Parses `ORDER BY … LIMIT … OFFSET …`. The order has no effect, because lists are always sorted.
    fn parse_order(&mut self, mut listing: Listing) -> Parsed<Listing> {
        self.order()?;
        listing.limit = self.count(TokenKind::Limit)?;
        listing.offset = self.count(TokenKind::Offset)?;
        Ok(listing)
    }

    fn show_measurements(&mut self) -> Parsed<Statement> {
        let mut listing = Listing { database: self.on_database()?, ..Listing::default() };
        if listing.database.is_some() && self.accept_raw(TokenKind::Dot) {
            listing.policy = Some(self.identifier()?);
        }
        if self.accept(TokenKind::With) {
            self.expect(TokenKind::Measurement)?;
            let lexeme = self.next();
            if !matches!(lexeme.token, TokenKind::Eq | TokenKind::EqRegex) {
                return Err(unexpected(&lexeme, &["=", "=~"]));
            }
            listing.matching = Some(self.measurement()?);
        }
        self.parse_filter(listing).map(Statement::Show)
    }

    fn show_series(&mut self) -> Parsed<Statement> {
        let is_exact = self.accept(TokenKind::Exact);
        if self.accept(TokenKind::Cardinality) {
            return self.parse_cardinality(ListingKind::Series, is_exact);
        }
        let listing = self.parse_scope(ListingKind::Series)?;
        self.parse_filter(listing).map(Statement::Show)
    }

    fn show_field(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.expect_cardinality(ListingKind::FieldKeys),
            TokenKind::Keys => {
                let listing = self.parse_scope(ListingKind::FieldKeys)?;
                self.parse_order(listing).map(Statement::Show)
            }
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS"])),
        }
    }

    fn show_tag(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.expect_cardinality(ListingKind::TagKeys),
            TokenKind::Keys => self.show_tag_keys(),
            TokenKind::Values => self.show_tag_values(),
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS", "VALUES"])),
        }
    }

    fn show_tag_keys(&mut self) -> Parsed<Statement> {
        let mut listing = self.parse_scope(ListingKind::TagKeys)?;
        if self.accept(TokenKind::With) {
            listing.keys = Some(self.parse_key_filter()?);
        }
        let mut listing = self.parse_filter(listing)?;
        listing.slimit = self.count(TokenKind::SLimit)?;
        listing.soffset = self.count(TokenKind::SOffset)?;
        Ok(Statement::Show(listing))
    }

    fn show_tag_values(&mut self) -> Parsed<Statement> {
        if self.accept(TokenKind::Exact) {
            self.expect(TokenKind::Cardinality)?;
            return self.parse_cardinality(ListingKind::TagValues, true);
        }
        if self.accept(TokenKind::Cardinality) {
            return self.parse_cardinality(ListingKind::TagValues, false);
        }
        let listing = self.parse_scope(ListingKind::TagValues)?;
        self.parse_filter(listing).map(Statement::Show)
    }

    /// Parses `[EXACT] CARDINALITY …`.
    fn expect_cardinality(&mut self, kind: ListingKind) -> Parsed<Statement> {
        let is_exact = self.accept(TokenKind::Exact);
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Cardinality => self.parse_cardinality(kind, is_exact),
            _ if is_exact => Err(unexpected(&lexeme, &["CARDINALITY"])),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    /// Parses the clauses after CARDINALITY.
    fn parse_cardinality(&mut self, kind: ListingKind, is_exact: bool) -> Parsed<Statement> {
        let mut listing = self.parse_scope(kind)?;
        listing.cardinality = Some(if is_exact { Cardinality::Exact } else { Cardinality::Estimated });
        listing.condition = self.condition()?;
        listing.group_by = self.group_by()?;
        listing.limit = self.count(TokenKind::Limit)?;
        listing.offset = self.count(TokenKind::Offset)?;
        Ok(Statement::Show(listing))
    }

    /// Parses `KEY …`, after WITH.
    fn parse_key_filter(&mut self) -> Parsed<KeyFilter> {
        self.expect(TokenKind::Key)?;
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::In => {
                self.expect(TokenKind::LeftParen)?;
                let keys = self.list(Self::identifier)?;
                self.expect(TokenKind::RightParen)?;
                if keys.len() > MAX_TERMS {
                    return Err(ParseError::limit("the number of keys of one statement", MAX_TERMS));
                }
                Ok(KeyFilter::In(keys))
            }
            TokenKind::Eq => self.identifier().map(KeyFilter::Is),
            TokenKind::NotEq => self.identifier().map(KeyFilter::IsNot),
            TokenKind::EqRegex => self.required_regex().map(KeyFilter::Matches),
            TokenKind::NotEqRegex => self.required_regex().map(KeyFilter::MatchesNot),
            _ => Err(unexpected(&lexeme, &["IN", "=", "=~"])),
        }
    }
}
