//! A sensor as one request uses it, and the fields that the request adds to it.

use std::sync::Arc;

use super::drift;
use crate::catalog::{Catalog, Claims, KnownSensor, SensorFields};
use crate::config::Settings;
use crate::kinds::Kind;
use crate::reading::value::RawValue;
use crate::reading::{Family, Reason};

/// A sensor as one request uses it.
pub(super) struct RequestSensor {
    pub(super) known: Arc<KnownSensor>,
    pub(super) fields: Arc<SensorFields>,
    /// The index of fields before this one cannot change: they are firm, or claimed by this request.
    pub(super) claimed: usize,
    /// Its index in its shard's batch, once it has a reading there.
    pub(super) in_batch: Option<u32>,
    /// Whether it is in [`super::ValidatedBody::undated`].
    pub(super) is_undated: bool,
    /// Why the sender may not write it.
    pub(super) barred: Option<Box<Reason>>,
    /// What its readings must be.
    pub(super) kind: Option<Arc<Kind>>,
}

impl RequestSensor {
    pub(super) fn is(&self, spelling: &str) -> bool {
        *self.known.sensor.key == *spelling && !self.known.is_superseded()
    }

    /// Returns the index of a field, which becomes one of the sensor if it is not.
    pub(super) fn field(
        &mut self,
        name: &str,
        value: &RawValue<'_>,
        hint: usize,
        claims: Option<&mut Claims>,
        (catalog, options, keeps_drift): (&Catalog, &Settings, bool),
    ) -> Result<u16, Reason> {
        let (sent, max) = (value.family(), options.limits.sensor_fields);
        let found = self.fields.find(name, hint);
        // Another request may withdraw a field that is not firm, so this request claims it too.
        if found.is_none_or(|index| index >= self.claimed) {
            if let Some(limit) = catalog.limit_for_field(name).filter(|_| found.is_none()) {
                return Err(Reason::NoMemoryForField { field: name.to_owned(), limit });
            }
            if let Some(stored) = drift::reserved_for(name).filter(|of| keeps_drift && found.is_none() && *of != sent) {
                return Err(self.conflict(name, sent, stored));
            }
            let grown = match claims {
                Some(claims) => claims.claim(&self.known, name, sent, max),
                None if found.is_some() => Some(self.fields.clone()),
                None => self.fields.with(name, sent, max).map(Arc::new),
            };
            self.fields = grown.ok_or_else(|| Reason::TooManyFields { field: name.to_owned(), limit: max })?;
            // Usually a request has its new fields in the same order in every line.
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
        // `limits.sensor_fields` is at most `u16::MAX`.
        Ok(u16::try_from(index).unwrap_or(u16::MAX))
    }

    fn conflict(&self, name: &str, sent: Family, stored: Family) -> Reason {
        let measurement = self.known.sensor.measurement.to_string();
        Reason::FamilyConflict { field: name.to_owned(), measurement, sent, stored }
    }
}
