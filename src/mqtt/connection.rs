//! A connection to a broker: opens it, and reads and writes packets.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{BufMut, TryGetError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;

use super::packets::{self, Decoder, Packet};
use crate::config::MqttSettings;
use crate::edge::{ClientFiles, ClientStream, TlsError, connect_tls};

/// The time in which a broker sends nothing, unless it asks for less.
const KEEP_ALIVE_SECONDS: u16 = 30;
/// Maximum time for each step of a connection, and for a write.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// The reason why a connection ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum MqttError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot read {key} = {}: {error}", file.display())]
    File { key: &'static str, file: std::path::PathBuf, error: io::Error },
    #[error("the broker does not answer")]
    Timeout,
    #[error("the broker refused the connection: {0}")]
    Refused(String),
    #[error("the broker refused to subscribe to {0:?}")]
    Topic(String),
    #[error("the broker ended the connection: {0}")]
    Ended(String),
    #[error("invalid MQTT from the broker: {0}")]
    Invalid(&'static str),
}

impl From<TryGetError> for MqttError {
    fn from(_: TryGetError) -> Self {
        Self::Invalid("a packet is too short")
    }
}

/// An open connection with its session.
pub struct Connection {
    stream: ClientStream,
    decoder: Decoder,
    /// The time after which either side counts as gone.
    pub keep_alive: Duration,
    /// True if the session is that of an earlier connection.
    pub is_resumed: bool,
}

impl Connection {
    /// Connects, and opens or resumes the session.
    ///
    /// # Errors
    /// If a file cannot be read, or the broker cannot be reached or refuses.
    pub async fn open(settings: &MqttSettings) -> Result<Self, MqttError> {
        let password = password(settings)?;
        let stream = dial(settings).await?;
        let decoder = Decoder::new(settings.version);
        let mut connection = Self { stream, decoder, keep_alive: Duration::ZERO, is_resumed: false };
        connection.send(&packets::connect(settings, password.as_deref(), KEEP_ALIVE_SECONDS)).await?;
        let Packet::Connected { is_resumed, keep_alive } = within(connection.receive()).await?? else {
            return Err(MqttError::Invalid("the first packet does not answer the connection"));
        };
        connection.is_resumed = is_resumed;
        connection.keep_alive = Duration::from_secs(keep_alive.unwrap_or(KEEP_ALIVE_SECONDS).max(2).into());
        connection.send(&packets::subscribe(settings)).await?;
        Ok(connection)
    }

    /// Sends packets.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn send(&mut self, packets: &[u8]) -> Result<(), MqttError> {
        let sent = async {
            self.stream.write_all(packets).await?;
            self.stream.flush().await
        };
        Ok(within(sent).await??)
    }

    /// Receives a packet. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// If the connection has ended, or the broker sends something else than a packet.
    pub async fn receive(&mut self) -> Result<Packet, MqttError> {
        loop {
            if let Some(packet) = self.decoder.decode()? {
                return Ok(packet);
            }
            self.decoder.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut (&mut self.decoder.buffer).limit(READ_BYTES)).await? == 0 {
                return Err(MqttError::Ended("no reason given".to_owned()));
            }
        }
    }
}

/// Reads the files that a subscriber names, and reaches the broker. Opens no session, which would end that of a running
/// service.
///
/// # Errors
/// If a file cannot be read, or the broker cannot be reached.
pub async fn probe(settings: &MqttSettings) -> Result<(), MqttError> {
    password(settings)?;
    settings.token_file.as_deref().map(|file| read_secret("token_file", file)).transpose()?;
    dial(settings).await.map(drop)
}

async fn dial(settings: &MqttSettings) -> Result<ClientStream, MqttError> {
    let url = &settings.url;
    let tcp = within(TcpStream::connect((&*url.host, url.port))).await??;
    tcp.set_nodelay(true)?;
    if url.has_tls {
        let pair = settings.cert_file.as_deref().zip(settings.key_file.as_deref());
        let files = ClientFiles { ca: settings.ca_file.as_deref(), pair };
        Ok(within(connect_tls(tcp, &url.host, files)).await??)
    } else {
        Ok(Either::Left(tcp))
    }
}

fn password(settings: &MqttSettings) -> Result<Option<String>, MqttError> {
    settings.password_file.as_deref().map(|file| read_secret("password_file", file)).transpose()
}

/// Reads a file with a secret in its first line.
///
/// # Errors
/// If it cannot be read.
pub fn read_secret(key: &'static str, file: &Path) -> Result<String, MqttError> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| MqttError::File { key, file: file.to_owned(), error })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

async fn within<T>(step: impl Future<Output = T>) -> Result<T, MqttError> {
    timeout(STEP_TIMEOUT, step).await.map_err(|_| MqttError::Timeout)
}
