//! Values as another type, where that says the same.

use super::Value;

/// The types that a value can be cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A 64-bit float.
    Float,
    /// A signed or unsigned integer.
    Integer,
    /// True or false.
    Boolean,
    /// Text.
    String,
}

/// The greatest magnitude up to which a float has every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl ValueType {
    /// The type of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "float" | "number" => Some(Self::Float),
            "integer" | "int" => Some(Self::Integer),
            "boolean" | "bool" => Some(Self::Boolean),
            "string" | "text" => Some(Self::String),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::String => "string",
        }
    }

    /// The family of its values.
    #[must_use]
    pub fn family(self) -> super::Family {
        match self {
            Self::Float | Self::Integer => super::Family::Number,
            Self::Boolean => super::Family::Boolean,
            Self::String => super::Family::String,
        }
    }

    /// The type that a value has.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Float(_) => Self::Float,
            Value::Integer(_) | Value::Unsigned(_) => Self::Integer,
            Value::Boolean(_) => Self::Boolean,
            Value::String(_) => Self::String,
        }
    }

    /// The value as this type; `None` if it would not say the same. Text is read as a decimal number (spaces around it are
    /// dropped) or as `true` or `false`, in any case; true and false are 1 and 0, and no other number is either.
    #[must_use]
    pub fn cast(self, value: &Value) -> Option<Value> {
        match self {
            Self::Float => float(value).map(Value::Float),
            Self::Integer => integer(value),
            Self::Boolean => boolean(value).map(Value::Boolean),
            Self::String => Some(Value::String(text(value).into())),
        }
    }
}

fn float(value: &Value) -> Option<f64> {
    let exact = |integer: i128| {
        #[expect(clippy::cast_precision_loss, reason = "checked on the next line")]
        let float = integer as f64;
        (float.abs() <= EXACT).then_some(float)
    };
    match value {
        Value::Float(float) => Some(*float),
        Value::Integer(integer) => exact(i128::from(*integer)),
        Value::Unsigned(integer) => exact(i128::from(*integer)),
        Value::Boolean(is) => Some(f64::from(u8::from(*is))),
        Value::String(text) => {
            let text = text.trim();
            // The parser also knows `inf` and `nan`.
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            text.parse().ok().filter(|float: &f64| is_number && float.is_finite())
        }
    }
}

fn integer(value: &Value) -> Option<Value> {
    let of = |integer: i128| {
        let signed = i64::try_from(integer).map(Value::Integer).ok();
        signed.or_else(|| u64::try_from(integer).map(Value::Unsigned).ok())
    };
    match value {
        Value::Integer(_) | Value::Unsigned(_) => Some(value.clone()),
        Value::Boolean(is) => Some(Value::Integer(i64::from(*is))),
        Value::Float(float) if float.fract() == 0.0 && float.abs() <= EXACT =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            of(*float as i128)
        }
        Value::Float(_) => None,
        Value::String(text) => match text.trim().parse::<i128>() {
            Ok(integer) => of(integer),
            Err(_) => self::integer(&Value::Float(float(value)?)),
        },
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(is) => Some(*is),
        Value::String(text) if text.trim().eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.trim().eq_ignore_ascii_case("false") => Some(false),
        other => match float(other)? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Float(float) => float.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::Unsigned(integer) => integer.to_string(),
        Value::Boolean(is) => is.to_string(),
        Value::String(text) => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_becomes_another_type_only_if_it_says_the_same() {
        use Value::{Boolean, Float, Integer, String, Unsigned};
        let s = |text: &str| String(text.into());
        for (to, value, expected) in [
            ("float", s(" 21.5 "), Some(Float(21.5))),
            ("float", s("-1e3"), Some(Float(-1000.0))),
            ("float", s("21,5"), None),
            ("float", s(""), None),
            ("float", s("nan"), None),
            ("float", s("inf"), None),
            ("float", s("1e999"), None),
            ("float", Integer(7), Some(Float(7.0))),
            ("float", Integer(i64::MAX), None),
            ("float", Boolean(true), Some(Float(1.0))),
            ("integer", s("7"), Some(Integer(7))),
            ("integer", s("7.0"), Some(Integer(7))),
            ("integer", s("7.5"), None),
            ("integer", s("18446744073709551615"), Some(Unsigned(u64::MAX))),
            ("integer", Float(1e300), None),
            ("integer", Float(-3.0), Some(Integer(-3))),
            ("boolean", s("TRUE"), Some(Boolean(true))),
            ("boolean", s("0"), Some(Boolean(false))),
            ("boolean", Float(0.5), None),
            ("boolean", s("yes"), None),
            ("string", Float(1.5), Some(s("1.5"))),
            ("string", Boolean(false), Some(s("false"))),
        ] {
            let kind = ValueType::from_name(to).expect("known");
            assert_eq!(kind.cast(&value), expected, "{value:?} to {to}");
            assert_eq!(ValueType::from_name(kind.name()), Some(kind));
            assert!(expected.is_none_or(|value| value.family() == kind.family()));
        }
        assert_eq!(ValueType::from_name("Float"), None);
    }
}
