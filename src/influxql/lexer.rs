//! Text into tokens. The parser asks for one token after the other and says where a regex may stand, since only it
//! can tell a regex from a division.
//!
//! Positions are those that InfluxDB reports, with its habits: a string is placed at the character in front of its
//! opening quote, an escape at the character behind its backslash, and the end of the text moves on by one when a
//! word, white space or a look ahead ran into it.

use super::token::{Lexeme, Position, Token};

/// Reads characters and keeps their positions. A CR, with or without LF, is one LF.
#[derive(Debug)]
struct Reader<'q> {
    rest: std::str::Chars<'q>,
    next: Position,
    last: Position,
    /// Whether the end was read, not just seen. It is counted as one character then, once.
    ended: bool,
}

impl<'q> Reader<'q> {
    fn new(text: &'q str) -> Self {
        let start = Position { line: 1, char: 1 };
        Self { rest: text.chars(), next: start, last: start, ended: false }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next().map(|found| if found == '\r' { '\n' } else { found })
    }

    fn read(&mut self) -> Option<char> {
        let Some(mut found) = self.rest.next() else {
            self.last = self.next;
            self.next.char += usize::from(!self.ended);
            self.ended = true;
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

    /// Moves characters that are `wanted` into `text`.
    fn take_all(&mut self, text: &mut String, wanted: impl Fn(char) -> bool) {
        while let Some(found) = self.take_if(&wanted) {
            text.push(found);
        }
    }
}

/// What went wrong between two quotes.
enum BadQuote {
    /// A line's end or the text's end came first.
    Open(String),
    /// A backslash before a character that needs none.
    Escape(String),
}

/// The tokens of a query.
#[derive(Debug)]
pub(super) struct Lexer<'q> {
    reader: Reader<'q>,
}

impl<'q> Lexer<'q> {
    pub(super) fn new(text: &'q str) -> Self {
        Self { reader: Reader::new(text) }
    }

    /// The character behind the last token. Looking past the end of the text counts as reading it.
    pub(super) fn peek_char(&mut self) -> Option<char> {
        let found = self.reader.peek();
        if found.is_none() {
            self.reader.read();
        }
        found
    }

    /// The next token, white space and comments included.
    pub(super) fn lex(&mut self) -> Lexeme {
        let before = self.reader.last;
        let at = self.reader.next;
        let Some(first) = self.reader.peek() else {
            self.reader.read();
            return lexeme(Token::Eof, at, "");
        };
        match first {
            _ if is_space(first) => self.space(at),
            '"' | '_' | 'a'..='z' | 'A'..='Z' => self.word(at),
            '0'..='9' => self.number(at),
            '\'' => self.string(before),
            '.' if self.second().is_some_and(|second| second.is_ascii_digit()) => self.number(at),
            '$' => self.bound_parameter(at),
            _ => {
                self.reader.read();
                self.symbol(first, at)
            }
        }
    }

    /// The regex that starts at the slash which comes next.
    pub(super) fn regex(&mut self) -> Lexeme {
        let at = self.reader.last;
        if !self.reader.take('/') {
            return lexeme(Token::BadRegex, at, "");
        }
        let mut text = String::new();
        loop {
            match self.reader.read() {
                Some('/') => return Lexeme { token: Token::Regex, at, text },
                None | Some('\n') => return lexeme(Token::BadRegex, at, ""),
                // Only a slash needs the backslash for our sake. Any other belongs to the regex.
                Some('\\') if self.reader.take('/') => text.push('/'),
                Some(found) => text.push(found),
            }
        }
    }

    fn second(&self) -> Option<char> {
        self.reader.rest.clone().nth(1)
    }

    fn space(&mut self, at: Position) -> Lexeme {
        let mut text = String::new();
        self.reader.take_all(&mut text, is_space);
        self.note_end();
        Lexeme { token: Token::Whitespace, at, text }
    }

    /// Counts the end of the text as read if it comes next.
    fn note_end(&mut self) {
        if self.reader.peek().is_none() {
            self.reader.read();
        }
    }

    fn word(&mut self, at: Position) -> Lexeme {
        let bare = match self.identifier() {
            Ok(Name::Bare(text)) => text,
            Ok(Name::Quoted(text)) => return Lexeme { token: Token::Ident, at, text },
            Err(bad) => return bad,
        };
        match Token::keyword(&bare) {
            Some(token) => lexeme(token, at, ""),
            None => Lexeme { token: Token::Ident, at, text: bare },
        }
    }

    fn bound_parameter(&mut self, at: Position) -> Lexeme {
        self.reader.read();
        match self.identifier() {
            Ok(Name::Bare(text) | Name::Quoted(text)) => {
                Lexeme { token: Token::BoundParam, at, text: format!("${text}") }
            }
            Err(bad) => Lexeme { text: format!("${}", bad.text), at, ..bad },
        }
    }

