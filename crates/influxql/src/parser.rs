//! A recursive-descent parser. This module has the token buffer, and dispatches statements by their first word; the
//! submodules parse clauses.
//!
//! Tokens are examined in InfluxDB's order, because its messages list the expected tokens at the first mismatch. White
//! space is significant as in InfluxDB: `mean (x)` is not a call.

mod expressions;
mod manage;
mod select;
mod show;

use std::collections::HashMap;
use std::fmt::Display;

use super::ast::{Expr, Literal, Statement};
use super::duration;
use super::error::ParseError;
use super::lexer::{Lexer, is_space};
use super::token::{Lexeme, Position, TokenKind};

type Parsed<T> = Result<T, ParseError>;

/// Maximum length of a query in bytes.
pub const MAX_QUERY_BYTES: usize = 1 << 20;
/// Maximum nesting depth of parentheses, calls and subqueries.
pub const MAX_NESTING: usize = 100;
/// Maximum height of an expression tree, so that code can walk the tree recursively. Each operator of a chain adds a
/// level.
pub const MAX_HEIGHT: usize = 1_000;

/// Maximum number of `AND` and `OR` in one statement, and of keys of `WITH KEY IN`. Each reading, or each sensor, is
/// compared with all of them.
pub const MAX_TERMS: usize = 1_000;
/// Maximum number of dimensions of `GROUP BY`, by all of which groups are sorted.
const MAX_DIMENSIONS: usize = 100;

/// The values of bound parameters `$name`, by name. A literal stands for a value, a reference for an identifier.
pub type Params = HashMap<String, Expr>;

/// The inputs of [`parse`] besides the text.
pub struct ParseOptions<'a> {
    /// The values of bound parameters.
    pub params: &'a Params,
    /// A function that returns true if a time zone exists.
    pub is_known_zone: &'a dyn Fn(&str) -> bool,
    /// A function that returns the error of an invalid regex.
    pub regex_error: &'a dyn Fn(&str) -> Option<String>,
}

/// Parses a query. White space around it is ignored and does not count in positions.
///
/// # Errors
/// [`ParseError`] if any statement is invalid. As in InfluxDB, one invalid statement rejects the whole query.
pub fn parse(text: &str, options: &ParseOptions<'_>) -> Parsed<Vec<Statement>> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(ParseError::limit("the length in bytes", MAX_QUERY_BYTES));
    }
    let mut parser = Parser { lexer: Lexer::new(text.trim()), returned: Vec::new(), options, nesting: 0, terms: 0 };
    let mut statements = Vec::new();
    let mut is_separated = true;
    loop {
        let lexeme = parser.next();
        match lexeme.token {
            TokenKind::Eof => return Ok(statements),
            TokenKind::Semicolon => is_separated = true,
            _ if !is_separated => return Err(unexpected(&lexeme, &[";"])),
            _ => {
                parser.put_back(lexeme);
                parser.terms = 0;
                statements.push(parser.statement()?);
                is_separated = false;
            }
        }
    }
}

struct Parser<'q, 'o> {
    lexer: Lexer<'q>,
    /// Tokens that were put back, the next one last.
    returned: Vec<Lexeme>,
    options: &'o ParseOptions<'o>,
    nesting: usize,
    /// The number of `AND` and `OR` in the statement.
    terms: usize,
}

impl Parser<'_, '_> {
    fn statement(&mut self) -> Parsed<Statement> {
        let first = self.next();
        match first.token {
            TokenKind::Select => Ok(Statement::Select(Box::new(self.select()?))),
            TokenKind::Delete => self.delete(),
            TokenKind::Show => self.show(),
            TokenKind::Create => self.create(),
            TokenKind::Drop => self.drop_statement(),
            TokenKind::Explain => self.explain(),
            TokenKind::Grant => self.unsupported("GRANT", &[]),
            TokenKind::Revoke => self.unsupported("REVOKE", &[]),
            TokenKind::Alter => {
                self.expect(TokenKind::Retention)?;
                self.alter_policy()
            }
            TokenKind::Set => self.unsupported("SET PASSWORD", &[TokenKind::Password, TokenKind::For]),
            TokenKind::Kill => self.kill(),
            _ => Err(unexpected(
                &first,
                &["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"],
            )),
        }
    }

    /// Returns the next token of any kind, with a bound parameter replaced by its value.
    fn raw(&mut self) -> Lexeme {
        let lexeme = match self.returned.pop() {
            Some(lexeme) => lexeme,
            None => self.lexer.lex(),
        };
        self.bind(lexeme)
    }

    /// Returns the next token that is neither white space nor a comment.
    fn next(&mut self) -> Lexeme {
        loop {
            let lexeme = self.raw();
            if !matches!(lexeme.token, TokenKind::Whitespace | TokenKind::Comment) {
                return lexeme;
            }
        }
    }

    fn put_back(&mut self, lexeme: Lexeme) {
        self.returned.push(lexeme);
    }

    /// Takes the next token if it is `wanted`.
    fn accept(&mut self, wanted: TokenKind) -> bool {
        let lexeme = self.next();
        self.take_if(lexeme, wanted)
    }

    /// Takes the next token if it is `wanted` and no white space or comment precedes it.
    fn accept_raw(&mut self, wanted: TokenKind) -> bool {
        let lexeme = self.raw();
        self.take_if(lexeme, wanted)
    }

    fn take_if(&mut self, lexeme: Lexeme, wanted: TokenKind) -> bool {
        let is_wanted = lexeme.token == wanted;
        if !is_wanted {
            self.put_back(lexeme);
        }
        is_wanted
    }

    fn expect(&mut self, wanted: TokenKind) -> Parsed<()> {
        let lexeme = self.next();
        if lexeme.token == wanted { Ok(()) } else { Err(unexpected(&lexeme, &[wanted.as_str()])) }
    }

