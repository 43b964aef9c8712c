//! Field values: the five types of line protocol, and the families that may not be mixed.

use std::borrow::Cow;

/// A field's value as a bucket keeps it.
///
/// An unsigned number that an `i64` can hold is an [`Value::Integer`]: stores have one integer
/// type, so `5u` and `5i` must be the same value here too.
#[derive(Debug, Clone)]
pub enum Value {
    /// A finite 64-bit float.
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer above `i64::MAX`.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// UTF-8 text.
    String(Box<str>),
}

/// A field's value as it was parsed, borrowing its text from the request body where it can.
#[derive(Debug, Clone, PartialEq)]
pub enum RawValue<'a> {
    /// A finite 64-bit float.
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer of any size.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// UTF-8 text, unescaped.
    String(Cow<'a, str>),
}

impl RawValue<'_> {
    /// The value as a bucket keeps it.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Float(v) => Value::Float(v),
            Self::Integer(v) => Value::Integer(v),
            Self::Unsigned(v) => i64::try_from(v).map_or(Value::Unsigned(v), Value::Integer),
            Self::Boolean(v) => Value::Boolean(v),
            Self::String(v) => Value::String(v.into()),
        }
    }

    /// The family this value belongs to.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Float(_) | Self::Integer(_) | Self::Unsigned(_) => Family::Number,
            Self::Boolean(_) => Family::Boolean,
            Self::String(_) => Family::String,
        }
    }
}

impl PartialEq for Value {
    /// Same kind and same bits: `0.0` and `-0.0` differ, as do `5` and `5.0`. A resent reading is
    /// a duplicate exactly when storing it again would change nothing.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Unsigned(a), Self::Unsigned(b)) => a == b,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            _ => false,
        }
    }
}

impl Value {
    /// Whether it comes behind the other one in an order of all values, by kind and bits: what decides between two records
    /// with one stamp, so that the same one wins everywhere.
    #[must_use]
    pub fn is_greater(&self, other: &Self) -> bool {
        let kind = |value: &Self| match value {
            Self::Float(v) => (0, v.to_bits()),
            Self::Integer(v) => (1, v.cast_unsigned()),
            Self::Unsigned(v) => (2, *v),
            Self::Boolean(v) => (3, u64::from(*v)),
            Self::String(_) => (4, 0),
        };
        match (self, other) {
            (Self::String(one), Self::String(other)) => one > other,
            (one, other) => kind(one) > kind(other),
        }
    }

    /// The family this value belongs to.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Float(_) | Self::Integer(_) | Self::Unsigned(_) => Family::Number,
            Self::Boolean(_) => Family::Boolean,
            Self::String(_) => Family::String,
        }
    }
}

/// Values of one family can be folded and compared; a field keeps the family of its first value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Floats and integers.
    Number,
    /// Booleans.
    Boolean,
    /// Text.
    String,
}

impl Family {
    /// The name used in sensor documents and in error texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::String => "string",
        }
    }

    /// The family of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Number, Self::Boolean, Self::String].into_iter().find(|f| f.name() == name)
    }
}
