//! The syntax tree of expressions.

/// An expression of any clause.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A field, a tag or `time`. Segments separated by dots are joined into one name.
    Reference {
        /// The name.
        name: String,
        /// `::kind`, if stated.
        kind: Option<ReferenceKind>,
    },
    /// A constant.
    Literal(Literal),
    /// `left operator right`
    Binary {
        /// The operator.
        operator: Operator,
        /// The left side.
        left: Box<Expr>,
        /// The right side.
        right: Box<Expr>,
    },
    /// `(…)`, kept so that the expression prints as written.
    Paren(Box<Expr>),
    /// `name(args…)`, the name in lower case.
    Call {
        /// The function.
        name: String,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `*`, `*::field` or `*::tag`
    Wildcard(WildcardKind),
    /// `DISTINCT name`, which means `distinct(name)`.
    Distinct(String),
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `1`
    Integer(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// `1.5`
    Number(f64),
    /// `'text'`
    String(String),
    /// `true`
    Boolean(bool),
    /// `1h30m`, in nanoseconds.
    Duration(i64),
    /// `/pattern/`
    Regex(String),
    /// A point in time in nanoseconds, in the range of all years that can be written. Only folding produces it, for
    /// example from `now() - 1h`.
    Time(i128),
}

/// The stated type of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// A float field.
    Float,
    /// An integer field.
    Integer,
    /// An unsigned field.
    Unsigned,
    /// A string field.
    String,
    /// A boolean field.
    Boolean,
    /// A field of any type.
    Field,
    /// A tag.
    Tag,
}

/// The expansion of a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WildcardKind {
    /// Fields and tags.
    All,
    /// Fields.
    Field,
    /// Tags.
    Tag,
}

/// Binary operators, from the lowest to the highest precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operator {
    Or,
    And,
    Eq,
    NotEq,
    EqRegex,
    NotEqRegex,
    Less,
    LessEq,
    Greater,
    GreaterEq,
    Add,
    Sub,
    BitOr,
    BitXor,
    Mul,
    Div,
    Mod,
    BitAnd,
}

impl Operator {
    /// The precedence; greater numbers bind tighter. All operators are left-associative.
    pub(in super::super) fn precedence(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And => 2,
            Operator::Add | Operator::Sub | Operator::BitOr | Operator::BitXor => 4,
            Operator::Mul | Operator::Div | Operator::Mod | Operator::BitAnd => 5,
            _ => 3,
        }
    }

    /// Returns true if the result is a boolean.
    #[must_use]
    pub fn is_boolean(self) -> bool {
        self.precedence() < 4
    }

    /// The operator's text; `==` prints as `=`, `<>` as `!=`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::Or => "OR",
            Operator::And => "AND",
            Operator::Eq => "=",
            Operator::NotEq => "!=",
            Operator::EqRegex => "=~",
            Operator::NotEqRegex => "!~",
            Operator::Less => "<",
            Operator::LessEq => "<=",
            Operator::Greater => ">",
            Operator::GreaterEq => ">=",
            Operator::Add => "+",
            Operator::Sub => "-",
            Operator::BitOr => "|",
            Operator::BitXor => "^",
            Operator::Mul => "*",
            Operator::Div => "/",
            Operator::Mod => "%",
            Operator::BitAnd => "&",
        }
    }
}

impl ReferenceKind {
    /// The kind's text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ReferenceKind::Float => "float",
            ReferenceKind::Integer => "integer",
            ReferenceKind::Unsigned => "unsigned",
            ReferenceKind::String => "string",
            ReferenceKind::Boolean => "boolean",
            ReferenceKind::Field => "field",
            ReferenceKind::Tag => "tag",
        }
    }
}

impl Expr {
    /// A reference without a kind.
    #[must_use]
    pub fn reference(name: &str) -> Self {
        Expr::Reference { name: name.to_owned(), kind: None }
    }

    /// The expression `left operator right`.
    #[must_use]
    pub fn binary(operator: Operator, left: Expr, right: Expr) -> Self {
        Expr::Binary { operator, left: Box::new(left), right: Box::new(right) }
    }

    /// Calls `visit` with the expression and then each of its parts, depth first and from left to right.
    pub fn each<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        visit(self);
        match self {
            Expr::Binary { left, right, .. } => {
                left.each(visit);
                right.each(visit);
            }
            Expr::Paren(inner) => inner.each(visit),
            Expr::Call { args, .. } => args.iter().for_each(|arg| arg.each(visit)),
            Expr::Reference { .. } | Expr::Literal(_) | Expr::Wildcard(_) | Expr::Distinct(_) => {}
        }
    }

    /// Returns true for the reference `time`, ignoring case.
    #[must_use]
    pub fn is_time(&self) -> bool {
        matches!(self, Expr::Reference { name, .. } if name.eq_ignore_ascii_case("time"))
    }
}
