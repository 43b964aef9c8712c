//! The recursive descent. This file holds the token window and the statements' first words; the clauses are in the
//! files below.
//!
//! The order in which tokens are looked at is InfluxDB's, since its messages name what was found at the first place
//! where nothing fitted, and so is the care for white space: `mean (x)` is no call.

mod expressions;
mod manage;
mod select;
mod show;

use std::collections::HashMap;

use super::ast::{Expr, Literal, Statement};
use super::duration;
use super::error::ParseError;
use super::lexer::{Lexer, is_space};
use super::token::{Lexeme, Position, Token};

type Parsed<T> = Result<T, ParseError>;

/// The longest query in bytes.
pub const MAX_QUERY_BYTES: usize = 1 << 20;
/// How deep parentheses, calls and subqueries may stand in each other.
pub const MAX_NESTING: usize = 100;
/// The most levels an expression may have: each operator of a chain is one. Whatever walks the tree may recurse.
pub const MAX_HEIGHT: usize = 1_000;

/// Values for `$name`, by name. A literal stands for itself, a reference for an identifier.
pub type Params = HashMap<String, Expr>;

/// What parsing depends on besides the text.
pub struct Options<'a> {
    /// The values of bound parameters.
    pub params: &'a Params,
    /// Whether there is such a time zone.
    pub known_zone: &'a dyn Fn(&str) -> bool,
    /// What is wrong with a regex, if anything.
    pub regex_error: &'a dyn Fn(&str) -> Option<String>,
}

/// The statements of a query.
///
/// # Errors
/// If the text is no query. White space around it does not count, not even in positions. One bad statement refuses all, as it does in InfluxDB.
pub fn parse(text: &str, options: &Options<'_>) -> Parsed<Vec<Statement>> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(ParseError::Limit { what: "the length in bytes", limit: MAX_QUERY_BYTES });
    }
    let mut parser = Parser { lexer: Lexer::new(text.trim()), returned: Vec::new(), options, nesting: 0 };
    let mut statements = Vec::new();
    let mut separated = true;
    loop {
        let lexeme = parser.next();
        match lexeme.token {
            Token::Eof => return Ok(statements),
            Token::Semicolon => separated = true,
            _ if !separated => return Err(unexpected(&lexeme, &[";"])),
            _ => {
                parser.put_back(lexeme);
                statements.push(parser.statement()?);
                separated = false;
            }
        }
    }
}

struct Parser<'q, 'o> {
    lexer: Lexer<'q>,
    /// Tokens that were looked at and not used, the next one last.
    returned: Vec<Lexeme>,
    options: &'o Options<'o>,
    nesting: usize,
}

impl Parser<'_, '_> {
    fn statement(&mut self) -> Parsed<Statement> {
        let first = self.next();
        match first.token {
            Token::Select => Ok(Statement::Select(Box::new(self.select()?))),
            Token::Delete => self.delete(),
            Token::Show => self.show(),
            Token::Create => self.create(),
            Token::Drop => self.drop_statement(),
            Token::Explain => self.explain(),
            Token::Grant => self.unsupported("GRANT", &[]),
            Token::Revoke => self.unsupported("REVOKE", &[]),
            Token::Alter => self.unsupported("ALTER RETENTION POLICY", &[Token::Retention, Token::Policy]),
            Token::Set => self.unsupported("SET PASSWORD", &[Token::Password, Token::For]),
            Token::Kill => self.unsupported("KILL QUERY", &[Token::Query]),
            _ => Err(unexpected(
                &first,
                &["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"],
            )),
        }
    }

    /// The next token of any kind, a bound parameter already as its value.
    fn raw(&mut self) -> Lexeme {
        let lexeme = match self.returned.pop() {
            Some(lexeme) => lexeme,
            None => self.lexer.lex(),
        };
        self.bind(lexeme)
    }

    /// The next token that is neither white space nor a comment.
    fn next(&mut self) -> Lexeme {
        loop {
            let lexeme = self.raw();
            if !matches!(lexeme.token, Token::Whitespace | Token::Comment) {
                return lexeme;
            }
        }
    }

    fn put_back(&mut self, lexeme: Lexeme) {
        self.returned.push(lexeme);
    }

    /// Takes the next token if it is `wanted`.
    fn accept(&mut self, wanted: Token) -> bool {
        let lexeme = self.next();
        let found = lexeme.token == wanted;
        if !found {
            self.put_back(lexeme);
        }
        found
    }

    /// Takes the next token if it is `wanted` and nothing stands before it.
    fn accept_raw(&mut self, wanted: Token) -> bool {
        let lexeme = self.raw();
        let found = lexeme.token == wanted;
        if !found {
            self.put_back(lexeme);
        }
        found
    }

    fn expect(&mut self, wanted: Token) -> Parsed<()> {
        let lexeme = self.next();
        if lexeme.token == wanted { Ok(()) } else { Err(unexpected(&lexeme, &[wanted.as_str()])) }
    }

