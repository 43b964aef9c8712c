//! Opens the configured listeners and serves each with its protocol. All except the status listener share their
//! connection limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::http::HeaderValue;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::not_started::NotStarted;
use crate::cluster::Listening;
use crate::config::Settings;
use crate::edge::{self, ConnectionLimits, Listener, Tls, TrustedProxies};
use crate::http::{self, App, ClientPolicy, Cors, EndpointSet, Hosts};
use crate::tcp;
use crate::telemetry::Metrics;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time in which a client does not read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Open listening sockets that have not accepted a connection yet.
pub struct Listeners {
    http: Option<TcpListener>,
    status: Option<TcpListener>,
    https: Option<TcpListener>,
    lines: Option<TcpListener>,
    /// For the other instances, until the app takes it.
    pub cluster: Option<Listening>,
    tls: Option<Arc<Tls>>,
    pub addresses: Addresses,
}

/// The addresses of the listeners, with the actual ports for port 0.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// `None` only if `https` is set.
    pub http: Option<SocketAddr>,
    /// For health and metrics only.
    pub status: Option<SocketAddr>,
    pub https: Option<SocketAddr>,
    /// For line protocol over TCP.
    pub lines: Option<SocketAddr>,
}

impl Addresses {
    /// Returns the URL of the HTTP listener, or else of the HTTPS listener, without a path.
    pub fn base(&self) -> String {
        if let Some(http) = self.http {
            return format!("http://{http}");
        }
        self.https.map(|https| format!("https://{https}")).unwrap_or_default()
    }
}

impl Listeners {
    /// Opens the sockets, and loads the certificate and key.
    pub async fn open(settings: &Settings, metrics: &Metrics) -> anyhow::Result<Self> {
        let mut tls = None;
        if settings.tls.listen.is_some() || settings.tcp.tls {
            tls = Some(Tls::load(settings.tls.clone(), metrics.clone()).context("setting up TLS")?);
        }
        let http = listen(settings.server.listen, "--listen ADDR:PORT").await?;
        let https = listen(settings.tls.listen, "tls.listen").await?;
        let lines = listen(settings.tcp.listen, "tcp.listen").await?;
        let status = listen(settings.status.listen, "status.listen").await?;
        let cluster = listen(settings.cluster.listen, "cluster.listen").await?;
        let cluster = cluster.map(|listener| Listening::new(listener, settings, metrics)).transpose();
        let cluster = cluster.context("setting up the certificates of the cluster")?;
        let address = |listener: &Option<TcpListener>| listener.as_ref().and_then(|open| open.local_addr().ok());
        let addresses = Addresses {
            http: address(&http),
            status: address(&status),
            https: address(&https),
            lines: address(&lines),
        };
        Ok(Self { http, status, https, lines, cluster, tls, addresses })
    }

