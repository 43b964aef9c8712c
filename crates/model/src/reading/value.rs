//! Field values: the five types of line protocol, and their families. A field cannot mix families.

use std::borrow::Cow;

/// A field's value as a bucket stores it.
///
/// An unsigned number that fits an `i64` is a [`Value::Integer`]: stores have one integer type, so `5u` and `5i` must
/// be equal here too.
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

/// A parsed field value that borrows its text from the request body if possible.
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
    /// The value as a bucket stores it.
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

    /// The value's family.
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
    /// Equal means the same type and the same bits: `0.0` and `-0.0` differ, as do `5` and `5.0`. A reading is
    /// therefore a duplicate exactly if storing it again would change nothing.
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
    /// Compares by an arbitrary total order of type and bits. It decides between two records with equal stamps, so that
    /// every instance chooses the same value.
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

    /// The name of the value's type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Float(_) => "float",
            Self::Integer(_) => "integer",
            Self::Unsigned(_) => "unsigned",
            Self::Boolean(_) => "boolean",
            Self::String(_) => "string",
        }
    }

    /// The value's family.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Float(_) | Self::Integer(_) | Self::Unsigned(_) => Family::Number,
            Self::Boolean(_) => Family::Boolean,
            Self::String(_) => Family::String,
        }
    }
}

/// The family of a value. Values of one family can be aggregated together; a field keeps the family of its first value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Floats and integers.
    Number,
    /// Booleans.
    Boolean,
    /// Text.
    String,
}

named!(Family: Number "number", Boolean "boolean", String "string");

impl Family {
    /// The name of the field that stores values of this family for a field of another family: `temp@string`.
    #[must_use]
    pub fn beside(self, field: &str) -> String {
        format!("{field}@{}", self.name())
    }

    /// The inverse of [`Family::beside`]: splits `temp@string` into `temp` and [`Family::String`]. `None` for a name
    /// without such a suffix.
    #[must_use]
    pub fn kept_beside(name: &str) -> Option<(&str, Self)> {
        let (field, family) = name.rsplit_once('@')?;
        Some((field, Self::from_name(family)?)).filter(|(field, _)| !field.is_empty())
    }
}
