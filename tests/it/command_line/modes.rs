//! File modes in the data folder.

use crate::support::prelude::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Returns a folder and everything below it.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(all(&path)) } else { found.push(path) }
    }
    found
}

/// Returns the paths that group or others can access.
fn open(folder: &Path) -> Vec<(PathBuf, u32)> {
    let modes = all(folder).into_iter().map(|path| (path.clone(), mode(&path)));
    modes.filter(|(_, mode)| mode & 0o077 != 0).collect()
}

/// Regression: the data folder was 0755 and its files 0644, so other users could read and lock them.
#[test]
fn only_the_owner_can_read_the_data_folder() {
    let launch = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let server = launch.clone().start();
    let token = server.first_token().unwrap();
    let header = ("Authorization", &*format!("Token {token}"));
    request("POST", &server.url("/write?db=a"), b"m v=1 1", &[header]).unwrap().expect(204);
    request("POST", &server.url("/api/v1/flush"), b"", &[header]).unwrap().expect(204);
    request("GET", &server.url("/api/v1/measurements"), b"", &[]).unwrap().expect(401);
    let data = server.data_dir();
    assert!(all(&data).len() >= 10, "{:?}", all(&data));
    assert_eq!(open(&data), [], "of a new folder");
}
