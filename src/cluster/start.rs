//! Starts this instance's part in the cluster.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;

use hourglass_members::{Config, FolderId, Instance, Now, Opening, Registry, Stamp, Start};

use super::driver::{Driver, boot_ms};
use super::link::{Links, Trust, listen};
use super::parts::REQUEST_TIMEOUT;
use super::questions::ANSWERS_MAX;
use super::{Cluster, PROTOCOL};
use crate::config::{ClientAuth, Settings, TlsSettings};
use crate::edge::{Acceptor, Tls, TlsError};
use crate::files;
use crate::ingest::Ingest;
use crate::telemetry::Metrics;

/// Frames of others that wait for the protocol.
const FRAMES_MAX: usize = 16;
/// Questions of this instance that wait for answers: a query asks many.
const QUESTIONS_MAX: usize = 1024;
/// The file in the WAL's folder that counts its starts.
const STARTS: &str = "starts";
/// The file in the WAL's folder that probes write.
const PROBE: &str = "probe";

/// An open listener for the other instances.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    acceptor: Option<Acceptor>,
    trust: Arc<Trust>,
    address: String,
}

impl Listening {
    /// Wraps the socket of `cluster.listen`.
    ///
    /// # Errors
    /// If the certificates cannot be used.
    pub fn new(listener: TcpListener, settings: &Settings, metrics: &Metrics) -> Result<Self, TlsError> {
        let cluster = settings.cluster.clone();
        let files = TlsSettings {
            client_ca_file: cluster.ca_file.clone(),
            client_crl_file: Default::default(),
            client_auth: ClientAuth::Required,
            ..settings.tls.clone()
        };
        let uses_tls = !cluster.ca_file.as_os_str().is_empty();
        let acceptor = if uses_tls { Some(Tls::load(files, metrics.clone())?.acceptor(&[])) } else { None };
        let bound = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
        let address = if cluster.advertise.is_empty() { bound } else { cluster.advertise.clone() };
        let trust = Arc::new(Trust { cluster, tls: settings.tls.clone() });
        Ok(Self { listener, acceptor, trust, address })
    }

    /// Starts the protocol. `stop` ends the process. The tasks run until they are aborted.
    ///
    /// # Errors
    /// If the number of the start cannot be written.
    pub fn start(
        self,
        settings: &Settings,
        ingest: &Arc<Ingest>,
        stop: Arc<Notify>,
        metrics: Metrics,
    ) -> io::Result<(Arc<Cluster>, Vec<JoinHandle<()>>)> {
        let Self { listener, acceptor, trust, address } = self;
        metrics.cluster_started();
        let folder = settings.wal_dir();
        let member = ingest.member.clone();
        let own = Opening { folder: FolderId(member.mark.id()), start: count_start(&folder)? };
        let config = Config {
            protocol: PROTOCOL,
            request_timeout_ms: millis(REQUEST_TIMEOUT),
            ack_timeout_ms: millis(settings.ingest.ack_timeout),
            grace_ms: millis(settings.cluster.grace),
            query_grace_ms: millis(settings.cluster.query_grace),
            horizon_ms: millis(settings.wal.horizon),
            lead_max_ms: millis(member.clock.max_offset()) / 2,
            queries_max: QUESTIONS_MAX,
            questions_max: QUESTIONS_MAX,
            ..Config::default()
        };
        let start = Start {
            opening: own,
            was_joined: member.registry_view.is_joined(),
            last_stamp: Stamp(member.last),
            watermark: Stamp(0),
            deletions: Vec::new(),
            random: 0,
        };
        let now = Now { boot_ms: boot_ms(), wall_ms: member.clock.now_ms() };
        let (inputs, received) = mpsc::unbounded_channel();
        let (frames, arrived) = mpsc::channel(FRAMES_MAX);
        let cluster = Arc::new(Cluster {
            own,
            address,
            protocol: PROTOCOL,
            clock: member.clock.clone(),
            submitter: Arc::downgrade(&ingest.submitter),
            lookup: ingest.lookup.clone(),
            ingest: Arc::downgrade(ingest),
            links: Links::new(own, trust.clone()),
            inputs,
            owners: RwLock::new([].into()),
            registry: Mutex::new(Arc::new(Registry::default())),
            addresses: Mutex::default(),
            left_out: Mutex::default(),
            answers: Semaphore::new(ANSWERS_MAX),
            learned: Mutex::default(),
            recent: settings.sensors.recent,
            read_wanted: Notify::new(),
            stop,
            is_draining: AtomicBool::new(false),
            probe_file: folder.join(PROBE),
            metrics,
        });
        let driver = Driver::new(cluster.clone(), Instance::new(config, start, now));
        let tasks = vec![
            tokio::spawn(driver.run(received, arrived)),
            tokio::spawn(listen(listener, acceptor, trust, own.folder, frames)),
        ];
        // Once only: nobody else sets them.
        let _ = ingest.submitter.owners.set(cluster.clone());
        let _ = member.cluster.set(cluster.clone());
        Ok((cluster, tasks))
    }
}

/// Counts this start in the folder.
fn count_start(folder: &Path) -> io::Result<u32> {
    let file = folder.join(STARTS);
    let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let start = last.map_or(1, |last| last.saturating_add(1));
    files::replace(&file, format!("{start}\n").as_bytes(), true)?;
    Ok(start)
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
