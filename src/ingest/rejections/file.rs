//! The file of kept rejections: one JSON object per line, oldest first, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::kept::KeptRejection;

/// What the file holds: lines that cannot be read are left out, and of a file that is too large the rest.
pub fn read(path: &Path, bytes_max: usize) -> Vec<KeptRejection> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    // Names of keys and escapes take at most as much again as the texts.
    let lines = BufReader::new(file.take(4 * bytes_max as u64)).split(b'\n');
    lines.map_while(Result::ok).filter_map(|line| serde_json::from_slice(&line).ok()).collect()
}

/// Not synced: after a power cut there may be an older list or none, which is no reading lost.
pub fn write(path: &Path, rejections: &[Arc<KeptRejection>]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = BufWriter::new(options.write(true).create(true).truncate(true).mode(0o600).open(&new)?);
    for rejection in rejections {
        serde_json::to_writer(&mut file, &**rejection)?;
        file.write_all(b"\n")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?;
    fs::rename(new, path)
}
