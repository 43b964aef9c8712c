//! `hourglass healthcheck`: asks the running service whether it acks writes, for containers without curl.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use ureq::Agent;

use crate::config::Settings;

/// Maximum time for all of it, so that the orchestrator's own timeout never hides the reason.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of an answer that is read; that of `/ready` is far smaller.
const ANSWER_BYTES: u64 = 64 << 10;
/// Not `/health`: that fails for a store that refuses its user, too, and no restart mends that.
const PATH: &str = "/ready";

/// Prints one line, and succeeds if the service acks writes.
pub fn healthcheck(settings: &Settings) -> anyhow::Result<()> {
    let Some((key, address)) = place(settings) else {
        bail!("nothing listens without TLS, which this command does not speak: set status.listen")
    };
    ensure!(address.port() != 0, "{key} has port 0, so that the service's port is not known: set {key}");
    let asking = || format!("asking http://{address}{PATH} ({key})");
    let (status, body) = get(address).with_context(asking)?;
    if status == 200 {
        println!("ready: http://{address}{PATH} ({key})");
        return Ok(());
    }
    let told: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let told = told["message"].as_str().unwrap_or("no reason given");
    bail!("not ready: {status}: {told} (http://{address}{PATH}, {key})")
}

/// The listener that answers whatever load there is, else the main one; both without TLS.
fn place(settings: &Settings) -> Option<(&'static str, SocketAddr)> {
    let status = settings.status.listen.map(|address| ("status.listen", address));
    let (key, mut address) = status.or(settings.server.listen.map(|address| ("server.listen", address)))?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some((key, address))
}

/// The status and the body of the answer.
fn get(address: SocketAddr) -> anyhow::Result<(u16, String)> {
    let config = Agent::config_builder().http_status_as_error(false).proxy(None).max_redirects(0);
    let agent: Agent = config.timeout_global(Some(TIMEOUT)).build().into();
    let called = agent.get(format!("http://{address}{PATH}")).call();
    let mut answer = called.map_err(|error| match error {
        ureq::Error::Timeout(_) => anyhow!("no answer within {TIMEOUT:?}"),
        other => anyhow!(other),
    })?;
    let status = answer.status().as_u16();
    Ok((status, answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_string()?))
}
