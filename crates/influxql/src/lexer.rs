//! Splits text into tokens. The parser requests one token at a time, and requests a regex where one may start, because
//! the lexer cannot distinguish a regex from a division.
//!
//! Positions are those that InfluxDB reports, including its quirks:
//!
//! * A string is placed at the character before its opening quote: in `show measurements on 'db'` at character 21,
//!   though the quote is character 22.
//! * An invalid escape is placed at the character after its backslash: in `select value from cpu where host = 'a\qb'`
//!   at character 39, the `q`.
//! * The position of the end increases by one once a word, white space or a lookahead has reached it. After `show` it
//!   is character 6, after `select *` character 9.

use super::token::{Lexeme, Position, TokenKind};

/// A lexer that tracks positions. A CR, with or without LF, counts as one LF.
#[derive(Debug)]
pub(super) struct Lexer<'q> {
    rest: std::str::Chars<'q>,
    next: Position,
    last: Position,
    /// True if the end was read and not only peeked at. It counts as one character.
    has_ended: bool,
}

impl<'q> Lexer<'q> {
    pub(super) fn new(text: &'q str) -> Self {
        let start = Position { line: 1, char: 1 };
        Self { rest: text.chars(), next: start, last: start, has_ended: false }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next().map(|found| if found == '\r' { '\n' } else { found })
    }

    fn read(&mut self) -> Option<char> {
        let Some(mut found) = self.rest.next() else {
            self.last = self.next;
            self.next.char += usize::from(!self.has_ended);
            self.has_ended = true;
            return None;
        };
        if found == '\r' {
            if self.rest.as_str().starts_with('\n') {
                self.rest.next();
            }
            found = '\n';
        }
        self.last = self.next;
        if found == '\n' {
            self.next = Position { line: self.next.line + 1, char: 1 };
        } else {
            self.next.char += 1;
        }
        Some(found)
    }

    /// Reads the next character if it is `wanted`.
    fn take(&mut self, wanted: char) -> bool {
        self.take_if(|found| found == wanted).is_some()
    }

    fn take_if(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        let found = self.peek().filter(|&found| wanted(found))?;
        self.read();
        Some(found)
    }

    /// Reads characters into `text` while they are `wanted`.
    fn take_all(&mut self, text: &mut String, wanted: impl Fn(char) -> bool) {
        while let Some(found) = self.take_if(&wanted) {
            text.push(found);
        }
    }

    /// Peeks at the character after the last token. A peek at the end of the text counts as reading it.
    pub(super) fn peek_char(&mut self) -> Option<char> {
        let found = self.peek();
        if found.is_none() {
            self.read();
        }
        found
    }

    /// Reads the next token, including white space and comments.
    pub(super) fn lex(&mut self) -> Lexeme {
        let previous = self.last;
        let position = self.next;
        let Some(first) = self.peek_char() else { return lexeme(TokenKind::Eof, position, "") };
        match first {
            _ if is_space(first) => self.space(position),
            '"' | '_' | 'a'..='z' | 'A'..='Z' => self.word(position),
            '0'..='9' => self.number(position),
            '\'' => self.string(previous),
            '.' if self.second().is_some_and(|second| second.is_ascii_digit()) => self.number(position),
            '$' => self.bound_parameter(position),
            _ => {
                self.read();
                self.symbol(first, position)
            }
        }
    }

    /// Reads a regex, which must start with the next character.
    pub(super) fn regex(&mut self) -> Lexeme {
        let position = self.last;
        if !self.take('/') {
            return lexeme(TokenKind::BadRegex, position, "");
        }
        let mut text = String::new();
        loop {
            match self.read() {
                Some('/') => return Lexeme { token: TokenKind::Regex, position, text },
                None | Some('\n') => return lexeme(TokenKind::BadRegex, position, ""),
                // Only the escape of a slash is ours; any other backslash belongs to the regex.
                Some('\\') if self.take('/') => text.push('/'),
                Some(found) => text.push(found),
            }
        }
    }

    fn second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    fn space(&mut self, position: Position) -> Lexeme {
        let mut text = String::new();
        self.take_all(&mut text, is_space);
        self.peek_char();
        Lexeme { token: TokenKind::Whitespace, position, text }
    }

    fn word(&mut self, position: Position) -> Lexeme {
        let (text, is_quoted) = match self.identifier() {
            Ok(name) => name,
            Err(bad) => return bad,
        };
        match TokenKind::keyword(&text).filter(|_| !is_quoted) {
            Some(token) => lexeme(token, position, ""),
            None => Lexeme { token: TokenKind::Ident, position, text },
        }
    }

    fn bound_parameter(&mut self, position: Position) -> Lexeme {
        self.read();
        match self.identifier() {
            Ok((text, _)) => Lexeme { token: TokenKind::BoundParam, position, text: format!("${text}") },
            Err(bad) => Lexeme { text: format!("${}", bad.text), position, ..bad },
        }
    }

