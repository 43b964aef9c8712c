//! The packets of MQTT 5 and 3.1.1 that a subscriber sends and receives.
//!
//! The clients on crates.io subscribe to nothing more in a resumed session unless their own state is on disk, and a large
//! message ends their connection, so that 3.1.1 delivers it for ever.

use bytes::{Buf, Bytes, BytesMut};

use super::connection::MqttError;
use crate::config::{MqttSettings, MqttVersion};

/// Maximum size of a packet. MQTT 5 brokers are told; other brokers' larger messages are rejected.
pub const PACKET_BYTES_MAX: usize = 256 << 10;
/// Maximum number of messages that are not acknowledged yet.
pub const RECEIVE_MAXIMUM: u16 = 16;
/// Seconds for which an MQTT 5 broker keeps the session of a subscriber that is away.
const SESSION_SECONDS: u32 = 7 * 24 * 60 * 60;

pub const PING: &[u8] = &[0xc0, 0];
pub const DISCONNECT: &[u8] = &[0xe0, 0];

/// A packet from the broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Packet {
    Connected {
        /// True if the broker still has the session.
        is_resumed: bool,
        /// The broker's own keep-alive time in seconds, if it has one.
        keep_alive: Option<u16>,
    },
    Message(Message),
    /// A code per topic.
    Subscribed(Vec<u8>),
    Pong,
}

/// A message of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// As sent, so not always UTF-8.
    pub topic: Bytes,
    /// Empty if the packet is too large.
    pub payload: Bytes,
    /// The identifier to acknowledge, with QoS 1.
    pub id: Option<u16>,
    pub is_retained: bool,
    /// True if an earlier connection may have delivered it.
    pub is_again: bool,
    /// The bytes of the packet after its length.
    pub bytes: usize,
}

/// Reads packets out of received bytes.
#[derive(Debug)]
pub struct Decoder {
    version: MqttVersion,
    pub buffer: BytesMut,
    /// The number of bytes that follow of a packet that is too large.
    skip: usize,
    /// The message of that packet.
    skipped: Option<Message>,
}

impl Decoder {
    pub fn new(version: MqttVersion) -> Self {
        Self { version, buffer: BytesMut::new(), skip: 0, skipped: None }
    }

    /// Returns the next packet; `None` if bytes are missing.
    ///
    /// # Errors
    /// If the bytes are no packet that a broker may send to a subscriber.
    pub fn decode(&mut self) -> Result<Option<Packet>, MqttError> {
        loop {
            let skipped = self.skip.min(self.buffer.len());
            self.buffer.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
            if let Some(message) = self.skipped.take() {
                return Ok(Some(Packet::Message(message)));
            }
            let Some(first) = self.buffer.first().copied() else { return Ok(None) };
            let mut rest = &self.buffer[1..];
            let Some(bytes) = variable(&mut rest)? else { return Ok(None) };
            let head = self.buffer.len() - rest.len();
            if bytes <= PACKET_BYTES_MAX {
                if rest.len() < bytes {
                    return Ok(None);
                }
                let mut body = self.buffer.split_to(head + bytes).freeze();
                body.advance(head);
                return decode_packet(self.version, first, body).map(Some);
            }
            if !self.begin_skip(first, head, bytes)? {
                return Ok(None);
            }
        }
    }

    /// Takes topic and identifier of a packet that is too large. Returns false if bytes of them are missing.
    fn begin_skip(&mut self, first: u8, head: usize, bytes: usize) -> Result<bool, MqttError> {
        if first >> 4 != 3 {
            return Err(MqttError::Invalid("a packet is too large and no message"));
        }
        let mut rest = &self.buffer[head..];
        let Ok(topic_bytes) = rest.try_get_u16() else { return Ok(false) };
        let needed = 2 + usize::from(topic_bytes) + 2;
        if self.buffer.len() < head + needed {
            return Ok(false);
        }
        let mut start = self.buffer.split_to(head + needed).freeze();
        start.advance(head);
        let message = decode_message(MqttVersion::V3, first, start)?;
        self.skipped = Some(Message { bytes, payload: Bytes::new(), ..message });
        self.skip = bytes - needed;
        Ok(true)
    }
}

fn decode_packet(version: MqttVersion, first: u8, mut body: Bytes) -> Result<Packet, MqttError> {
    match first >> 4 {
        2 => {
            let is_resumed = body.try_get_u8()? & 1 == 1;
            let code = body.try_get_u8()?;
            let keep_alive = if version == MqttVersion::V5 { keep_alive(&mut body)? } else { None };
            if code == 0 {
                Ok(Packet::Connected { is_resumed, keep_alive })
            } else {
                Err(MqttError::Refused(reason(code)))
            }
        }
        3 => decode_message(version, first, body).map(Packet::Message),
        9 => {
            body.try_get_u16()?;
            if version == MqttVersion::V5 {
                take_properties(&mut body)?;
            }
            Ok(Packet::Subscribed(body.to_vec()))
        }
        13 => Ok(Packet::Pong),
        14 => Err(MqttError::Ended(reason(body.first().copied().unwrap_or_default()))),
        _ => Err(MqttError::Invalid("a packet of this type is not for a subscriber")),
    }
}

