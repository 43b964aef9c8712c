//! Retention policies: resolves the database and policy of a statement to stored databases.

use super::run::Run;
use super::statement::StatementFailure;
use crate::bucket::settings::{AUTOGEN, NoSuchPolicy, POLICY_MARK, Settings, policy_database};
use crate::clock::expiry_ns;
use crate::query::engine::Engine;
use crate::reading::duration::show_duration;
use crate::reading::time::rfc3339;

/// The former InfluxDB name of the default policy.
const OLD_DEFAULT: &str = "default";

/// Returns the stored database of a name and a policy in a statement. In a statement, a name has no slash.
///
/// # Errors
/// If there is no such policy or database.
pub async fn resolve_database(engine: &Engine, name: &str, policy: Option<&str>) -> Result<String, StatementFailure> {
    if name.contains(POLICY_MARK) {
        return Err(StatementFailure::UnknownDatabase(name.to_owned()));
    }
    let settings = engine.settings.now();
    let policy = policy.filter(|policy| *policy != OLD_DEFAULT || settings.has_policy(name, policy));
    match settings.resolve(name, policy) {
        Ok(database) => Ok(database),
        Err(_) if !engine.has_database(name).await? => Err(StatementFailure::UnknownDatabase(name.to_owned())),
        Err(NoSuchPolicy::Unknown(policy) | NoSuchPolicy::Two(policy, _)) => {
            Err(StatementFailure::UnknownPolicy(policy))
        }
    }
}

/// Returns the stored databases that a statement covers: one policy if the statement or the request names it, else the
/// database and all of its policies.
///
/// # Errors
/// See [`resolve_database`].
pub async fn list_covered(run: Run<'_>, name: &str, policy: Option<&str>) -> Result<Vec<String>, StatementFailure> {
    let Run { engine, context, .. } = run;
    if let Some(policy) = policy.or(context.policy).filter(|policy| !policy.is_empty()) {
        return Ok(vec![resolve_database(engine, name, Some(policy)).await?]);
    }
    let own = resolve_database(engine, name, Some(AUTOGEN)).await?;
    let settings = engine.settings.now();
    let policies = settings.policies(name).map(|(policy, _)| policy_database(name, policy));
    Ok(std::iter::once(own).chain(policies).collect())
}

/// Returns the notice of an answer whose range begins before the readings of a database. Readings that have expired but
/// are not deleted yet are still answered, so they need no notice.
#[must_use]
pub fn expired_notice(settings: &Settings, database: &str, start: i64) -> Option<String> {
    let kept = settings.summaries_retention(database);
    let deleted = settings.for_database(database).expired?;
    let cutoff =
        settings.cutoff(database, expiry_ns()).map(|gone| gone.min(deleted)).filter(|cutoff| start < *cutoff)?;
    let before = rfc3339(cutoff);
    let kept = show_duration(std::time::Duration::from_nanos(kept.ns().unsigned_abs()));
    Some(format!("readings of {database:?} before {before} have expired: it keeps them for {kept}"))
}

/// Returns the notice of an answer that needs expired readings whose summaries are kept.
#[must_use]
pub fn expired_readings_notice(database: &str, start_ns: i64) -> String {
    let before = rfc3339(start_ns);
    format!(
        "readings of {database:?} before {before} have expired and only their hourly summaries are kept: whole hours are \
         answered from those for histograms, count, sum, mean, min, max, spread, first and last of numbers; everything else, \
         including parts of hours, is answered as if there were nothing before {before}"
    )
}

/// Formats a duration as in InfluxDB's listings: `168h0m0s`, `1h30m30.5s`, `0s`.
#[must_use]
pub fn format_duration(ns: i64) -> String {
    let seconds = ns.unsigned_abs() / 1_000_000_000;
    let hours = seconds / 3600;
    let minutes = seconds / 60 % 60;
    let rest = seconds % 60;
    let fraction = format!("{:09}", ns.unsigned_abs() % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    match (hours, minutes) {
        (0, 0) => format!("{rest}{point}{fraction}s"),
        (0, _) => format!("{minutes}m{rest}{point}{fraction}s"),
        _ => format!("{hours}h{minutes}m{rest}{point}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_as_in_influxdb() {
        let second = 1_000_000_000;
        for (ns, text) in [
            (0, "0s"),
            (3600 * second, "1h0m0s"),
            (216 * 3600 * second, "216h0m0s"),
            (5_430 * second + second / 2, "1h30m30.5s"),
            (90 * second, "1m30s"),
        ] {
            assert_eq!(format_duration(ns), text);
        }
    }
}
