//! Deletions by value. A deletion logs a mark and waits until everything older is in the store. Then it resolves its
//! condition to sensors and timestamps, and logs these in parts, with bounded memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::parts::DeletedParts;
use super::resolve::ResolvedReadings;
use super::{EditError, Edits};
use crate::access::Caller;
use crate::influxql::Statement;
use crate::ingest::IngestError;
use crate::query::influx::{DeleteTargets, StatementContext};

/// A statement that deletes by value, with the context that outlives its request.
#[derive(Debug)]
pub struct ValueDeletion {
    pub statement: Statement,
    /// The database of the request.
    pub database: Option<String>,
    /// The retention policy of the request.
    pub policy: Option<String>,
    /// The time of the request, in nanoseconds since the epoch.
    pub now: i64,
    pub caller: Caller,
}

impl Edits {
    /// Carries out a deletion by value, even if the caller stops waiting. Returns a message for the client.
    ///
    /// # Errors
    /// If too many wait, the deletion fails, or it is not complete in time and continues in the background.
    pub async fn delete_by_value(
        self: &Arc<Self>,
        deletion: ValueDeletion,
        targets: Vec<DeleteTargets>,
    ) -> Result<Option<String>, EditError> {
        let timeout = self.options.timeout;
        let edits = self.clone();
        let first = targets.first().map_or("", |target| &target.database);
        let place = self.enter(&deletion.caller, first)?;
        let task = tokio::spawn(async move {
            let _place = place;
            let mut messages = Vec::new();
            for target in targets {
                messages.extend(edits.delete_in(&deletion, target).await?);
            }
            Ok((!messages.is_empty()).then(|| messages.join("; ")))
        });
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Ok(Err(_)) => Err(IngestError::Stopping.into()),
            Err(_) => Err(IngestError::StillDeleting(timeout).into()),
        }
    }

    async fn delete_in(&self, deletion: &ValueDeletion, target: DeleteTargets) -> Result<Option<String>, EditError> {
        let DeleteTargets { database, values: Some(first), .. } = target else {
            return Err(EditError::Refused(format!("not a deletion by value: {}", deletion.statement)));
        };
        let _turn = self.turn(&deletion.caller, &database).await?;
        let mut stopping = self.stopping.clone();
        // A stop does not wait for other instances. Nothing is deleted yet.
        let mark = tokio::select! {
            mark = self.ingest.mark(&database, deletion.now, self.options.timeout) => mark?,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => return Err(IngestError::Stopping.into()),
        };
        // Resolve the targets again, because everything older is stored now and every sensor with such readings is
        // listed. Take only a target that still has a condition: without one, the deletion would remove whole sensors.
        let targets = self.targets(deletion, first.known_fields()).await?;
        let found = targets.into_iter().find(|target| target.database == database && target.values.is_some());
        let Some(target) = found else { return Ok(None) };
        if let Some((name, measurement)) = target.values.as_ref().and_then(|values| first.find_turned_field(values)) {
            return Err(EditError::Refused(format!(
                "{name:?} was a field of {measurement:?} in database {database:?} and has become a tag: nothing was deleted \
                 there; write \"{name}\"::field or \"{name}\"::tag"
            )));
        }
        let mut parts = DeletedParts::new(&self.ingest, deletion.now, &database, &mark);
        let mut found = ResolvedReadings::new(self, &target, mark.stamp);
        while let Some((document, times)) = found.next().await? {
            parts.add(&document.sensor, &times).await?;
        }
        parts.flush().await?;
        let ResolvedReadings { sensors, readings, later, .. } = found;
        let mut message = format!("deleted {readings} readings of {sensors} sensors in database {database:?}");
        if later > 0 {
            message += &format!("; {later} readings were written in the meantime and stay: run it again");
        }
        Ok(Some(message))
    }

    async fn targets(
        &self,
        deletion: &ValueDeletion,
        before: &BTreeSet<String>,
    ) -> Result<Vec<DeleteTargets>, EditError> {
        let budget = self.query.begin(&deletion.caller, "DELETE by value");
        let context = StatementContext {
            database: deletion.database.as_deref(),
            policy: deletion.policy.as_deref(),
            now: deletion.now,
            budget: &budget,
            caller: &deletion.caller,
        };
        let targets = self.query.delete_targets(&deletion.statement, context, before).await?;
        Ok(targets.unwrap_or_default())
    }
}
