//! The connections between instances. Each instance calls every other one, once for parts and once for questions, and
//! only writes to these connections. It only reads from those that others have opened.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::either::Either;

use hourglass_members::{FolderId, Frame, FrameBody, Opening};

use super::codec;
use super::handshake::{self, HandshakeError, Lane, Secrets};
use super::questions::ANSWER_BYTES;
use crate::config::{ClusterSettings, TlsSettings};
use crate::edge::{Acceptor, ClientFiles, ClientStream, TlsError, channel_of, connect_tls};

/// Maximum bytes of a frame. A part has about one MiB, unless it is a single reading, and an answer at most
/// [`ANSWER_BYTES`].
const FRAME_BYTES: usize = ANSWER_BYTES + (64 << 10);
/// Frames and their bytes that wait for one connection. Further ones are dropped, as if the connection were down.
const FRAMES_MAX: usize = 4096;
const QUEUE_BYTES: usize = 2 * FRAME_BYTES;
/// Maximum time for opening a connection, and for a write.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a connection failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Callers that have not proved anything yet.
const STRANGERS_MAX: usize = 16;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 64 << 10;

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("cluster.token_file: {0}")]
    Secret(String),
    #[error("no answer within {} s", STEP_TIMEOUT.as_secs())]
    Timeout,
}

/// The files by which instances trust each other.
#[derive(Debug, Clone)]
pub struct Trust {
    pub cluster: ClusterSettings,
    pub tls: TlsSettings,
}

impl Trust {
    fn uses_tls(&self) -> bool {
        !self.cluster.ca_file.as_os_str().is_empty()
    }

    fn secrets(&self) -> Result<Secrets, LinkError> {
        Secrets::read(&self.cluster.token_file).map_err(LinkError::Secret)
    }

    async fn connect(&self, address: &str) -> Result<ClientStream, LinkError> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        if !self.uses_tls() {
            return Ok(Either::Left(tcp));
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let pair = Some((&*self.tls.cert_file, &*self.tls.key_file));
        Ok(connect_tls(tcp, host, ClientFiles { ca: Some(&self.cluster.ca_file), pair }).await?)
    }
}

/// The connections to all other instances.
#[derive(Debug)]
pub struct Links {
    own: Opening,
    trust: Arc<Trust>,
    by_folder: Mutex<BTreeMap<FolderId, Link>>,
}

#[derive(Debug)]
struct Link {
    address: String,
    /// By lane.
    queues: [Queue; 2],
    tasks: [JoinHandle<()>; 2],
}