    /// Serves on all listeners until `stopping` is true. The task ends once all requests under way and the tasks in
    /// `serving` have ended.
    pub fn serve(
        self,
        settings: &Settings,
        app: Arc<App>,
        stopping: &watch::Receiver<bool>,
        hangups: Signal,
        mut serving: JoinSet<()>,
    ) -> JoinHandle<()> {
        let limits = ConnectionLimits::new(bounds(settings), app.metrics.clone());
        let protocol = protocol(settings);
        let client_policy = Arc::new(client_policy(settings));
        // Keep the other half of the time for the flush and for closing.
        let drain_timeout = settings.server.shutdown_timeout / 2;
        let proxies = Arc::new(TrustedProxies::new(&settings.server.trusted_proxies));
        let plain = |tcp| Listener { tcp, tls: None, idle: None, proxies: proxies.clone(), drain_timeout };
        let by_tls = |names: &[&str]| self.tls.as_ref().map(|tls| tls.acceptor(names));
        if let Some(tcp) = self.lines {
            let tls = settings.tcp.tls.then(|| by_tls(&[])).flatten();
            let listener = Listener { tls, idle: Some(settings.tcp.idle_timeout), ..plain(tcp) };
            let service = Arc::new(lines_service(&app, self.addresses.base()));
            serving.spawn(tcp::serve(listener, limits.clone(), service, stopping.clone()));
        }
        if let Some(tcp) = self.status {
            let service = http::HttpService::new(app.clone(), EndpointSet::Status, client_policy.clone());
            // Give it its own connection limits, so that health checks work even if the other listeners are full.
            let limits = ConnectionLimits::new(bounds(settings), app.metrics.clone());
            let serve = http::serve(plain(tcp), limits.clone(), service, protocol.clone(), stopping.clone());
            serving.spawn(enforce_deadlines(limits, serve));
        }
        let endpoints = if self.addresses.status.is_some() { EndpointSet::AllButStatus } else { EndpointSet::All };
        let service = http::HttpService::new(app, endpoints, client_policy);
        if let Some(tcp) = self.https {
            let listener = Listener { tls: by_tls(protocol.alpn_names()), ..plain(tcp) };
            serving.spawn(http::serve(listener, limits.clone(), service.clone(), protocol.clone(), stopping.clone()));
        }
        if let Some(tcp) = self.http {
            serving.spawn(http::serve(plain(tcp), limits.clone(), service, protocol, stopping.clone()));
        }
        let all = async move { while serving.join_next().await.is_some() {} };
        let tls = self.tls;
        tokio::spawn(async move {
            tokio::select! {
                () = enforce_deadlines(limits, all) => {}
                () = reload_certificates(tls, hangups) => {}
            }
        })
    }
}

/// Enforces the deadlines of connections while `serve` runs.
async fn enforce_deadlines(limits: Arc<ConnectionLimits>, serve: impl Future<Output = ()>) {
    tokio::select! {
        () = limits.enforce_deadlines() => {}
        () = serve => {}
    }
}

fn lines_service(app: &App, http: String) -> tcp::TcpService {
    tcp::TcpService {
        ingest: app.ingest.clone(),
        access: app.access.clone(),
        audit: app.audit.clone(),
        metrics: app.metrics.clone(),
        http,
    }
}

async fn listen(address: Option<SocketAddr>, key: &str) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let refused =
        || NotStarted::unavailable(format!("listening on {address}: is it in use? Choose a free address with {key}"));
    Ok(Some(listener.with_context(refused)?))
}

/// Reloads the certificate and key when their files change, and on SIGHUP. Never returns.
async fn reload_certificates(tls: Option<Arc<Tls>>, mut hangups: Signal) {
    let changes = async {
        if let Some(tls) = tls.clone() {
            tls.watch_files().await;
        }
    };
    let on_hangup = async {
        while hangups.recv().await.is_some() {
            match &tls {
                Some(tls) => tls.reload(),
                None => tracing::info!(
                    "SIGHUP: there is no certificate to reload, and the configuration is read only at the start"
                ),
            }
        }
    };
    tokio::join!(changes, on_hangup);
}

fn client_policy(settings: &Settings) -> ClientPolicy {
    ClientPolicy {
        cors: Cors::new(&settings.cors.origins),
        hosts: Hosts::new(&settings.server.hosts),
        proxies: TrustedProxies::new(&settings.server.trusted_proxies),
    }
}

fn bounds(settings: &Settings) -> edge::Bounds {
    edge::Bounds {
        max: settings.server.connections,
        per_address: settings.server.connections_per_address,
        idle: settings.server.idle_timeout,
        head: settings.server.header_timeout,
        handshake: HANDSHAKE_TIMEOUT,
        write: WRITE_TIMEOUT,
    }
}

fn protocol(settings: &Settings) -> http::Protocol {
    let hsts = settings.tls.hsts.as_secs();
    http::Protocol {
        http2: settings.server.http2,
        hsts: HeaderValue::from_str(&format!("max-age={hsts}")).ok().filter(|_| hsts > 0),
    }
}
