//! Rights by effect. Endpoints (`http/endpoints.rs`) and statements ([`Caller::check_statement`]) declare their effects, and
//! [`Scopes::allows`] says which scopes allow an effect. Nothing else decides about rights.

use std::borrow::Cow;
use std::fmt;

use super::caller::Caller;
use super::scopes::{IngestScope, Scopes, matches_any};
use crate::bucket::settings::policy_database;
use crate::influxql::Statement;

/// An effect of a request. The first three concern no database, the last two the whole service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Shows what everybody may see, without a token.
    Public,
    /// Shows what the caller's own token allows, or has the effects of the statements in the request.
    Own,
    /// Reads readings, sensors and metadata.
    Read,
    /// Writes readings and metadata.
    Write,
    /// Writes messages of devices through a mapping.
    Ingest,
    /// Creates a database without a retention.
    Create,
    /// Deletes readings, sensors, policies or the database.
    Delete,
    /// Changes the time for which readings are kept, which also deletes.
    SetRetention,
    /// Changes the names and the forms of sensors, and other settings of a database.
    ManageSchema,
    /// Shows or removes what only administrators of a database may see, such as rejected lines.
    Administer,
    /// Reads metrics and the status of the service.
    Observe,
    /// Administers the whole service.
    AdministerService,
}

impl Effect {
    /// Returns true if the effect concerns the database that the request names.
    #[must_use]
    pub fn is_on_database(self) -> bool {
        !matches!(self, Self::Public | Self::Own | Self::Observe | Self::AdministerService)
    }
}

/// An effect that the caller's token does not allow.
#[derive(Debug, Clone, thiserror::Error)]
pub struct Forbidden {
    caller: String,
    effect: Effect,
    /// `None` if the token allows the effect on no database.
    database: Option<String>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.effect {
            Effect::Public | Effect::Own | Effect::Read => "read",
            Effect::Write => "write to",
            Effect::Ingest => "write through this mapping to",
            Effect::Create => "create",
            Effect::Delete => "delete from",
            Effect::SetRetention => "set the retention of",
            Effect::ManageSchema => "change settings of",
            Effect::Administer => "administer",
            Effect::Observe => return write!(out, "{} needs the flag --metrics for this", self.caller),
            Effect::AdministerService => return write!(out, "{} needs --admin '*' for this", self.caller),
        };
        match &self.database {
            Some(database) => write!(out, "{} may not {verb} database {database:?}", self.caller),
            None => write!(out, "{} may not {verb} any database", self.caller),
        }
    }
}

impl Scopes {
    /// Returns true if the token allows an effect on a database, or without a name on at least one.
    #[must_use]
    pub fn allows(&self, effect: Effect, database: Option<&str>) -> bool {
        if let Some(ingest) = &self.ingest {
            let is_covered = database.is_none_or(|database| database == ingest.database);
            return effect == Effect::Public || effect == Effect::Ingest && is_covered;
        }
        let covers = |globs: &[String]| database.map_or(!globs.is_empty(), |database| matches_any(globs, database));
        // Administration also affects sensors that the pins exclude, so a token with pins must not administer.
        let is_unpinned = self.pins.is_empty();
        let is_service_admin = is_unpinned && self.admin.iter().any(|glob| glob == "*");
        match effect {
            Effect::Public | Effect::Own => true,
            Effect::Read => covers(&self.read) || covers(&self.admin),
            Effect::Write | Effect::Ingest | Effect::Create => covers(&self.write) || covers(&self.admin),
            Effect::Delete | Effect::SetRetention | Effect::ManageSchema | Effect::Administer => {
                is_unpinned && covers(&self.admin)
            }
            Effect::Observe => self.metrics || is_service_admin,
            Effect::AdministerService => is_service_admin,
        }
    }
}

impl Caller {
    /// Returns true if the caller's token allows an effect (see [`Scopes::allows`]), or if no token is required.
    #[must_use]
    pub fn allows(&self, effect: Effect, database: Option<&str>) -> bool {
        self.token().is_none_or(|token| token.scopes.allows(effect, database))
    }

    /// Checks an effect on a database, or without a name on at least one.
    ///
    /// # Errors
    /// If the caller's token does not allow it.
    pub fn check(&self, effect: Effect, database: Option<&str>) -> Result<(), Forbidden> {
        if self.allows(effect, database) {
            return Ok(());
        }
        Err(self.forbidden(effect, database))
    }

    fn forbidden(&self, effect: Effect, database: Option<&str>) -> Forbidden {
        Forbidden { caller: self.name().to_owned(), effect, database: database.map(str::to_owned) }
    }

    /// Checks that the caller may write to a database through a mapping.
    ///
    /// # Errors
    /// If the caller's token does not allow it.
    pub fn check_ingest(&self, database: &str, mapping: &str) -> Result<(), Forbidden> {
        self.check(Effect::Ingest, Some(database))?;
        match self.ingest_scope() {
            Some(scope) if scope.mapping != mapping => Err(self.forbidden(Effect::Ingest, Some(database))),
            _ => Ok(()),
        }
    }

    /// Returns the only mapping that the caller may use, if its token is restricted to one.
    #[must_use]
    pub fn ingest_scope(&self) -> Option<&IngestScope> {
        self.token()?.scopes.ingest.as_ref()
    }

    /// Checks the effects of a statement in a request for this database and policy.
    ///
    /// # Errors
    /// If the caller's token does not allow one of them.
    pub fn check_statement(
        &self,
        statement: &Statement,
        database: Option<&str>,
        policy: Option<&str>,
    ) -> Result<(), Forbidden> {
        let (effect, target) = match statement {
            Statement::Select(_)
            | Statement::Explain { .. }
            | Statement::ShowRetentionPolicies { .. }
            | Statement::Show(_) => {
                let mut outcome = Ok(());
                statement.each_database(&mut |named, named_policy| {
                    // Without any name the statement fails, and reads nothing.
                    if let Some(database) = named.or(database)
                        && outcome.is_ok()
                    {
                        outcome = self.check(Effect::Read, Some(&full_name(database, named_policy.or(policy))));
                    }
                });
                return outcome;
            }
            Statement::ShowDatabases
            | Statement::ShowQueries
            | Statement::ShowUsers
            | Statement::KillQuery { .. }
            | Statement::Unsupported { .. } => (Effect::Own, None),
            Statement::ShowStats { .. } | Statement::ShowDiagnostics { .. } => (Effect::Observe, None),
            Statement::CreateDatabase { name, policy: None } => (Effect::Create, Some(name)),
            Statement::CreateDatabase { name, policy: Some(_) } => (Effect::SetRetention, Some(name)),
            Statement::CreatePolicy(changed) | Statement::AlterPolicy(changed) => {
                (Effect::SetRetention, Some(&changed.database))
            }
            Statement::DropPolicy { database, .. } => (Effect::Delete, Some(database)),
            Statement::DropDatabase { name } => (Effect::Delete, Some(name)),
            // Without a policy these delete from all of the database, so the right to one policy is not enough.
            Statement::DropMeasurement { .. } | Statement::DropSeries { .. } | Statement::Delete { .. } => {
                (Effect::Delete, None)
            }
        };
        self.check(effect, Some(target.map_or(database.unwrap_or_default(), String::as_str)))
    }
}

/// Returns the name by which access to a database and a policy is checked. The right to read one policy does not
/// include other policies or the default one.
fn full_name<'n>(database: &'n str, policy: Option<&str>) -> Cow<'n, str> {
    match policy.filter(|policy| !policy.is_empty()) {
        Some(policy) => policy_database(database, policy).into(),
        None => database.into(),
    }
}