    /// Replaces a parameter with the token of its value.
    fn bind(&self, lexeme: Lexeme) -> Lexeme {
        if lexeme.token != TokenKind::BoundParam {
            return lexeme;
        }
        let (token, text) = match self.options.params.get(parameter_name(&lexeme)) {
            Some(Expr::Reference { name, .. }) => (TokenKind::Ident, name.clone()),
            Some(Expr::Literal(literal)) => match literal {
                Literal::Integer(value) => (TokenKind::Integer, value.to_string()),
                Literal::Unsigned(value) => (TokenKind::Integer, value.to_string()),
                Literal::Number(value) => (TokenKind::Number, value.to_string()),
                Literal::String(value) => (TokenKind::String, value.clone()),
                Literal::Boolean(true) => (TokenKind::True, String::new()),
                Literal::Boolean(false) => (TokenKind::False, String::new()),
                Literal::Duration(value) => (TokenKind::DurationValue, duration::format(*value)),
                Literal::Regex(pattern) => (TokenKind::Regex, pattern.clone()),
                Literal::Time(_) => return lexeme,
            },
            _ => return lexeme,
        };
        Lexeme { token, text, position: lexeme.position }
    }

    fn identifier(&mut self) -> Parsed<String> {
        let lexeme = self.next();
        if lexeme.token == TokenKind::Ident { Ok(lexeme.text) } else { Err(unexpected(&lexeme, &["identifier"])) }
    }

    /// Parses items separated by commas.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept(TokenKind::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn string(&mut self) -> Parsed<String> {
        let lexeme = self.next();
        if lexeme.token == TokenKind::String { Ok(lexeme.text) } else { Err(unexpected(&lexeme, &["string"])) }
    }

    /// Parses a duration. `INF` is 0.
    fn duration(&mut self) -> Parsed<i64> {
        let lexeme = self.next();
        match lexeme.token {
            TokenKind::Inf => Ok(0),
            TokenKind::DurationValue => duration::parse(&lexeme.text).map_err(|message| invalid(&lexeme, message)),
            _ => Err(unexpected(&lexeme, &["duration"])),
        }
    }

    /// Parses names joined by dots without white space: `policy.measurement`, `database..measurement`. Stops after a
    /// dot if a regex or `:MEASUREMENT` follows.
    fn segments(&mut self, first: Option<String>) -> Parsed<Vec<String>> {
        let mut names = vec![match first {
            Some(first) => first,
            None => self.identifier()?,
        }];
        while self.accept_raw(TokenKind::Dot) {
            match self.lexer.peek_char() {
                Some('/' | ':') => break,
                Some('.') => names.push(String::new()),
                _ => names.push(self.identifier()?),
            }
        }
        if names.len() > 3 {
            return Err(invalid_at(START, format!("too many segments in {}", quoted_segments(&names))));
        }
        Ok(names)
    }

    /// Parses a regex if there is one. White space may precede it, but no comment.
    fn regex(&mut self) -> Parsed<Option<String>> {
        if self.lexer.peek_char().is_some_and(is_space) {
            let lexeme = self.raw();
            if lexeme.token != TokenKind::Whitespace {
                self.put_back(lexeme);
            }
        }
        let lexeme = match self.lexer.peek_char() {
            // The value of a parameter may be a regex.
            Some('$') => {
                let lexeme = self.raw();
                if lexeme.token != TokenKind::Regex {
                    self.put_back(lexeme);
                    return Ok(None);
                }
                lexeme
            }
            Some('/') => match self.returned.pop() {
                Some(lexeme) => lexeme,
                None => self.lexer.regex(),
            },
            _ => return Ok(None),
        };
        match lexeme.token {
            TokenKind::Regex => self.checked_regex(lexeme).map(Some),
            TokenKind::BadRegex => Err(invalid(&lexeme, format!("bad regex: {}", lexeme.text))),
            _ => Err(unexpected(&lexeme, &["regex"])),
        }
    }

    fn checked_regex(&self, lexeme: Lexeme) -> Parsed<String> {
        match (self.options.regex_error)(&lexeme.text) {
            Some(message) => Err(invalid(&lexeme, message)),
            None => Ok(lexeme.text),
        }
    }

    /// Runs `inner` one nesting level deeper.
    fn descend<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == MAX_NESTING {
            return Err(ParseError::limit("the depth of nesting", MAX_NESTING));
        }
        self.nesting += 1;
        let parsed = inner(self);
        self.nesting -= 1;
        parsed
    }
}

/// The position of errors for which InfluxDB does not report the actual position.
const START: Position = Position { line: 1, char: 1 };

/// The names joined by dots, all but the last in quotes, as InfluxDB prints them.
fn quoted_segments(names: &[String]) -> String {
    let Some((last, heads)) = names.split_last() else { return String::new() };
    let mut text = String::new();
    for head in heads {
        if !head.is_empty() {
            text.push('"');
            text.push_str(head);
            text.push('"');
        }
        text.push('.');
    }
    text + &Expr::reference(last).to_string()
}

fn parameter_name(lexeme: &Lexeme) -> &str {
    lexeme.text.strip_prefix('$').unwrap_or(&lexeme.text)
}

fn unexpected(lexeme: &Lexeme, expected: &[&str]) -> ParseError {
    ParseError(format!("found {}, expected {} at {}", lexeme.message_text(), expected.join(", "), lexeme.position))
}

fn invalid(lexeme: &Lexeme, message: impl Display) -> ParseError {
    invalid_at(lexeme.position, message)
}

fn invalid_at(position: Position, message: impl Display) -> ParseError {
    ParseError(format!("{message} at {position}"))
}