/// The frames that wait for a connection.
#[derive(Debug)]
struct Queue {
    frames: mpsc::Sender<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Links {
    pub fn new(own: Opening, trust: Arc<Trust>) -> Self {
        Self { own, trust, by_folder: Mutex::default() }
    }

    /// Follows the addresses of the registry.
    pub fn update(&self, addresses: &BTreeMap<FolderId, String>) {
        let mut links = self.by_folder.lock();
        links.retain(|folder, link| addresses.get(folder) == Some(&link.address));
        for (folder, address) in addresses {
            links.entry(*folder).or_insert_with(|| self.link(*folder, address.clone()));
        }
    }

    fn link(&self, folder: FolderId, address: String) -> Link {
        let start = |lane: Lane| {
            let (frames, waiting) = mpsc::channel(FRAMES_MAX);
            let bytes = Arc::<AtomicUsize>::default();
            let call = Call {
                from: self.own,
                to: folder,
                lane,
                address: address.clone(),
                trust: self.trust.clone(),
                bytes: bytes.clone(),
            };
            (Queue { frames, bytes }, tokio::spawn(call.run(waiting)))
        };
        let [(parts, part_task), (questions, question_task)] = [Lane::Parts, Lane::Questions].map(start);
        Link { address, queues: [parts, questions], tasks: [part_task, question_task] }
    }

    /// Sends a frame, or drops it if its connection is full or unknown.
    pub fn send(&self, to: FolderId, frame: &Frame) {
        let lane = match frame.body {
            FrameBody::Question { .. } | FrameBody::Answer { .. } => Lane::Questions,
            _ => Lane::Parts,
        };
        let links = self.by_folder.lock();
        let Some(Queue { frames, bytes }) = links.get(&to).map(|link| &link.queues[lane as usize]) else { return };
        let frame = codec::encode(frame);
        let size = frame.len();
        if bytes.fetch_add(size, Ordering::Relaxed) + size > QUEUE_BYTES || frames.try_send(frame).is_err() {
            bytes.fetch_sub(size, Ordering::Relaxed);
        }
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.by_folder.lock().clear();
    }
}

/// A connection that this instance opens.
struct Call {
    from: Opening,
    to: FolderId,
    lane: Lane,
    address: String,
    trust: Arc<Trust>,
    /// Bytes of the frames that wait.
    bytes: Arc<AtomicUsize>,
}

impl Call {
    /// Keeps the connection open and writes the frames.
    async fn run(self, mut queue: mpsc::Receiver<Vec<u8>>) {
        let mut was_open = true;
        while let Some(first) = queue.recv().await {
            self.note_taken(&first);
            let mut is_open = false;
            let ended = self.write(first, &mut queue, &mut is_open).await;
            let Err(error) = ended else { return };
            // Once for each loss.
            if was_open || is_open {
                tracing::warn!(instance = %format!("{:016x}", self.to.0), address = %self.address, %error, "no connection to another instance; trying again");
            }
            was_open = is_open;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    fn note_taken(&self, frame: &[u8]) {
        self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
    }

    async fn write(
        &self,
        first: Vec<u8>,
        queue: &mut mpsc::Receiver<Vec<u8>>,
        is_open: &mut bool,
    ) -> Result<(), LinkError> {
        let mut stream = timeout(STEP_TIMEOUT, self.open()).await.map_err(|_| LinkError::Timeout)??;
        *is_open = true;
        let mut next = Some(first);
        loop {
            let frame = match next.take() {
                Some(frame) => frame,
                None => tokio::select! {
                    frame = queue.recv() => match frame {
                        Some(frame) => {
                            self.note_taken(&frame);
                            frame
                        }
                        None => return Ok(()),
                    },
                    // The other side never writes, so it has closed the connection.
                    _ = stream.get_mut().read_u8() => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                },
            };
            let written = async {
                put_frame(&mut stream, &frame).await?;
                // Frames that wait share a write.
                while let Ok(frame) = queue.try_recv() {
                    self.note_taken(&frame);
                    put_frame(&mut stream, &frame).await?;
                }
                stream.flush().await
            };
            timeout(STEP_TIMEOUT, written).await.map_err(|_| LinkError::Timeout)??;
        }
    }

    async fn open(&self) -> Result<BufWriter<ClientStream>, LinkError> {
        let secrets = self.trust.secrets()?;
        let mut stream = self.trust.connect(&self.address).await?;
        let channel = channel_of(&stream);
        handshake::call(&mut stream, &channel, &secrets, (self.from, self.to, self.lane)).await?;
        Ok(BufWriter::with_capacity(WRITE_BYTES, stream))
    }
}

async fn put_frame(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    stream.write_u32(u32::try_from(frame.len()).map_err(io::Error::other)?).await?;
    stream.write_all(frame).await
}

/// Accepts connections and passes their frames on, until it is aborted.
pub async fn listen(
    listener: TcpListener,
    acceptor: Option<Acceptor>,
    trust: Arc<Trust>,
    own: FolderId,
    frames: mpsc::Sender<Frame>,
) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((tcp, address)) = listener.accept().await else {
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        // Too many strangers: this one is closed.
        let Ok(permit) = strangers.clone().try_acquire_owned() else { continue };
        let acceptor = acceptor.clone();
        let trust = trust.clone();
        let frames = frames.clone();
        connections.spawn(async move {
            let greeted = async {
                let secrets = trust.secrets()?;
                let _ = tcp.set_nodelay(true);
                let (mut stream, channel) = match acceptor {
                    None => (Either::Left(tcp), Vec::new()),
                    Some(acceptor) => {
                        let (tls, channel) = acceptor.accept_instance(tcp).await?;
                        (Either::Right(Box::new(tls)), channel)
                    }
                };
                let (from, _) = handshake::answer(&mut stream, &channel, &secrets, own).await?;
                Ok::<_, LinkError>((stream, from))
            };
            match timeout(STEP_TIMEOUT, greeted).await.map_err(|_| LinkError::Timeout).flatten() {
                Ok((stream, from)) => {
                    drop(permit);
                    // The other side opens a new connection when it needs one.
                    let _ = read_frames(BufReader::with_capacity(WRITE_BYTES, stream), from, frames).await;
                }
                Err(error) => tracing::warn!(%address, %error, "a connection to cluster.listen was refused"),
            }
        });
    }
}

async fn read_frames(mut stream: impl AsyncRead + Unpin, from: Opening, frames: mpsc::Sender<Frame>) -> io::Result<()> {
    loop {
        let length = stream.read_u32().await? as usize;
        if length > FRAME_BYTES {
            return Err(io::Error::other("a frame is too long"));
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        let frame = codec::decode(&bytes).filter(|frame| frame.from == from);
        let frame = frame.ok_or_else(|| io::Error::other("a frame is malformed"))?;
        if frames.send(frame).await.is_err() {
            return Ok(());
        }
    }
}
