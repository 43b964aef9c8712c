//! Parses expressions: operators by precedence, operands, calls.

use super::super::ast::{Expr, Literal, Operator, ReferenceKind, WildcardKind};
use super::super::duration;
use super::super::error::ParseError;
use super::super::token::{Lexeme, TokenKind};
use super::{MAX_HEIGHT, MAX_TERMS, Parsed, Parser, invalid, parameter_name, unexpected};

/// An expression and the height of its tree.
struct Tree {
    expr: Expr,
    height: usize,
}

impl From<Expr> for Tree {
    fn from(expr: Expr) -> Self {
        Self { expr, height: 1 }
    }
}

impl Tree {
    fn wrap(self, outer: impl FnOnce(Expr) -> Expr) -> Parsed<Tree> {
        check_height(Tree { expr: outer(self.expr), height: self.height + 1 })
    }

    fn join(self, operator: Operator, right: Tree) -> Parsed<Tree> {
        let height = self.height.max(right.height) + 1;
        check_height(Tree { expr: Expr::binary(operator, self.expr, right.expr), height })
    }
}

fn check_height(tree: Tree) -> Parsed<Tree> {
    if tree.height > MAX_HEIGHT {
        return Err(ParseError::limit("the number of operators in one expression", MAX_HEIGHT));
    }
    Ok(tree)
}

impl Parser<'_, '_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.tree().map(|tree| tree.expr)
    }

    fn tree(&mut self) -> Parsed<Tree> {
        self.descend(|parser| {
            let first = parser.operand()?;
            parser.climb(first, 0)
        })
    }

    /// Precedence climbing: extends `left` by all following operators that bind at least as tightly as `loosest`.
    fn climb(&mut self, mut left: Tree, loosest: u8) -> Parsed<Tree> {
        loop {
            let lexeme = self.next();
            let operator = match operator(lexeme.token) {
                Some(operator) if operator.precedence() >= loosest => operator,
                _ => {
                    self.put_back(lexeme);
                    return Ok(left);
                }
            };
            self.terms += usize::from(matches!(operator, Operator::And | Operator::Or));
            if self.terms > MAX_TERMS {
                return Err(ParseError::limit("the number of AND and OR in one statement", MAX_TERMS));
            }
            let right = if matches!(operator, Operator::EqRegex | Operator::NotEqRegex) {
                Tree::from(Expr::Literal(Literal::Regex(self.required_regex()?)))
            } else {
                self.operand()?
            };
            let right = self.climb(right, operator.precedence() + 1)?;
            left = left.join(operator, right)?;
        }
    }

    pub(super) fn required_regex(&mut self) -> Parsed<String> {
        match self.regex()? {
            Some(pattern) => Ok(pattern),
            None => Err(unexpected(&self.next(), &["regex"])),
        }
    }

    fn operand(&mut self) -> Parsed<Tree> {
        let lexeme = self.next();
        let literal = match lexeme.token {
            TokenKind::LeftParen => {
                let inner = self.tree()?;
                self.expect(TokenKind::RightParen)?;
                return inner.wrap(|expr| Expr::Paren(Box::new(expr)));
            }
            TokenKind::Ident => return self.call_or_reference(lexeme.text),
            TokenKind::Distinct => return self.distinct(),
            TokenKind::Mul => return self.wildcard(),
            TokenKind::Add | TokenKind::Sub => return self.signed_operand(lexeme.token == TokenKind::Sub),
            TokenKind::String => Literal::String(lexeme.text),
            TokenKind::Number => number(&lexeme)?,
            TokenKind::Integer => integer(&lexeme)?,
            TokenKind::True => Literal::Boolean(true),
            TokenKind::False => Literal::Boolean(false),
            TokenKind::DurationValue => Literal::Duration(duration::parse(&lexeme.text).map_err(ParseError)?),
            TokenKind::Regex => Literal::Regex(self.checked_regex(lexeme)?),
            TokenKind::BoundParam => return Err(unbound(&lexeme)),
            _ => return Err(unexpected(&lexeme, &["identifier", "string", "number", "bool"])),
        };
        Ok(Expr::Literal(literal).into())
    }

    /// Parses an expression that starts with a name: a call if a parenthesis follows immediately, or else a reference.
    fn call_or_reference(&mut self, name: String) -> Parsed<Tree> {
        if self.accept_raw(TokenKind::LeftParen) { self.call(&name) } else { self.reference(name).map(Tree::from) }
    }

    fn reference(&mut self, first: String) -> Parsed<Expr> {
        let name = self.segments(Some(first))?.join(".");
        let kind = if self.accept_raw(TokenKind::DoubleColon) { Some(self.kind()?) } else { None };
        Ok(Expr::Reference { name, kind })
    }

    fn kind(&mut self) -> Parsed<ReferenceKind> {
        const KINDS: [ReferenceKind; 5] = [
            ReferenceKind::Float,
            ReferenceKind::Integer,
            ReferenceKind::Unsigned,
            ReferenceKind::String,
            ReferenceKind::Boolean,
        ];
        let lexeme = self.raw();
        match lexeme.token {
            TokenKind::Field => Ok(ReferenceKind::Field),
            TokenKind::Tag => Ok(ReferenceKind::Tag),
            TokenKind::Ident => {
                let kind = KINDS.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(&lexeme.text));
                let expected = ["float", "integer", "unsigned", "string", "boolean", "field", "tag"];
                kind.ok_or_else(|| unexpected(&lexeme, &expected))
            }
            // InfluxDB's message for a token that is not a name does not list `unsigned`.
            _ => Err(unexpected(&lexeme, &["float", "integer", "string", "boolean", "field", "tag"])),
        }
    }

    fn wildcard(&mut self) -> Parsed<Tree> {
        if !self.accept_raw(TokenKind::DoubleColon) {
            return Ok(Expr::Wildcard(WildcardKind::All).into());
        }
        let lexeme = self.raw();
        match lexeme.token {
            TokenKind::Field => Ok(Expr::Wildcard(WildcardKind::Field).into()),
            TokenKind::Tag => Ok(Expr::Wildcard(WildcardKind::Tag).into()),
            _ => Err(unexpected(&lexeme, &["field", "tag"])),
        }
    }

    /// `distinct(…)` or `DISTINCT name`.
    fn distinct(&mut self) -> Parsed<Tree> {
        let lexeme = self.raw();
        match lexeme.token {
            TokenKind::LeftParen => self.call("distinct"),
            TokenKind::Whitespace => self.identifier().map(|name| Expr::Distinct(name).into()),
            _ => Err(unexpected(&lexeme, &["(", "identifier"])),
        }
    }

    /// Parses the operand of a sign. The sign of a constant is applied; any other operand is multiplied by 1 or -1.
    fn signed_operand(&mut self, negative: bool) -> Parsed<Tree> {
        let lexeme = self.next();
        if !matches!(
            lexeme.token,
            TokenKind::Number | TokenKind::Integer | TokenKind::DurationValue | TokenKind::LeftParen | TokenKind::Ident
        ) {
            return Err(unexpected(&lexeme, &["identifier", "number", "duration", "("]));
        }
        self.put_back(lexeme);
        let operand = self.operand()?;
        let factor = if negative { -1 } else { 1 };
        let literal = match operand.expr {
            Expr::Literal(Literal::Number(value)) if negative => Literal::Number(-value),
            Expr::Literal(Literal::Integer(value)) => Literal::Integer(value.wrapping_mul(factor)),
            Expr::Literal(Literal::Duration(value)) => Literal::Duration(value.wrapping_mul(factor)),
            Expr::Literal(Literal::Unsigned(value)) if negative => match 0_i64.checked_sub_unsigned(value) {
                Some(value) => Literal::Integer(value),
                None => return Err(ParseError(format!("constant -{value} underflows int64"))),
            },
            Expr::Literal(literal) => literal,
            _ => return Tree::from(Expr::Literal(Literal::Integer(factor))).join(Operator::Mul, operand),
        };
        Ok(Expr::Literal(literal).into())
    }

    /// Parses the arguments of a call after its opening parenthesis.
    fn call(&mut self, name: &str) -> Parsed<Tree> {
        let name = name.to_lowercase();
        let mut args = Vec::new();
        let mut height = 0;
        loop {
            let arg = match self.regex()? {
                Some(pattern) => Expr::Literal(Literal::Regex(pattern)).into(),
                None if args.is_empty() && self.accept_raw(TokenKind::RightParen) => {
                    return Ok(Expr::Call { name, args }.into());
                }
                None => self.tree()?,
            };
            height = height.max(arg.height);
            args.push(arg.expr);
            if !self.accept(TokenKind::Comma) {
                break;
            }
        }
        self.expect(TokenKind::RightParen)?;
        check_height(Tree { expr: Expr::Call { name, args }, height: height + 1 })
    }
}

