//! The start of a connection between instances: both sides prove that they know the secret of the cluster, which never
//! travels itself.
//!
//! ```text
//! listener → hgpeer01 nonce:32
//! caller   → lane:u8 (0 parts, 1 questions) from:12 (folder:u64 start:u32, big endian) to:8 (folder) nonce:32 proof:32
//! listener → proof:32
//! proof    := HMAC-SHA-256(secret, role:u8 (c | l) channel listener's nonce caller's nonce lane from to)
//! ```
//! `channel` binds the proof to the TLS connection (RFC 9266, `tls-exporter`); it is empty without TLS.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use hourglass_members::{FolderId, Opening};

const MAGIC: [u8; 8] = *b"hgpeer01";
const NONCE: usize = 32;
const PROOF: usize = 32;
/// The secret is at least as hard to guess as the proof.
const SECRET_MIN: usize = 32;

/// The secrets of the cluster. The first one is used to prove, each one to verify.
#[derive(Clone)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Parts, probes and their answers.
    Parts = 0,
    /// Questions and their answers.
    Questions = 1,
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The other side speaks another protocol.
    #[error("the other side is no instance of hourglass")]
    Protocol,
    /// The other side has another secret, or is another instance.
    #[error("the other side does not know the secret (cluster.token_file), or is another instance than expected")]
    Proof,
}

impl Secrets {
    /// Reads `cluster.token_file`.
    ///
    /// # Errors
    /// If it cannot be read, or has no secret, more than two, or a short one.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let lines: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if lines.is_empty() || lines.len() > 2 || lines.iter().any(|line| line.len() < SECRET_MIN) {
            return Err(format!("expected one or two lines of at least {SECRET_MIN} characters"));
        }
        Ok(Self(lines))
    }
}

/// What both sides of a connection prove.
struct Claim<'a> {
    channel: &'a [u8],
    listener_nonce: [u8; NONCE],
    caller_nonce: [u8; NONCE],
    lane: u8,
    from: [u8; 12],
    to: [u8; 8],
}

impl Claim<'_> {
    fn mac(&self, secret: &str, role: u8) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
        mac.update(&[role]);
        for part in [self.channel, &self.listener_nonce, &self.caller_nonce, &[self.lane], &self.from, &self.to] {
            mac.update(part);
        }
        Some(mac)
    }

    fn prove(&self, secret: &str, role: u8) -> [u8; PROOF] {
        self.mac(secret, role).map_or([0; PROOF], |mac| mac.finalize().into_bytes().into())
    }

    /// Returns the secret that the other side has proved to know.
    fn verify<'s>(&self, secrets: &'s Secrets, role: u8, proof: &[u8; PROOF]) -> Option<&'s str> {
        let is_proved = |secret: &str| self.mac(secret, role).is_some_and(|mac| mac.verify_slice(proof).is_ok());
        secrets.0.iter().map(String::as_str).find(|secret| is_proved(secret))
    }
}

fn nonce() -> Result<[u8; NONCE], HandshakeError> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(nonce)
}

fn opening_bytes(opening: Opening) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&opening.folder.0.to_be_bytes());
    bytes[8..].copy_from_slice(&opening.start.to_be_bytes());
    bytes
}

/// Does the caller's side.
///
/// # Errors
/// If the listener does not prove that it knows the secret and is `to`.
pub async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    channel: &[u8],
    secrets: &Secrets,
    (from, to, lane): (Opening, FolderId, Lane),
) -> Result<(), HandshakeError> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(HandshakeError::Protocol);
    }
    let mut listener_nonce = [0; NONCE];
    stream.read_exact(&mut listener_nonce).await?;
    let (lane, from, to) = (lane as u8, opening_bytes(from), to.0.to_be_bytes());
    let claim = Claim { channel, listener_nonce, caller_nonce: nonce()?, lane, from, to };
    let Some(secret) = secrets.0.first() else { return Err(HandshakeError::Proof) };
    let proof = claim.prove(secret, b'c');
    stream.write_all(&[&[lane][..], &from, &to, &claim.caller_nonce, &proof].concat()).await?;
    stream.flush().await?;
    let mut answer = [0; PROOF];
    stream.read_exact(&mut answer).await?;
    claim.verify(secrets, b'l', &answer).map(drop).ok_or(HandshakeError::Proof)
}

/// Does the listener's side. Returns the caller and the use of the connection.
///
/// # Errors
/// If the caller does not prove that it knows the secret and means `own`.
pub async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    channel: &[u8],
    secrets: &Secrets,
    own: FolderId,
) -> Result<(Opening, Lane), HandshakeError> {
    let listener_nonce = nonce()?;
    stream.write_all(&[&MAGIC[..], &listener_nonce].concat()).await?;
    stream.flush().await?;
    let mut claim = Claim { channel, listener_nonce, caller_nonce: [0; NONCE], lane: 0, from: [0; 12], to: [0; 8] };
    claim.lane = stream.read_u8().await?;
    stream.read_exact(&mut claim.from).await?;
    stream.read_exact(&mut claim.to).await?;
    stream.read_exact(&mut claim.caller_nonce).await?;
    let mut proof = [0; PROOF];
    stream.read_exact(&mut proof).await?;
    let secret = claim.verify(secrets, b'c', &proof).filter(|_| claim.to == own.0.to_be_bytes());
    let Some(secret) = secret else { return Err(HandshakeError::Proof) };
    stream.write_all(&claim.prove(secret, b'l')).await?;
    stream.flush().await?;
    let folder = FolderId(u64::from_be_bytes(claim.from[..8].try_into().unwrap_or_default()));
    let start = u32::from_be_bytes(claim.from[8..].try_into().unwrap_or_default());
    let lane = if claim.lane == Lane::Parts as u8 { Lane::Parts } else { Lane::Questions };
    Ok((Opening { folder, start }, lane))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FROM: Opening = Opening { folder: FolderId(3), start: 4 };
    const TO: FolderId = FolderId(8);

    fn secrets(lines: &[&str]) -> Secrets {
        Secrets(lines.iter().map(|line| line.repeat(SECRET_MIN)).collect())
    }

    /// Does both sides, and returns their results.
    async fn meet(caller: &Secrets, listener: &Secrets, channels: [&[u8]; 2], own: FolderId) -> [bool; 2] {
        let (mut one, mut other) = tokio::io::duplex(256);
        let calling = async {
            let called = call(&mut one, channels[0], caller, (FROM, TO, Lane::Questions)).await.is_ok();
            drop(one);
            called
        };
        let answering = async {
            let answered = answer(&mut other, channels[1], listener, own).await;
            drop(other);
            answered.is_ok_and(|caller| caller == (FROM, Lane::Questions))
        };
        let (called, answered) = tokio::join!(calling, answering);
        [called, answered]
    }

    #[tokio::test]
    async fn only_those_who_know_the_secret_meet() {
        let (old, both, new) = (secrets(&["a"]), secrets(&["b", "a"]), secrets(&["b"]));
        for (caller, listener, expected) in
            [(&old, &old, true), (&old, &both, true), (&new, &both, true), (&both, &new, true), (&old, &new, false)]
        {
            assert_eq!(meet(caller, listener, [b"", b""], TO).await, [expected; 2]);
        }
        assert_eq!(meet(&old, &old, [b"one", b"other"], TO).await, [false; 2], "somebody is in between");
        assert_eq!(meet(&old, &old, [b"", b""], FolderId(9)).await, [false; 2], "a moved address");
    }
}
