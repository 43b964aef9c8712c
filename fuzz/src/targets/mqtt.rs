//! Bytes of an MQTT broker: however they are cut, they are the same packets, and a message is never larger than a packet
//! may be.

use hourglass::config::MqttVersion;
use hourglass::mqtt::packets::{Decoder, PACKET_BYTES_MAX, Packet};

/// The first byte of the data is the version, the second the number of bytes of a read, and the others are received.
///
/// # Panics
/// If the decoder breaks a property.
pub fn check(data: &[u8]) {
    let &[version, step, ref received @ ..] = data else { return };
    let version = if version & 1 == 0 { MqttVersion::V5 } else { MqttVersion::V3 };
    let whole = decode(version, received, received.len());
    assert_eq!(decode(version, received, usize::from(step)), whole);
    for packet in whole.0 {
        if let Packet::Message(message) = packet {
            assert!(message.payload.len() <= PACKET_BYTES_MAX && message.payload.len() <= message.bytes);
        }
    }
}

/// Returns the packets, and the error that ended the connection.
fn decode(version: MqttVersion, received: &[u8], step: usize) -> (Vec<Packet>, Option<String>) {
    let mut decoder = Decoder::new(version);
    let mut packets = Vec::new();
    for bytes in received.chunks(step.max(1)) {
        decoder.buffer.extend_from_slice(bytes);
        loop {
            match decoder.decode() {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(error) => return (packets, Some(error.to_string())),
            }
        }
    }
    (packets, None)
}

/// Answers and messages of brokers of both versions, and the head of a message that is too large.
pub fn seeds() -> Vec<Vec<u8>> {
    let connected: [&[u8]; 2] =
        [b"\x20\x06\x00\x00\x03\x13\x00\x1e\x90\x04\x00\x01\x00\x01", b"\x20\x02\x00\x00\x90\x03\x00\x01\x01"];
    let messages: [&[u8]; 2] = [
        b"\x3a\x0e\x00\x06home/a\x00\x01\x0021\xd0\x00\x31\x08\x00\x03a/b\x001\xff\xe0\x02\x8e\x00",
        b"\x32\x0c\x00\x06home/a\x00\x0121\xd0\x00\x31\x06\x00\x03a/b1",
    ];
    let large = [b"\x32\x80\x80\x20\x00\x03a/b\x00\x07".as_slice(), &[b'1'; 600]].concat();
    let both = connected.iter().zip(messages).enumerate();
    let both = both.map(|(version, (first, then))| [&[version as u8, 3], *first, then].concat());
    both.chain([[&[1, 200][..], &large].concat()]).collect()
}
