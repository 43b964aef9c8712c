use proptest::prelude::*;

use super::*;

/// Decodes bytes that arrive in pieces.
fn decode_all(version: MqttVersion, bytes: &[u8], piece: usize) -> Result<Vec<Packet>, String> {
    let mut decoder = Decoder::new(version);
    let mut packets = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.buffer.extend_from_slice(piece);
        while let Some(packet) = decoder.decode().map_err(|error| error.to_string())? {
            packets.push(packet);
        }
        assert!(decoder.buffer.len() <= PACKET_BYTES_MAX + 70_000);
    }
    Ok(packets)
}

fn message(version: MqttVersion, topic: &[u8], id: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
    body.extend(topic);
    body.extend(id.into_iter().flat_map(u16::to_be_bytes));
    if version == MqttVersion::V5 {
        // A property to skip: the content type.
        body.extend(b"\x05\x03\x00\x02js");
    }
    body.extend(payload);
    packet(if id.is_some() { 0x33 } else { 0x30 }, &body)
}

#[test]
fn packets_of_a_broker_are_read_in_any_pieces() {
    let large = vec![b'x'; PACKET_BYTES_MAX + 1];
    for version in [MqttVersion::V3, MqttVersion::V5] {
        let is_v5 = version == MqttVersion::V5;
        // Session present, server keep alive 10 s after a user property.
        let connected: &[u8] =
            if is_v5 { b"\x20\x0d\x01\x00\x0a\x26\x00\x01a\x00\x01b\x13\x00\x0a" } else { b"\x20\x02\x01\x00" };
        let subscribed: &[u8] = if is_v5 { b"\x90\x05\x00\x01\x00\x01\x80" } else { b"\x90\x04\x00\x01\x01\x80" };
        let bytes = [
            connected,
            &message(version, b"a/b", Some(7), b"21.5"),
            &message(version, b"\xff", None, b""),
            &message(version, b"big", Some(8), &large),
            subscribed,
            b"\xd0\x00",
        ]
        .concat();
        let expected = |topic: &'static [u8], payload: &'static [u8], id: Option<u16>| Message {
            topic: Bytes::from_static(topic),
            payload: Bytes::from_static(payload),
            id,
            is_retained: id.is_some(),
            is_again: false,
            bytes: 2 + topic.len() + if id.is_some() { 2 } else { 0 } + if is_v5 { 6 } else { 0 } + payload.len(),
        };
        let big = expected(b"big", b"", Some(8));
        let big = Message { bytes: big.bytes + large.len(), ..big };
        for piece in [1, 1_000, bytes.len()] {
            let packets = decode_all(version, &bytes, piece).unwrap();
            let expected = [
                Packet::Connected { is_resumed: true, keep_alive: is_v5.then_some(10) },
                Packet::Message(expected(b"a/b", b"21.5", Some(7))),
                Packet::Message(expected(b"\xff", b"", None)),
                Packet::Message(big.clone()),
                Packet::Subscribed(vec![1, 0x80]),
                Packet::Pong,
            ];
            assert_eq!(packets, expected, "{version:?}, pieces of {piece}");
        }
    }
}

#[test]
fn refusals_and_invalid_packets_are_errors() {
    for (bytes, named) in [
        (&b"\x20\x03\x00\x87\x00"[..], "not authorized"),
        (b"\xe0\x01\x8e", "another client"),
        (b"\xe0\x00", "no reason"),
        (b"\x34\x05\x00\x01a\x00\x01", "QoS"),
        (b"\x40\x02\x00\x01", "not for a subscriber"),
        (b"\x32\x03\x00\x09a", "too short"),
        (b"\x30\xff\xff\xff\xff\x01", "four bytes"),
        (b"\x90\xff\xff\xff\x7f", "too large"),
        (b"\x20\x05\x00\x00\x02\x13\x00", "too short"),
    ] {
        let error = decode_all(MqttVersion::V5, bytes, 1).unwrap_err();
        assert!(error.contains(named), "{bytes:x?}: {error}");
    }
}

proptest! {
    /// Whatever a broker sends, the decoder ends and keeps no more than a packet.
    #[test]
    fn any_bytes_are_packets_or_an_error(first: u8, bytes: Vec<u8>, piece in 1_usize..9) {
        for version in [MqttVersion::V3, MqttVersion::V5] {
            let _ = decode_all(version, &packet(first, &bytes), piece);
            let _ = decode_all(version, &bytes, piece);
        }
    }
}
