//! `hourglass healthcheck`: checks whether the running service acks writes, for containers without curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use ureq::Agent;

use super::post::{Service, Target};
use crate::config::Settings;

/// Maximum time of the whole check, so that the orchestrator's own timeout never hides the reason.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of an answer in bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The path of the check. `/health` would also fail for a store that refuses its user, and a restart does not fix that.
const PATH: &str = "/ready";

/// Asks the service at a URL. Prints one line, and succeeds if the service acks writes.
pub fn healthcheck_at(url: &str, ca: Option<&Path>) -> anyhow::Result<()> {
    let service = Service { url: url.to_owned(), ca: ca.map(Path::to_owned), ..Service::default() };
    let answer = Target::with_timeout(&service, Some(TIMEOUT))?.get(PATH)?;
    let status = answer.status;
    report(status, &answer.text()?, &format!("{}{PATH}", url.trim_end_matches('/')), "--server")
}

/// Asks the service with these settings. Prints one line, and succeeds if the service acks writes.
pub fn healthcheck(settings: &Settings) -> anyhow::Result<()> {
    let Some((key, address)) = plain_listener(settings) else {
        bail!("all listeners use TLS, which this command does not support: set status.listen")
    };
    ensure!(address.port() != 0, "{key} has port 0, so that the service's port is not known: set {key}");
    let context = || format!("requesting http://{address}{PATH} ({key})");
    let (status, body) = get(address, PATH).with_context(context)?;
    report(status, &body, &format!("http://{address}{PATH}"), key)
}

/// Returns the value of a metric without labels of the service with these settings. `None` if it does not run, or needs
/// a token for its metrics.
pub fn metric_of_service(settings: &Settings, name: &str) -> Option<f64> {
    let (_, address) = plain_listener(settings).filter(|(_, address)| address.port() != 0)?;
    let (status, text) = get(address, "/metrics").ok()?;
    let line = text.lines().filter(|_| status == 200).find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Reports the answer from a URL, which a flag or a configuration key names.
fn report(status: u16, body: &str, url: &str, key: &str) -> anyhow::Result<()> {
    if status == 200 {
        println!("ready: {url} ({key})");
        return Ok(());
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let reason = body["message"].as_str().unwrap_or("no reason given");
    bail!("not ready: {status}: {reason} ({url}, {key})")
}

/// Returns the configuration key and address of a listener without TLS: the status listener, which answers under any
/// load, or else the main one.
fn plain_listener(settings: &Settings) -> Option<(&'static str, SocketAddr)> {
    let status = settings.status.listen.map(|address| ("status.listen", address));
    let (key, mut address) = status.or(settings.server.listen.map(|address| ("server.listen", address)))?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some((key, address))
}

/// Sends the request, and returns the status and body of the answer.
fn get(address: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let config = Agent::config_builder().http_status_as_error(false).proxy(None).max_redirects(0);
    let agent: Agent = config.timeout_global(Some(TIMEOUT)).build().into();
    let called = agent.get(format!("http://{address}{path}")).call();
    let mut answer = called.map_err(|error| match error {
        ureq::Error::Timeout(_) => anyhow!("no answer within {TIMEOUT:?}"),
        other => anyhow!(other),
    })?;
    let status = answer.status().as_u16();
    Ok((status, answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string()?))
}
