//! Chunks that are written, read back, edited by hand or cut off.
use std::path::PathBuf;

use super::*;

/// A file with this content, in a temporary folder.
fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead-letters.lp");
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

fn all(content: &str, bytes_max: usize) -> Vec<Chunk> {
    let (_folder, path) = file(content);
    let mut chunks = Chunks::open(&path, 0).unwrap().unwrap();
    std::iter::from_fn(|| chunks.next(bytes_max).unwrap()).collect()
}

fn chunk(database: &str, lines: &str) -> String {
    let readings = lines.lines().count();
    ChunkHead::line(database, (readings, lines.len()), 1_768_485_600_000_000_001, "no\nreason") + lines
}

#[test]
fn what_is_written_is_read_back() {
    let (first, second) =
        (chunk("a \"b\\ \u{301}\u{7f}", "m v=1 1\nm v=2 2\n"), chunk("b", "m t=\"# database\n# x\" 3\n"));
    let found = all(&(first.clone() + &second), 1000);
    assert_eq!(found.len(), 2, "{found:?}");
    let head = &found[0].head;
    assert_eq!((head.database.as_str(), head.readings, head.bytes), ("a \"b\\ \u{301}\u{7f}", 2, Some(16)));
    assert_eq!(head.kept.as_deref(), Some("2026-01-15T14:00:00.000000001Z"));
    assert_eq!(
        (head.reason.as_str(), &*found[0].lines, found[0].is_cut),
        ("no reason", &b"m v=1 1\nm v=2 2\n"[..], false)
    );
    assert_eq!((found[1].offset, found[1].head.database.as_str()), (first.len() as u64, "b"));
    assert_eq!(found[1].lines, b"m t=\"# database\n# x\" 3\n");
    // Some of the lines, and from the middle of the file on.
    let (_folder, path) = file(&(first.clone() + &second));
    let mut chunks = Chunks::open(&path, first.len() as u64).unwrap().unwrap();
    let part = chunks.next(5).unwrap().unwrap();
    assert_eq!((part.lines.as_slice(), part.is_cut, part.checksum), (&b"m t=\""[..], true, found[1].checksum));
    assert_eq!(chunks.next(5).unwrap(), None);
}

#[test]
fn lots_of_the_first_version_and_mended_ones_are_read() {
    let old = "# database \"default\", 3 readings: the store refused: it, says so\nm v=1 1\n";
    let mended = chunk("b", "m v=1 1\n").replace("v=1", "v=1.25");
    let found = all(&format!("{old}{mended}{}", chunk("c", "m v=9 9\n")), 1000);
    let seen: Vec<(&str, &[u8])> = found.iter().map(|chunk| (chunk.head.database.as_str(), &*chunk.lines)).collect();
    let expected: [(&str, &[u8]); 3] = [("default", b"m v=1 1\n"), ("b", b"m v=1.25 1\n"), ("c", b"m v=9 9\n")];
    assert_eq!(seen, expected);
    assert_eq!((found[0].head.reason.as_str(), &found[0].head.kept), ("the store refused: it, says so", &None));
}

/// Half a line may parse as a whole one with another timestamp.
#[test]
fn a_line_that_was_cut_off_is_told() {
    let torn = chunk("a", "m v=1 1000\nm v=2 2000\n");
    let torn = &torn[..torn.len() - 3];
    for content in [torn.to_owned(), format!("{torn}\n{CUT_OFF}\n{}", chunk("b", "m v=9 9\n"))] {
        let found = all(&content, 1000);
        assert!(found[0].is_torn && found[0].lines.starts_with(b"m v=1 1000\nm v=2 2"), "{found:?}");
        assert!(found.len() == 1 || found[1].lines == b"m v=9 9\n" && !found[1].is_torn, "{found:?}");
    }
}

#[test]
fn a_file_of_anything_has_no_lots() {
    for content in
        ["", "\n", "# database", "# database \"a, 1 readings: x\n", "# database \"a\", x readings: x\n", "m v=1 1\n"]
    {
        assert_eq!(all(content, 10), [], "{content}");
    }
}

#[test]
fn parts_are_of_whole_readings() {
    let lines = b"m\\ \"x,t=a v=1 1\nm t=\"a \\\"\nb\",v=2 2\nm v=3 3\n";
    assert_eq!(parts(lines, 1).len(), 3);
    assert_eq!(parts(lines, 1).concat(), lines);
    assert_eq!(parts(lines, 1000), [&lines[..]]);
    assert_eq!(parts(b"", 1), [&b""[..]; 0]);
}