    /// Letters and digits, or what stands in double quotes. A quote that follows a bare word replaces it, as it
    /// does in InfluxDB.
    fn identifier(&mut self) -> Result<Name, Lexeme> {
        let mut text = String::new();
        self.reader.take_all(&mut text, is_word);
        match self.reader.peek() {
            Some('"') => {
                let before = self.reader.last;
                self.quoted().map(Name::Quoted).map_err(|bad| self.bad_quote(bad, before))
            }
            Some(_) => Ok(Name::Bare(text)),
            None => {
                self.note_end();
                Ok(Name::Bare(text))
            }
        }
    }

    fn string(&mut self, before: Position) -> Lexeme {
        match self.quoted() {
            Ok(text) => Lexeme { token: Token::String, at: before, text },
            Err(bad) => self.bad_quote(bad, before),
        }
    }

    fn bad_quote(&self, bad: BadQuote, before: Position) -> Lexeme {
        match bad {
            BadQuote::Open(text) => Lexeme { token: Token::BadString, at: before, text },
            BadQuote::Escape(text) => Lexeme { token: Token::BadEscape, at: self.reader.last, text },
        }
    }

    fn quoted(&mut self) -> Result<String, BadQuote> {
        let quote = self.reader.read();
        let mut text = String::new();
        loop {
            match self.reader.read() {
                found if found == quote => return Ok(text),
                None | Some('\n') => return Err(BadQuote::Open(text)),
                Some('\\') => match self.reader.read() {
                    Some('n') => text.push('\n'),
                    Some(plain @ ('\\' | '"' | '\'')) => text.push(plain),
                    Some(other) => return Err(BadQuote::Escape(format!("\\{other}"))),
                    None => return Err(BadQuote::Escape("\\\0".to_owned())),
                },
                Some(found) => text.push(found),
            }
        }
    }

    /// A number, or a duration when letters follow the digits at once.
    fn number(&mut self, at: Position) -> Lexeme {
        let mut text = String::new();
        self.reader.take_all(&mut text, |found| found.is_ascii_digit());
        if self.reader.take('.') {
            if self.reader.peek().is_some_and(|found| found.is_ascii_digit()) {
                text.push('.');
                self.reader.take_all(&mut text, |found| found.is_ascii_digit());
            }
            return Lexeme { token: Token::Number, at, text };
        }
        let Some(unit) = self.reader.take_if(is_unit) else { return Lexeme { token: Token::Integer, at, text } };
        text.push(unit);
        self.reader.take_all(&mut text, |found| is_unit(found) || found.is_ascii_digit());
        Lexeme { token: Token::DurationValue, at, text }
    }

    /// What starts with `first`, which was read.
    fn symbol(&mut self, first: char, at: Position) -> Lexeme {
        let token = match first {
            '.' => Token::Dot,
            '+' => Token::Add,
            '-' if self.reader.take('-') => self.line_comment(),
            '-' => Token::Sub,
            '*' => Token::Mul,
            '/' if self.reader.take('*') => self.block_comment(),
            '/' => Token::Div,
            '%' => Token::Mod,
            '&' => Token::BitAnd,
            '|' => Token::BitOr,
            '^' => Token::BitXor,
            '=' if self.reader.take('~') => Token::EqRegex,
            '=' => Token::Eq,
            '!' if self.reader.take('=') => Token::NotEq,
            '!' if self.reader.take('~') => Token::NotEqRegex,
            '>' if self.reader.take('=') => Token::GreaterEq,
            '>' => Token::Greater,
            '<' if self.reader.take('=') => Token::LessEq,
            '<' if self.reader.take('>') => Token::NotEq,
            '<' => Token::Less,
            '(' => Token::LeftParen,
            ')' => Token::RightParen,
            ',' => Token::Comma,
            ';' => Token::Semicolon,
            ':' if self.reader.take(':') => Token::DoubleColon,
            ':' => Token::Colon,
            other => return Lexeme { token: Token::Illegal, at, text: other.to_string() },
        };
        lexeme(token, at, "")
    }

    fn line_comment(&mut self) -> Token {
        while self.reader.read().is_some_and(|found| found != '\n') {}
        Token::Comment
    }

    fn block_comment(&mut self) -> Token {
        loop {
            match self.reader.read() {
                None => return Token::Illegal,
                Some('*') if self.reader.take('/') => return Token::Comment,
                Some(_) => {}
            }
        }
    }
}

enum Name {
    Bare(String),
    Quoted(String),
}

fn lexeme(token: Token, at: Position, text: &str) -> Lexeme {
    Lexeme { token, at, text: text.to_owned() }
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

/// Whether an identifier must be quoted to be read as one.
pub(super) fn needs_quotes(name: &str) -> bool {
    Token::keyword(name).is_some()
        || name.starts_with(|first: char| !(first.is_ascii_alphabetic() || first == '_'))
        || !name.chars().all(is_word)
}
