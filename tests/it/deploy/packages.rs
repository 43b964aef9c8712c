//! `deploy/release`: the same files twice, and a Debian package that never removes the data folder.

use super::read;
use crate::support::prelude::*;

/// A small program in place of the binary, which takes long to build and to pack. It has completions and manual pages.
fn stand_in(folder: &Folder) -> PathBuf {
    let real = program().get_program().to_str().unwrap().to_owned();
    let file = folder.file("hourglass");
    fs::write(&file, format!("#!/bin/sh\nexec '{real}' \"$@\"\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// Makes the files of a release in a folder, and returns their checksums.
fn release(binary: &Path, out: &Path) -> String {
    let mut command = Command::new(root().join("deploy/release"));
    let command = command.args(["--binary", path(binary), "--out", path(out)]).env("SOURCE_DATE_EPOCH", "1768435200");
    run_program(command).expect_success();
    fs::read_to_string(out.join("SHA256SUMS")).unwrap()
}

/// Returns the only file of a folder with this ending.
fn only_file(folder: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.to_str().unwrap().ends_with(ending)).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn a_release_is_reproducible_and_its_packages_install() {
    if on_path(Path::new("dpkg-deb")).is_none() {
        return not_run("needs `dpkg-deb` of the Debian package dpkg");
    }
    let folder = Folder::new("release");
    let binary = stand_in(&folder);
    let out = folder.file("one");
    let sums = release(&binary, &out);
    assert_eq!(sums.lines().count(), 4, "{sums}");
    assert_eq!(release(&binary, &folder.file("two")), sums);

    // The Debian package: installed, upgraded, removed and purged.
    let top = folder.file("root");
    for place in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/hourglass"] {
        fs::create_dir_all(top.join(place)).unwrap();
    }
    fs::write(top.join("var/lib/dpkg/status"), "").unwrap();
    fs::write(top.join("var/lib/hourglass/readings"), "kept").unwrap();
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        let root = format!("--root={}", top.display());
        command.args([&root, "--force-not-root", "--force-script-chrootless", "--force-depends", "--log=/dev/null"]);
        run_program(command.args(arguments)).expect_success();
    };
    let package = only_file(&out, ".deb");
    dpkg(&["--install", path(&package)]);
    let version = format!("hourglass {} (", env!("CARGO_PKG_VERSION"));
    let printed = run_program(Command::new(top.join("usr/bin/hourglass")).arg("version")).stdout;
    assert!(printed.starts_with(&version), "{printed}");
    for file in [
        "lib/systemd/system/hourglass.service",
        "usr/share/man/man1/hourglass-import.1.gz",
        "usr/share/bash-completion/completions/hourglass",
    ] {
        assert!(top.join(file).exists(), "{file}");
    }
    let configuration = top.join("etc/hourglass/hourglass.toml");
    fs::write(&configuration, "[server]\n").unwrap();
    dpkg(&["--install", path(&package)]);
    assert_eq!(fs::read_to_string(&configuration).unwrap(), "[server]\n", "an upgrade keeps it");
    dpkg(&["--remove", "hourglass"]);
    assert!(!top.join("usr/bin/hourglass").exists() && configuration.exists());
    dpkg(&["--purge", "hourglass"]);
    assert!(!configuration.exists());
    assert_eq!(fs::read_to_string(top.join("var/lib/hourglass/readings")).unwrap(), "kept");

    // The wheel: pip compares its files with RECORD.
    let wheel = only_file(&out, ".whl");
    let check = "import base64, hashlib, sys, zipfile\n\
        archive = zipfile.ZipFile(sys.argv[1])\n\
        record = next(name for name in archive.namelist() if name.endswith('/RECORD'))\n\
        rows = [line.split(',') for line in archive.read(record).decode().split()]\n\
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())\n\
        for name, digest, size in rows:\n    \
            data = archive.read(name)\n    \
            made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n    \
            assert name == record or (digest, size) == ('sha256=' + made, str(len(data))), name\n\
        program = archive.getinfo(next(name for name in archive.namelist() if name.endswith('/scripts/hourglass')))\n\
        assert program.external_attr >> 16 == 0o100755\n";
    run_program(Command::new("python3").args(["-c", check, path(&wheel)])).expect_success();
    assert!(read("deploy/systemd/hourglass.service").contains("/usr/local/bin/hourglass"), "the package replaces it");
}
