//! The tokens of InfluxQL and their names in error messages.

use std::fmt;

/// Defines the enum, the name of each token, and the list of keywords.
macro_rules! tokens {
    (plain { $($plain:ident => $text:literal),* $(,)? } keywords { $($keyword:ident => $word:literal),* $(,)? }) => {
        /// The kinds of tokens.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum TokenKind { $($plain,)* $($keyword,)* }

        impl TokenKind {
            /// The token's name in messages, used for tokens without text.
            pub(super) fn as_str(self) -> &'static str {
                match self { $(TokenKind::$plain => $text,)* $(TokenKind::$keyword => $word,)* }
            }
        }

        const KEYWORDS: &[(&str, TokenKind)] = &[$(($word, TokenKind::$keyword)),*];
    };
}

tokens! {
    plain {
        Illegal => "ILLEGAL", Eof => "EOF", Whitespace => "WS", Comment => "COMMENT",
        Ident => "IDENT", BoundParam => "BOUNDPARAM", Number => "NUMBER", Integer => "INTEGER",
        DurationValue => "DURATIONVAL", String => "STRING", BadString => "BADSTRING", BadEscape => "BADESCAPE",
        Regex => "REGEX", BadRegex => "BADREGEX",
        Add => "+", Sub => "-", Mul => "*", Div => "/", Mod => "%",
        BitAnd => "&", BitOr => "|", BitXor => "^",
        Eq => "=", NotEq => "!=", EqRegex => "=~", NotEqRegex => "!~",
        Less => "<", LessEq => "<=", Greater => ">", GreaterEq => ">=",
        LeftParen => "(", RightParen => ")", Comma => ",", Colon => ":", DoubleColon => "::",
        Semicolon => ";", Dot => ".",
    }
    keywords {
        And => "AND", Or => "OR", True => "TRUE", False => "FALSE",
        All => "ALL", Alter => "ALTER", Analyze => "ANALYZE", Any => "ANY", As => "AS", Asc => "ASC",
        Begin => "BEGIN", By => "BY", Cardinality => "CARDINALITY", Create => "CREATE",
        Continuous => "CONTINUOUS", Database => "DATABASE", Databases => "DATABASES", Default => "DEFAULT",
        Delete => "DELETE", Desc => "DESC", Destinations => "DESTINATIONS", Diagnostics => "DIAGNOSTICS",
        Distinct => "DISTINCT", Drop => "DROP", Duration => "DURATION", End => "END", Every => "EVERY",
        Exact => "EXACT", Explain => "EXPLAIN", Field => "FIELD", For => "FOR", From => "FROM",
        Grant => "GRANT", Grants => "GRANTS", Group => "GROUP", Groups => "GROUPS", In => "IN", Inf => "INF",
        Insert => "INSERT", Into => "INTO", Key => "KEY", Keys => "KEYS", Kill => "KILL", Limit => "LIMIT",
        Measurement => "MEASUREMENT", Measurements => "MEASUREMENTS", Name => "NAME", Offset => "OFFSET",
        On => "ON", Order => "ORDER", Password => "PASSWORD", Policy => "POLICY", Policies => "POLICIES",
        Privileges => "PRIVILEGES", Queries => "QUERIES", Query => "QUERY", Read => "READ",
        Replication => "REPLICATION", Resample => "RESAMPLE", Retention => "RETENTION", Revoke => "REVOKE",
        Select => "SELECT", Series => "SERIES", Set => "SET", Show => "SHOW", Shard => "SHARD",
        Shards => "SHARDS", SLimit => "SLIMIT", SOffset => "SOFFSET", Stats => "STATS",
        Subscription => "SUBSCRIPTION", Subscriptions => "SUBSCRIPTIONS", Tag => "TAG", To => "TO",
        User => "USER", Users => "USERS", Values => "VALUES", Where => "WHERE", With => "WITH",
        Write => "WRITE",
    }
}

impl TokenKind {
    /// The keyword that equals `word`, ignoring case.
    pub(super) fn keyword(word: &str) -> Option<TokenKind> {
        KEYWORDS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)).map(|&(_, token)| token)
    }
}

/// A position in the query. Both numbers start at 1 and count characters, not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The line.
    pub(super) line: usize,
    /// The character in the line.
    pub(super) char: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, char {}", self.line, self.char)
    }
}

/// A token with its position and text; the text is empty for keywords and operators.
#[derive(Debug, Clone)]
pub(super) struct Lexeme {
    pub(super) token: TokenKind,
    pub(super) position: Position,
    pub(super) text: String,
}

impl Lexeme {
    /// The token's text for error messages.
    pub(super) fn message_text(&self) -> &str {
        if self.text.is_empty() { self.token.as_str() } else { &self.text }
    }
}
