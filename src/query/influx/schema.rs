//! The fields and tags of the sources of a SELECT.

use std::collections::{BTreeMap, BTreeSet};

use crate::bucket::meta::META_PREFIX;
use crate::influxql::ReferenceKind;
use crate::query::engine::memory::NAME_BYTES;
use crate::query::engine::plan::{PlannedField, rank};
use crate::reading::Family;

/// The fields and tags of a SELECT's sources.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// Fields with the families of their values, in InfluxDB's order. A name without a type means the first family.
    pub fields: BTreeMap<String, Vec<Family>>,
    /// Tag keys.
    pub tags: BTreeSet<String>,
    /// True if a source is a subquery, whose tags can be selected without a field.
    pub has_rows: bool,
    /// Bytes of memory of the names.
    pub bytes: usize,
}

impl Schema {
    pub fn add(&mut self, name: &str, family: Family) {
        match self.fields.get_mut(name) {
            Some(known) if known.contains(&family) => {}
            Some(known) => {
                known.push(family);
                known.sort_by_key(|family| rank(*family));
            }
            None => {
                self.bytes += name.len() + NAME_BYTES;
                self.fields.insert(name.to_owned(), vec![family]);
            }
        }
    }

    pub fn add_tag(&mut self, key: &str) {
        if !self.tags.contains(key) {
            self.bytes += key.len() + NAME_BYTES;
            self.tags.insert(key.to_owned());
        }
    }

    /// Returns the type that a name must have. A tag that a subquery selects is one of its columns, so `name::tag` means
    /// this column.
    #[must_use]
    pub fn kind_of(&self, name: &str, kind: Option<ReferenceKind>) -> Option<ReferenceKind> {
        let is_column = self.has_rows && !self.tags.contains(name) && self.fields.contains_key(name);
        kind.filter(|kind| *kind != ReferenceKind::Tag || !is_column)
    }

    /// Returns true if a name in a column means a tag or metadata.
    #[must_use]
    pub fn is_tag(&self, name: &str, kind: Option<ReferenceKind>) -> bool {
        match self.kind_of(name, kind) {
            Some(kind) => kind == ReferenceKind::Tag,
            None => !self.fields.contains_key(name) && (self.tags.contains(name) || name.starts_with(META_PREFIX)),
        }
    }

    /// Returns the family of a field name without a type, or `None` if there is no such field.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<Family> {
        self.fields.get(name)?.first().copied()
    }

    /// Returns the field of a name with an optional type, or `None` if it has no values of that type.
    #[must_use]
    pub fn field(&self, name: &str, kind: Option<ReferenceKind>) -> Option<PlannedField> {
        let field = |family: &Family| PlannedField { name: name.to_owned(), family: *family };
        match self.fields.get(name) {
            Some(families) => families.iter().find(|family| allows(kind, **family)).map(field),
            // An unknown field is empty, whatever its type.
            None => Some(field(&Family::Number)).filter(|_| allows(kind, Family::Number)),
        }
    }
}

/// Returns true if a type stated for a name allows a field of this family.
#[must_use]
pub fn allows(kind: Option<ReferenceKind>, family: Family) -> bool {
    match kind {
        None | Some(ReferenceKind::Field) => true,
        Some(ReferenceKind::Tag) => false,
        Some(ReferenceKind::Float | ReferenceKind::Integer | ReferenceKind::Unsigned) => family == Family::Number,
        Some(ReferenceKind::String) => family == Family::String,
        Some(ReferenceKind::Boolean) => family == Family::Boolean,
    }
}
