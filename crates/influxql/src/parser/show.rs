//! Parses SHOW statements.

use super::super::ast::{Cardinality, KeyFilter, Listing, ListingOf, Statement};
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
            TokenKind::Measurement => self.cardinality(ListingOf::Measurements),
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

    /// `ON … FROM …`, and `WITH KEY …` for tag values.
    fn scope(&mut self, of: ListingOf) -> Parsed<Listing> {
        let database = self.on_database()?;
        let sources = self.optional_sources()?;
        let mut listing = Listing { of, database, sources, ..Listing::default() };
        if of == ListingOf::TagValues {
            self.expect(TokenKind::With)?;
            listing.keys = Some(self.key_filter()?);
        }
        Ok(listing)
    }

    /// `WHERE … ORDER BY … LIMIT … OFFSET …`
    fn filtered(&mut self, mut listing: Listing) -> Parsed<Listing> {
        listing.condition = self.condition()?;
        self.ordered(listing)
    }

    /// `ORDER BY … LIMIT … OFFSET …`. The order has no effect, because lists are always sorted.
    fn ordered(&mut self, mut listing: Listing) -> Parsed<Listing> {
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
        self.filtered(listing).map(Statement::Show)
    }

    fn show_series(&mut self) -> Parsed<Statement> {
        let is_exact = self.accept(TokenKind::Exact);
        if self.accept(TokenKind::Cardinality) {
            return self.counted(ListingOf::Series, is_exact);
        }
        let listing = self.scope(ListingOf::Series)?;
        self.filtered(listing).map(Statement::Show)
    }

    fn show_field(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.cardinality(ListingOf::FieldKeys),
            TokenKind::Keys => {
                let listing = self.scope(ListingOf::FieldKeys)?;
                self.ordered(listing).map(Statement::Show)
            }
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS"])),
        }
    }

    fn show_tag(&mut self) -> Parsed<Statement> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Key => self.cardinality(ListingOf::TagKeys),
            TokenKind::Keys => self.show_tag_keys(),
            TokenKind::Values => self.show_tag_values(),
            _ => Err(unexpected(&lexeme, &["KEY", "KEYS", "VALUES"])),
        }
    }

    fn show_tag_keys(&mut self) -> Parsed<Statement> {
        let mut listing = self.scope(ListingOf::TagKeys)?;
        if self.accept(TokenKind::With) {
            listing.keys = Some(self.key_filter()?);
        }
        let mut listing = self.filtered(listing)?;
        listing.slimit = self.count(TokenKind::SLimit)?;
        listing.soffset = self.count(TokenKind::SOffset)?;
        Ok(Statement::Show(listing))
    }

    fn show_tag_values(&mut self) -> Parsed<Statement> {
        if self.accept(TokenKind::Exact) {
            self.expect(TokenKind::Cardinality)?;
            return self.counted(ListingOf::TagValues, true);
        }
        if self.accept(TokenKind::Cardinality) {
            return self.counted(ListingOf::TagValues, false);
        }
        let listing = self.scope(ListingOf::TagValues)?;
        self.filtered(listing).map(Statement::Show)
    }

    /// `[EXACT] CARDINALITY …`
    fn cardinality(&mut self, of: ListingOf) -> Parsed<Statement> {
        let is_exact = self.accept(TokenKind::Exact);
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Cardinality => self.counted(of, is_exact),
            _ if is_exact => Err(unexpected(&lexeme, &["CARDINALITY"])),
            _ => Err(unexpected(&lexeme, &["EXACT", "CARDINALITY"])),
        }
    }

    /// Parses the clauses after CARDINALITY. GROUP BY has no effect.
    fn counted(&mut self, of: ListingOf, is_exact: bool) -> Parsed<Statement> {
        let mut listing = self.scope(of)?;
        listing.cardinality = Some(if is_exact { Cardinality::Exact } else { Cardinality::Estimated });
        listing.condition = self.condition()?;
        self.group_by()?;
        listing.limit = self.count(TokenKind::Limit)?;
        listing.offset = self.count(TokenKind::Offset)?;
        Ok(Statement::Show(listing))
    }

    /// Parses `KEY …`, after WITH.
    fn key_filter(&mut self) -> Parsed<KeyFilter> {
        self.expect(TokenKind::Key)?;
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::In => {
                self.expect(TokenKind::LeftParen)?;
                let keys = self.list(Self::identifier)?;
                self.expect(TokenKind::RightParen)?;
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
