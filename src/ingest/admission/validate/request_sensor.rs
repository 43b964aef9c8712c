//! The state of one sensor during a request, with the fields that the request adds to it.

use std::sync::Arc;

use super::drift;
use crate::access::Usage;
use crate::catalog::{Catalog, Claims, KnownSensor, SensorFields};
use crate::kinds::Kind;
use crate::reading::value::RawValue;
use crate::reading::{Family, Reason};

/// A known sensor in the context of one request.
pub(super) struct RequestSensor {
    pub(super) known: Arc<KnownSensor>,
    pub(super) fields: Arc<SensorFields>,
    /// Fields before this index keep their index: they are firm, or claimed by this request.
    pub(super) claimed: usize,
    /// The index of the sensor in the batch of its shard, once it has a reading there.
    pub(super) batch_index: Option<u32>,
    /// True if the sensor is in [`super::ValidatedBody::undated`].
    pub(super) is_undated: bool,
    /// The reason for which the sender may not write the sensor.
    pub(super) forbidden: Option<Box<Reason>>,
    /// The kind that the readings must conform to.
    pub(super) kind: Option<Arc<Kind>>,
}

/// The rules for new fields of a sensor.
pub(super) struct FieldRules<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) allowance: Option<&'a Usage>,
    /// `limits.sensor_fields`, at most [`u16::MAX`].
    pub(super) fields_max: usize,
    pub(super) keeps_drift: bool,
}

impl RequestSensor {
    pub(super) fn has_spelling(&self, spelling: &str) -> bool {
        *self.known.sensor.key == *spelling && !self.known.is_superseded()
    }

    /// Returns the index of a field. Adds the field to the sensor if it is new.
    pub(super) fn resolve_field(
        &mut self,
        name: &str,
        value: &RawValue<'_>,
        hint: usize,
        claims: Option<&mut Claims>,
        rules: &FieldRules<'_>,
    ) -> Result<u16, Reason> {
        let sent = value.family();
        let max = rules.fields_max;
        let found = self.fields.find(name, hint);
        // Another request may withdraw a field that is not firm, so this request claims it too.
        if found.is_none_or(|index| index >= self.claimed) {
            let is_new = found.is_none();
            if let Some(limit) =
                is_new.then(|| rules.catalog.limit_for_field(&self.known, rules.allowance, name)).flatten()
            {
                return Err(Reason::NoMemoryForField { field: name.to_owned(), limit });
            }
            let reserved = drift::reserved_family(name).filter(|_| rules.keeps_drift && is_new);
            if let Some(stored) = reserved.filter(|family| *family != sent) {
                return Err(self.conflict(name, sent, stored));
            }
            let grown = match claims {
                Some(claims) => claims.claim(&self.known, name, sent, max),
                None if found.is_some() => Some(self.fields.clone()),
                None => self.fields.with(name, sent, max).map(Arc::new),
            };
            self.fields = grown.ok_or_else(|| Reason::TooManyFields { field: name.to_owned(), limit: max })?;
            // Most requests have their new fields in the same order in every line.
            if self.fields.find(name, self.claimed) == Some(self.claimed) {
                self.claimed += 1;
            }
            self.claimed = self.claimed.max(self.fields.firm);
        }
        let index = self.fields.find(name, hint).unwrap_or_default();
        let stored = self.fields.families[index];
        if stored != sent {
            return Err(self.conflict(name, sent, stored));
        }
        // `fields_max` is at most `u16::MAX`.
        Ok(u16::try_from(index).unwrap_or(u16::MAX))
    }

    fn conflict(&self, name: &str, sent: Family, stored: Family) -> Reason {
        let measurement = self.known.sensor.measurement.to_string();
        Reason::FamilyConflict { field: name.to_owned(), measurement, sent, stored }
    }
}
