//! The exact bytes of the format, so that it cannot change unnoticed. If one of these tests fails, the change needs a
//! new format version, and the old bytes must stay readable.

use std::fmt::Write;
use std::sync::Arc;

use super::simulated::Simulated;
use super::{append, read_all, small};
use crate::disk::Disk;
use crate::{Wal, WalOptions};

// The dump with lz4 comes from the same appends to a WAL that compresses. It is only read: another release of the
// compressor may produce other bytes.

/// A hex dump without the 16-byte lines that are all zero.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
        write!(text, "{:04x}:", line * 16).unwrap();
        bytes.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

/// The disk that a dump describes.
fn undump(text: &str) -> Simulated {
    let disk = Simulated::new(1);
    let mut file = None;
    for line in text.lines() {
        let Some((at, rest)) = line.split_once(':') else {
            let bytes = if line == "checkpoint" { 32 } else { 8192 };
            let created = disk.create(line).unwrap();
            created.set_len(bytes).unwrap();
            file = Some(created);
            continue;
        };
        let bytes: Vec<u8> = rest.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        file.as_ref().unwrap().write_at(&bytes, u64::from_str_radix(at, 16).unwrap()).unwrap();
    }
    disk
}

fn with_fixed_ids(disk: &Simulated) -> Wal {
    let options = WalOptions { segment_bytes: 8 << 10, ..small() };
    let mut id = 0x1000;
    let ids = move || {
        id += 1;
        id
    };
    Wal::open_with(Arc::new(disk.clone()), options, Box::new(ids)).unwrap().0
}

fn words() -> Vec<u8> {
    b"one two three ".repeat(8)
}

fn write(disk: &Simulated) {
    let log = with_fixed_ids(disk);
    append(&log, b"hello").unwrap();
    append(&log, &[]).unwrap();
    append(&log, &words()).unwrap();
    log.truncate(2).unwrap();
    log.close();
    with_fixed_ids(disk).close();
}

fn dump_of_a_log() -> String {
    let disk = Simulated::new(1);
    write(&disk);
    let names = ["0000000000000001.segment", "0000000000100004.segment", "checkpoint"];
    names.iter().map(|name| format!("{name}\n{}", dump(&disk.bytes(name)))).collect()
}

#[test]
fn the_bytes_of_version_1() {
    let text = dump_of_a_log();
    assert_eq!(text, include_str!("golden/version-1.txt"), "now:\n{text}");
}

#[test]
fn version_1_is_read() {
    let goldens = [include_str!("golden/version-1.txt"), include_str!("golden/version-1-lz4.txt")];
    for golden in goldens {
        let log = with_fixed_ids(&undump(golden));
        assert_eq!((log.shared.log, log.truncated(), log.durable()), (0x1001, 2, 3));
        let payloads: Vec<Vec<u8>> = read_all(&log, 1).into_iter().map(|record| record.payload).collect();
        assert_eq!(payloads, [b"hello".to_vec(), Vec::new(), words()]);
    }
}