    /// A parameter with a value becomes the token that the value would be in the text.
    fn bind(&self, lexeme: Lexeme) -> Lexeme {
        if lexeme.token != Token::BoundParam {
            return lexeme;
        }
        let (token, text) = match self.options.params.get(parameter_name(&lexeme)) {
            Some(Expr::Reference { name, .. }) => (Token::Ident, name.clone()),
            Some(Expr::Literal(literal)) => match literal {
                Literal::Integer(value) => (Token::Integer, value.to_string()),
                Literal::Unsigned(value) => (Token::Integer, value.to_string()),
                Literal::Number(value) => (Token::Number, value.to_string()),
                Literal::String(value) => (Token::String, value.clone()),
                Literal::Boolean(true) => (Token::True, String::new()),
                Literal::Boolean(false) => (Token::False, String::new()),
                Literal::Duration(value) => (Token::DurationValue, duration::format(*value)),
                Literal::Regex(pattern) => (Token::Regex, pattern.clone()),
                Literal::Time(_) => return lexeme,
            },
            _ => return lexeme,
        };
        Lexeme { token, text, at: lexeme.at }
    }

    fn identifier(&mut self) -> Parsed<String> {
        let lexeme = self.next();
        if lexeme.token == Token::Ident { Ok(lexeme.text) } else { Err(unexpected(&lexeme, &["identifier"])) }
    }

    fn identifiers(&mut self) -> Parsed<Vec<String>> {
        let mut names = vec![self.identifier()?];
        while self.accept(Token::Comma) {
            names.push(self.identifier()?);
        }
        Ok(names)
    }

    fn string(&mut self) -> Parsed<String> {
        let lexeme = self.next();
        if lexeme.token == Token::String { Ok(lexeme.text) } else { Err(unexpected(&lexeme, &["string"])) }
    }

    /// A duration, where `INF` is none.
    fn duration(&mut self) -> Parsed<i64> {
        let lexeme = self.next();
        match lexeme.token {
            Token::Inf => Ok(0),
            Token::DurationValue => duration::parse(&lexeme.text).map_err(|message| invalid(&lexeme, message)),
            _ => Err(unexpected(&lexeme, &["duration"])),
        }
    }

    /// Names joined by dots, with nothing between: `policy.measurement`, `database..measurement`. Ends behind a dot
    /// when what follows is no name: a regex or `:MEASUREMENT`.
    fn segments(&mut self, first: Option<String>) -> Parsed<Vec<String>> {
        let mut names = vec![match first {
            Some(first) => first,
            None => self.identifier()?,
        }];
        while self.accept_raw(Token::Dot) {
            match self.lexer.peek_char() {
                Some('/' | ':') => break,
                Some('.') => names.push(String::new()),
                _ => names.push(self.identifier()?),
            }
        }
        if names.len() > 3 {
            let message = format!("too many segments in {}", quoted_segments(&names));
            return Err(ParseError::Invalid { message, at: START });
        }
        Ok(names)
    }

    /// A regex, if one comes next. Only white space may stand before it, no comment.
    fn regex(&mut self) -> Parsed<Option<String>> {
        if self.lexer.peek_char().is_some_and(is_space) {
            let lexeme = self.raw();
            if lexeme.token != Token::Whitespace {
                self.put_back(lexeme);
            }
        }
        let lexeme = match self.lexer.peek_char() {
            // A parameter may stand for a regex.
            Some('$') => {
                let lexeme = self.raw();
                if lexeme.token != Token::Regex {
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
            Token::Regex => self.checked_regex(lexeme).map(Some),
            Token::BadRegex => Err(invalid(&lexeme, format!("bad regex: {}", lexeme.text))),
            _ => Err(unexpected(&lexeme, &["regex"])),
        }
    }

    fn checked_regex(&self, lexeme: Lexeme) -> Parsed<String> {
        match (self.options.regex_error)(&lexeme.text) {
            Some(message) => Err(invalid(&lexeme, message)),
            None => Ok(lexeme.text),
        }
    }

    /// Runs `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == MAX_NESTING {
            return Err(ParseError::Limit { what: "the depth of nesting", limit: MAX_NESTING });
        }
        self.nesting += 1;
        let parsed = inner(self);
        self.nesting -= 1;
        parsed
    }
}

/// The position of errors that InfluxDB reports without looking where they are.
const START: Position = Position { line: 1, char: 1 };

/// Names with dots between, all but the last in quotes, as InfluxDB prints them.
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

fn unexpected(lexeme: &Lexeme, expected: &[&'static str]) -> ParseError {
    ParseError::Unexpected { found: lexeme.found().to_owned(), expected: expected.to_vec(), at: lexeme.at }
}

fn invalid(lexeme: &Lexeme, message: impl Into<String>) -> ParseError {
    ParseError::Invalid { message: message.into(), at: lexeme.at }
}