fn decode_message(version: MqttVersion, first: u8, mut body: Bytes) -> Result<Message, MqttError> {
    let bytes = body.len();
    let topic_bytes = body.try_get_u16()?;
    let topic = take(&mut body, topic_bytes.into())?;
    let id = match (first >> 1) & 3 {
        0 => None,
        1 => Some(body.try_get_u16()?),
        _ => return Err(MqttError::Invalid("a message has a QoS that was not asked for")),
    };
    if version == MqttVersion::V5 {
        take_properties(&mut body)?;
    }
    Ok(Message { topic, payload: body, id, is_retained: first & 1 == 1, is_again: first & 8 == 8, bytes })
}

/// Reads a number of variable length; `None` if bytes are missing.
fn variable(bytes: &mut &[u8]) -> Result<Option<usize>, MqttError> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let Ok(byte) = bytes.try_get_u8() else { return Ok(None) };
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(Some(number));
        }
    }
    Err(MqttError::Invalid("a length has more than four bytes"))
}

fn take(body: &mut Bytes, count: usize) -> Result<Bytes, MqttError> {
    if body.len() < count { Err(MqttError::Invalid("a packet is too short")) } else { Ok(body.split_to(count)) }
}

fn take_properties(body: &mut Bytes) -> Result<Bytes, MqttError> {
    let mut rest = &body[..];
    let count = variable(&mut rest)?.ok_or(MqttError::Invalid("a packet is too short"))?;
    let length_bytes = body.len() - rest.len();
    body.advance(length_bytes);
    take(body, count)
}

/// Reads the broker's keep-alive time out of the properties of its answer.
fn keep_alive(body: &mut Bytes) -> Result<Option<u16>, MqttError> {
    let mut properties = take_properties(body)?;
    while properties.has_remaining() {
        let count = match properties.try_get_u8()? {
            0x13 => return Ok(Some(properties.try_get_u16()?)),
            0x21 | 0x22 => 2,
            0x11 | 0x27 => 4,
            0x24 | 0x25 | 0x28..=0x2a => 1,
            0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => properties.try_get_u16()?.into(),
            0x26 => {
                let name_bytes = properties.try_get_u16()?;
                take(&mut properties, name_bytes.into())?;
                properties.try_get_u16()?.into()
            }
            _ => return Err(MqttError::Invalid("a property is unknown")),
        };
        take(&mut properties, count)?;
    }
    Ok(None)
}

/// Describes a code of the broker.
fn reason(code: u8) -> String {
    let known = match code {
        0x00 => "no reason given",
        0x01 | 0x84 => "it does not support this version of MQTT (version)",
        0x02 | 0x85 => "it does not accept the client_id",
        0x04 | 0x86 => "user or password is wrong",
        0x05 | 0x87 => "not authorized",
        0x03 | 0x88 => "it is unavailable",
        0x89 => "it is busy",
        0x8b => "it shuts down",
        0x8d => "keep-alive timeout",
        0x8e => "another client has connected with the same client_id",
        0x95 => "a packet is too large",
        _ => return format!("code {code:#04x}"),
    };
    known.to_owned()
}

/// Encodes the packet that opens or resumes the session.
pub fn connect(settings: &MqttSettings, password: Option<&str>, keep_alive: u16) -> Vec<u8> {
    let mut body = b"\x00\x04MQTT".to_vec();
    let mut flags = 0;
    if settings.user.is_some() {
        flags |= 0x80;
    }
    if password.is_some() {
        flags |= 0x40;
    }
    body.push(if settings.version == MqttVersion::V5 { 5 } else { 4 });
    body.push(flags);
    body.extend(keep_alive.to_be_bytes());
    if settings.version == MqttVersion::V5 {
        body.push(13);
        body.push(0x11);
        body.extend(SESSION_SECONDS.to_be_bytes());
        body.push(0x21);
        body.extend(RECEIVE_MAXIMUM.to_be_bytes());
        body.push(0x27);
        body.extend(u32::try_from(PACKET_BYTES_MAX).unwrap_or(u32::MAX).to_be_bytes());
    }
    for text in [Some(&*settings.client_id), settings.user.as_deref(), password].into_iter().flatten() {
        push_text(&mut body, text);
    }
    packet(0x10, &body)
}

/// Encodes the packet that subscribes to all topics.
pub fn subscribe(settings: &MqttSettings) -> Vec<u8> {
    let is_v5 = settings.version == MqttVersion::V5;
    let mut body = vec![0, 1];
    if is_v5 {
        body.push(0);
    }
    // MQTT 5 then sends retained messages for new subscriptions only, not with each connection.
    let retained_once = if is_v5 { 0x10 } else { 0 };
    for topic in &settings.topics {
        push_text(&mut body, topic.as_str());
        body.push(settings.qos | retained_once);
    }
    packet(0x82, &body)
}

/// Encodes the acknowledgement of a message.
pub fn acknowledge(id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [0x40, 2, high, low]
}

fn push_text(body: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    body.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend(bytes);
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    let mut rest = body.len();
    while rest >= 0x80 {
        packet.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    packet.push(rest as u8);
    packet.extend(body);
    packet
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