    /// Reads letters and digits, or a quoted text; returns true with the text if it was quoted. A quoted text directly
    /// after a bare word replaces the word, as in InfluxDB.
    fn identifier(&mut self) -> Result<(String, bool), Lexeme> {
        let mut text = String::new();
        self.take_all(&mut text, is_word);
        if self.peek() == Some('"') {
            let previous = self.last;
            return self.quoted(previous).map(|text| (text, true));
        }
        self.peek_char();
        Ok((text, false))
    }

    fn string(&mut self, previous: Position) -> Lexeme {
        match self.quoted(previous) {
            Ok(text) => Lexeme { token: TokenKind::String, position: previous, text },
            Err(bad) => bad,
        }
    }

    /// Reads a quoted text. `previous` is the position before the opening quote.
    fn quoted(&mut self, previous: Position) -> Result<String, Lexeme> {
        let quote = self.read();
        let mut text = String::new();
        loop {
            match self.read() {
                found if found == quote => return Ok(text),
                None | Some('\n') => return Err(Lexeme { token: TokenKind::BadString, position: previous, text }),
                Some('\\') => match self.read() {
                    Some('n') => text.push('\n'),
                    Some(plain @ ('\\' | '"' | '\'')) => text.push(plain),
                    other => {
                        let text = format!("\\{}", other.unwrap_or('\0'));
                        return Err(Lexeme { token: TokenKind::BadEscape, position: self.last, text });
                    }
                },
                Some(found) => text.push(found),
            }
        }
    }

    /// Reads a number, or a duration if letters follow the digits immediately.
    fn number(&mut self, position: Position) -> Lexeme {
        let mut text = String::new();
        self.take_all(&mut text, |found| found.is_ascii_digit());
        if self.take('.') {
            if self.peek().is_some_and(|found| found.is_ascii_digit()) {
                text.push('.');
                self.take_all(&mut text, |found| found.is_ascii_digit());
            }
            return Lexeme { token: TokenKind::Number, position, text };
        }
        let Some(unit) = self.take_if(is_unit) else { return Lexeme { token: TokenKind::Integer, position, text } };
        text.push(unit);
        self.take_all(&mut text, |found| is_unit(found) || found.is_ascii_digit());
        Lexeme { token: TokenKind::DurationValue, position, text }
    }

    /// Reads the rest of the token that starts with `first`.
    fn symbol(&mut self, first: char, position: Position) -> Lexeme {
        let token = match first {
            '.' => TokenKind::Dot,
            '+' => TokenKind::Add,
            '-' if self.take('-') => self.line_comment(),
            '-' => TokenKind::Sub,
            '*' => TokenKind::Mul,
            '/' if self.take('*') => self.block_comment(),
            '/' => TokenKind::Div,
            '%' => TokenKind::Mod,
            '&' => TokenKind::BitAnd,
            '|' => TokenKind::BitOr,
            '^' => TokenKind::BitXor,
            '=' if self.take('~') => TokenKind::EqRegex,
            '=' => TokenKind::Eq,
            '!' if self.take('=') => TokenKind::NotEq,
            '!' if self.take('~') => TokenKind::NotEqRegex,
            '>' if self.take('=') => TokenKind::GreaterEq,
            '>' => TokenKind::Greater,
            '<' if self.take('=') => TokenKind::LessEq,
            '<' if self.take('>') => TokenKind::NotEq,
            '<' => TokenKind::Less,
            '(' => TokenKind::LeftParen,
            ')' => TokenKind::RightParen,
            ',' => TokenKind::Comma,
            ';' => TokenKind::Semicolon,
            ':' if self.take(':') => TokenKind::DoubleColon,
            ':' => TokenKind::Colon,
            other => return Lexeme { token: TokenKind::Illegal, position, text: other.to_string() },
        };
        lexeme(token, position, "")
    }

    fn line_comment(&mut self) -> TokenKind {
        while self.read().is_some_and(|found| found != '\n') {}
        TokenKind::Comment
    }

    fn block_comment(&mut self) -> TokenKind {
        loop {
            match self.read() {
                None => return TokenKind::Illegal,
                Some('*') if self.take('/') => return TokenKind::Comment,
                Some(_) => {}
            }
        }
    }
}

fn lexeme(token: TokenKind, position: Position, text: &str) -> Lexeme {
    Lexeme { token, position, text: text.to_owned() }
}

pub(super) fn is_space(found: char) -> bool {
    matches!(found, ' ' | '\t' | '\n')
}

fn is_word(found: char) -> bool {
    found.is_ascii_alphanumeric() || found == '_'
}

fn is_unit(found: char) -> bool {
    found.is_ascii_alphabetic() || found == 'µ'
}

/// Returns true if an identifier must be quoted.
pub(super) fn needs_quotes(name: &str) -> bool {
    TokenKind::keyword(name).is_some()
        || name.starts_with(|first: char| !(first.is_ascii_alphabetic() || first == '_'))
        || !name.chars().all(is_word)
}
