//! Values of another family than their field's, which are kept beside it: text for `temp` as `temp@string`.

use super::Validator;
use crate::reading::value::RawValue;
use crate::reading::{Family, Reason};

/// The family of the values that a name stands for, if it is that of a field beside another one.
pub(super) fn reserved_for(name: &str) -> Option<Family> {
    Family::kept_beside(name).map(|(_, family)| family)
}

impl Validator<'_> {
    /// The field beside the one that has no such values, if that is why it was rejected.
    pub(super) fn beside(
        &mut self,
        local: usize,
        name: &str,
        value: &RawValue<'_>,
        reason: Reason,
    ) -> Result<u16, Reason> {
        let is_drift = matches!(reason, Reason::FamilyConflict { .. }) && reserved_for(name).is_none();
        if !self.pass.keeps_drift || !is_drift {
            return Err(reason);
        }
        let beside = value.family().beside(name);
        // Nobody could send a longer name, nor undo its deletion.
        let fits = beside.len() <= self.options.limits.name_bytes;
        let found = if fits { self.field(local, &beside, value, usize::MAX).ok() } else { None };
        let Some(field) = found else { return Err(reason) };
        self.validated.drifted.0 += 1;
        self.validated.drifted.1.get_or_insert(beside);
        Ok(field)
    }
}
