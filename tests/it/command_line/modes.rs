//! The modes of everything in the data folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::support::prelude::*;

use super::{readings, write};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Everything below a folder, the folder too.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(all(&path)) } else { found.push(path) }
    }
    found
}

/// What group or others may do something with.
fn open(folder: &Path) -> Vec<(PathBuf, u32)> {
    let modes = all(folder).into_iter().map(|path| (path.clone(), mode(&path)));
    modes.filter(|(_, mode)| mode & 0o077 != 0).collect()
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// With the usual umask, the data folder was 0755 and the files 0644: another user of the machine read sensor keys in the
/// write-ahead log, and held its lock file.
#[test]
fn nobody_else_may_read_the_data_folder() {
    let launch = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let mut server = launch.clone().start();
    let token = server.first_token().unwrap();
    let header = ("Authorization", &*format!("Token {token}"));
    request("POST", &server.url("/write?db=a"), b"m v=1 1", &[header]).unwrap().expect(204);
    request("POST", &server.url("/api/v1/flush"), b"", &[header]).unwrap().expect(204);
    request("GET", &server.url("/api/v1/measurements"), b"", &[]).unwrap().expect(401);
    let data = server.data_dir();
    assert!(all(&data).len() >= 10, "{:?}", all(&data));
    assert_eq!(open(&data), [], "of a new folder");
    server.stop();

    // As an earlier version left them, dead letters and copied bytes too.
    for name in ["dead-letters/1.log", "log/quarantine/1.segment.7"] {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    for path in all(&data) {
        set(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    server.restart_as(launch.clone());
    assert_eq!(open(&data), [], "after a start");
    let said = server.stderr();
    assert_eq!(said.matches("other users could read").count(), 1, "{said}");
    server.stop();
    server.restart_as(launch);
    assert!(!server.stderr().contains("other users"), "{}", server.stderr());
}

/// A data folder that is somebody's home, or has other programs' files, keeps its mode, and they keep theirs.
#[test]
fn what_is_not_hourglass_s_keeps_its_mode() {
    let mut server = Launch::embedded().start();
    write(&server, "m v=1 1");
    server.stop();
    let data = server.data_dir();
    let note = data.join("note.txt");
    fs::write(&note, "mine").unwrap();
    set(&note, 0o644);
    set(&data, 0o755);
    set(&data.join("hourglass.redb"), 0o644);
    server.restart("127.0.0.1:0");
    assert_eq!((mode(&data), mode(&note), mode(&data.join("hourglass.redb"))), (0o755, 0o644, 0o600));
    assert_eq!(readings(&server, "m").len(), 1);
}
