//! Keeps values of another family than their field's in a second field: text for `temp` goes to `temp@string`
//! (`ingest.drift = "keep"`).

use super::Validator;
use crate::reading::value::RawValue;
use crate::reading::{Family, Reason};

/// Returns the family of the values of a drift field such as `temp@string`, or `None` for any other name.
pub(super) fn reserved_family(name: &str) -> Option<Family> {
    Family::kept_beside(name).map(|(_, family)| family)
}

impl Validator<'_> {
    /// Returns the index of the drift field for a value that was rejected with `reason`. Passes `reason` on if the
    /// value was rejected for something else, or cannot be kept.
    pub(super) fn drift_field(
        &mut self,
        local: usize,
        name: &str,
        value: &RawValue<'_>,
        reason: Reason,
    ) -> Result<u16, Reason> {
        let is_drift = matches!(reason, Reason::FamilyConflict { .. }) && reserved_family(name).is_none();
        if !self.pass.keeps_drift || !is_drift {
            return Err(reason);
        }
        let drift_name = value.family().beside(name);
        // A longer name could not be sent, so a deletion of it could not be undone.
        if drift_name.len() > self.options.limits.name_bytes {
            return Err(reason);
        }
        let Ok(field) = self.resolve_field(local, &drift_name, value, usize::MAX) else { return Err(reason) };
        self.validated.drifted_values.note(drift_name);
        Ok(field)
    }
}