fn number(lexeme: &Lexeme) -> Parsed<Literal> {
    let value: Option<f64> = lexeme.text.parse().ok().filter(|value: &f64| value.is_finite());
    value.map(Literal::Number).ok_or_else(|| invalid(lexeme, "unable to parse number"))
}

fn integer(lexeme: &Lexeme) -> Parsed<Literal> {
    if let Ok(value) = lexeme.text.parse() {
        return Ok(Literal::Integer(value));
    }
    lexeme.text.parse().map(Literal::Unsigned).map_err(|_| invalid(lexeme, "unable to parse integer"))
}

fn unbound(lexeme: &Lexeme) -> ParseError {
    match parameter_name(lexeme) {
        "" => ParseError("empty bound parameter".to_owned()),
        name => ParseError(format!("missing parameter: {name}")),
    }
}

fn operator(token: TokenKind) -> Option<Operator> {
    Some(match token {
        TokenKind::Or => Operator::Or,
        TokenKind::And => Operator::And,
        TokenKind::Eq => Operator::Eq,
        TokenKind::NotEq => Operator::NotEq,
        TokenKind::EqRegex => Operator::EqRegex,
        TokenKind::NotEqRegex => Operator::NotEqRegex,
        TokenKind::Less => Operator::Less,
        TokenKind::LessEq => Operator::LessEq,
        TokenKind::Greater => Operator::Greater,
        TokenKind::GreaterEq => Operator::GreaterEq,
        TokenKind::Add => Operator::Add,
        TokenKind::Sub => Operator::Sub,
        TokenKind::BitOr => Operator::BitOr,
        TokenKind::BitXor => Operator::BitXor,
        TokenKind::Mul => Operator::Mul,
        TokenKind::Div => Operator::Div,
        TokenKind::Mod => Operator::Mod,
        TokenKind::BitAnd => Operator::BitAnd,
        _ => return None,
    })
}
