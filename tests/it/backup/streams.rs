//! Backups as one archive on the standard streams, and `backup verify`.

use super::interrupted::files;
use super::{SEALS, backup, digest, start_filled};
use crate::support::prelude::*;

/// Writes an archive of a server into a file.
#[track_caller]
fn archive(server: &Server, to: &Path) -> CommandOutput {
    let mut command = program();
    command.args(["backup", "create", "--target", "-", "--server", &server.url("")]);
    run_program(command.stdout(File::create(to).unwrap()))
}

/// Runs a command that reads an archive from its standard input.
fn with_archive(from: &Path, arguments: &[&str]) -> CommandOutput {
    run_program(program().args(arguments).stdin(File::open(from).unwrap()))
}

fn restore(from: &Path, store: &str, data_dir: &Path) -> CommandOutput {
    with_archive(from, &["backup", "restore", "--source", "-", "--store", store, "--data-dir", path(data_dir)])
}

/// Returns the name, and the ranges of header and content, of each file of an archive.
fn entries(archive: &[u8]) -> Vec<(String, usize, std::ops::Range<usize>)> {
    let position = |value: u64| usize::try_from(value).unwrap();
    let mut archive = tar::Archive::new(archive);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let entry = entry.unwrap();
        let start = position(entry.raw_file_position());
        let name = entry.path().unwrap().display().to_string();
        (name, position(entry.raw_header_position()), start..start + position(entry.size()))
    };
    archive.entries().unwrap().map(read).collect()
}

#[track_caller]
fn run_tar(arguments: &[&str]) {
    assert!(Command::new("tar").args(arguments).status().unwrap().success(), "{arguments:?}");
}

#[test]
fn an_archive_is_a_folder_and_restores_to_the_same_digest() {
    for (store, to_store) in stores().into_iter().zip(stores()) {
        let mut server = start_filled(&store, SEALS);
        let folder = Folder::new("archive");
        let tar = folder.file("backup.tar");
        let summary = archive(&server, &tar).expect_success();
        assert!(summary.stderr.contains("\n4 days written"), "{summary:?}");
        assert!(metric(&server, "hourglass_backup_completed_timestamp_seconds") > 1e9);
        // Unpacked, it is a backup, and the next one into its folder writes nothing.
        let unpacked = folder.file("unpacked");
        std::fs::create_dir(&unpacked).unwrap();
        run_tar(&["-xf", path(&tar), "-C", path(&unpacked)]);
        let verified = hourglass(&["backup", "verify", path(&unpacked)]).expect_success();
        assert_eq!(verified.stdout, with_archive(&tar, &["backup", "verify", "-"]).expect_success().stdout);
        let again = backup(&server, &unpacked, &[]).expect_success().stdout;
        assert!(again.contains("\n0 days written (0 bytes), 4 unchanged, sensors of 0 databases written"), "{again}");
        // A tar of a folder is an archive, with folders and in any order.
        let packed = folder.file("packed.tar");
        run_tar(&["-cf", path(&packed), "-C", path(&unpacked), "."]);
        assert!(server.stop().success());
        let original = digest(&store, &server.data_dir())["databases"].clone();
        for (tar, store) in [(&tar, &*to_store), (&packed, "embedded")] {
            let data = Folder::new("restored");
            restore(tar, store, data.path()).expect_success();
            assert_eq!(digest(store, data.path())["databases"], original);
            assert!(!data.file("restore.archive").exists() && !data.file("unfinished.jsonl").exists());
            verify(store, data.path(), &[]).expect_success();
            restore(tar, store, data.path()).expect_failure("not empty");
        }
    }
}

#[test]
fn a_cut_or_changed_archive_is_refused_and_changes_nothing() {
    let server = start_filled("embedded", "");
    let folder = Folder::new("archive");
    let tar = folder.file("backup.tar");
    archive(&server, &tar).expect_success();
    let whole = std::fs::read(&tar).unwrap();
    let damaged = folder.file("damaged.tar");
    let data = folder.file("data");
    let refuse = |content: &[u8], reason: &str, what: &str| {
        std::fs::write(&damaged, content).unwrap();
        let verified = with_archive(&damaged, &["backup", "verify", "-"]);
        for output in [verified, restore(&damaged, "embedded", &data)] {
            assert!(output.status == Some(1) && output.stdout.is_empty(), "{what}: {output:?}");
            assert!(output.stderr.contains(reason), "{what}: {output:?}");
        }
        assert!(!data.join("restore.archive").exists(), "{what}");
    };
    let entries = entries(&whole);
    assert!(entries.len() >= 9 && entries.last().unwrap().0 == "manifest.json", "{entries:?}");
    let mut cuts = vec![whole.len() - 1, whole.len() - 512, whole.len() - 513, whole.len() - 1024, whole.len() - 1025];
    for (name, header, content) in &entries {
        cuts.extend([*header, header + 100, content.start, (content.start + content.end) / 2, content.end]);
        let mut flips = vec![header + 1, header + 130, (content.start + content.end) / 2];
        if name == "manifest.json" {
            let text = std::str::from_utf8(&whole[content.clone()]).unwrap();
            for key in ["form", "began_ms", "began", "file", "bytes", "sha256", "digest", "readings", "name"] {
                let key = format!("\"{key}\": ");
                flips.extend(text.match_indices(&key).map(|(at, _)| content.start + at + key.len() + 1));
            }
        }
        for flip in flips.into_iter().filter(|flip| *flip < content.start || content.contains(flip)) {
            let mut changed = whole.clone();
            changed[flip] ^= 1;
            refuse(&changed, "", &format!("byte {flip} of {name}"));
        }
    }
    // With a file twice, only one of them could be restored.
    for (name, header, content) in &entries {
        let file = &whole[*header..content.end.next_multiple_of(512)];
        let doubled = [&whole[..*header], file, &whole[*header..]].concat();
        if name != "hourglass-backup.lock" {
            refuse(&doubled, &format!("has {name:?} twice"), name);
        }
    }
    for cut in cuts {
        refuse(&whole[..cut], "cut off", &format!("cut at {cut} of {}", whole.len()));
    }
    restore(&tar, "embedded", &data).expect_success();
}

#[test]
fn an_archive_of_a_backup_that_failed_has_no_end() {
    let mut server = start_filled("embedded", "");
    assert!(server.stop().success());
    server.restart_as(Launch::embedded().env("FAULT_KILL_AT", "part_sent:3"));
    let folder = Folder::new("archive");
    let tar = folder.file("backup.tar");
    let failed = archive(&server, &tar);
    assert_eq!(failed.status, Some(1), "{failed:?}");
    with_archive(&tar, &["backup", "verify", "-"]).expect_failure("cut off");
    assert!(entries(&std::fs::read(&tar).unwrap()).len() > 1, "some files were written");
    assert!(poll(TIMEOUT, || server.exited()).is_some());
    server.restart_as(Launch::embedded());
    assert!(metric(&server, "hourglass_backup_completed_timestamp_seconds").abs() < 1.0);
    // Nobody reads the archive.
    let mut command = program();
    command.args(["backup", "create", "--target", "-", "--server", &server.url("")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(!child.wait().unwrap().success());
    assert!(metric(&server, "hourglass_backup_completed_timestamp_seconds").abs() < 1.0);
    backup(&server, Path::new("-"), &["--prove"]).expect_failure("--prove needs a folder");
}

#[test]
fn a_killed_restore_of_an_archive_is_resumed() {
    for (store, to_store) in stores().into_iter().zip(stores()) {
        let mut server = start_filled(&store, "");
        let folder = Folder::new("archive");
        let tar = folder.file("backup.tar");
        archive(&server, &tar).expect_success();
        assert!(server.stop().success());
        let data = folder.file("data");
        let arguments = ["backup", "restore", "--source", "-", "--store", &to_store, "--data-dir", path(&data)];
        // Killed while it waits for the second half.
        let whole = std::fs::read(&tar).unwrap();
        let mut command = program();
        let mut child = command.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&whole[..whole.len() / 2]).unwrap();
        let spool = data.join("restore.archive");
        wait_until("a file is written", || spool.is_dir() && files(&spool).len() > 1);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(stdin);
        let mut command = program();
        command.args(arguments).env("FAULT_KILL_AT", "day_restored:2").stdin(File::open(&tar).unwrap());
        run_program(&mut command).expect_killed();
        assert!(spool.exists());
        // The rest of a killed run does not complete a cut archive.
        let cut = folder.file("cut.tar");
        std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
        restore(&cut, &to_store, &data).expect_failure("cut off");
        restore(&tar, &to_store, &data).expect_success();
        assert!(!spool.exists());
        assert_eq!(digest(&store, &server.data_dir())["databases"], digest(&to_store, &data)["databases"]);
        verify(&to_store, &data, &[]).expect_success();
    }
}

/// Runs the pipes of the documentation in a folder; the remote of rclone is a folder, too.
#[test]
fn the_documented_pipes_work() {
    if ![Package::Age, Package::Restic, Package::Rclone].iter().all(|package| require(*package).is_some()) {
        return;
    }
    let mut server = start_filled("embedded", "");
    let folder = Folder::new("pipes");
    let document = std::fs::read_to_string(root().join("docs/how-to/backup.md")).unwrap();
    let in_folder = |name: &str| folder.file(name).display().to_string();
    let run = |line: &str| {
        let line = line.replace("--token-file token", &format!("--server {}", server.url("")));
        let line = line.replace("hourglass backup", &format!("{} backup", env!("CARGO_BIN_EXE_hourglass")));
        let line = line.replace("s3:backups", &format!(":local:{}", in_folder("remote")));
        let line = line.replace("/var/lib/hourglass", &in_folder("data"));
        let mut command = Command::new("bash");
        command.args(["-eo", "pipefail", "-c", &line]).current_dir(folder.path()).env("HOME", folder.path());
        command.env("RESTIC_REPOSITORY", in_folder("restic")).env("RESTIC_PASSWORD", "secret");
        let output = run_program(&mut command);
        assert_eq!(output.status, Some(0), "{line}: {output:?}");
    };
    run("age-keygen -o key.txt && age-keygen -y key.txt > recipients.txt && restic init");
    let pipes: Vec<&str> =
        document.lines().filter(|line| line.contains(" | ") && line.contains("hourglass backup")).collect();
    assert_eq!(pipes.len(), 6, "{pipes:?}");
    pipes.into_iter().for_each(run);
    assert!(server.stop().success());
    assert_eq!(digest("embedded", &folder.file("data")), digest("embedded", &server.data_dir()));
}

/// Files of form 1 were not compressed. They stay in a folder until their day changes.
#[test]
fn a_backup_of_form_1_is_restored_and_continued() {
    use sha2::{Digest, Sha256};
    let mut server = start_filled("embedded", "");
    let folder = Folder::new("backup");
    backup(&server, folder.path(), &[]).expect_success();
    let name = folder.file("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&name).unwrap()).unwrap();
    manifest["form"] = json!(1);
    for database in manifest["databases"].as_array_mut().unwrap() {
        for part in database.as_object_mut().unwrap().values_mut() {
            let entries = match part {
                Value::Array(days) => days.iter_mut().collect(),
                sensors if sensors.is_object() => vec![sensors],
                _ => Vec::new(),
            };
            for entry in entries {
                let file = folder.file(entry["file"].as_str().unwrap());
                let plain = zstd::decode_all(File::open(&file).unwrap()).unwrap();
                assert!(plain.starts_with(b"hourglass backup 1\n"));
                entry["bytes"] = json!(plain.len());
                entry["sha256"] = json!(hourglass::access::hex(&Sha256::digest(&plain)));
                std::fs::write(&file, plain).unwrap();
            }
        }
    }
    std::fs::write(&name, manifest.to_string()).unwrap();
    hourglass(&["backup", "verify", path(folder.path())]).expect_success();
    let again = backup(&server, folder.path(), &[]).expect_success().stdout;
    assert!(again.contains("\n0 days written (0 bytes), 4 unchanged, sensors of 0 databases written"), "{again}");
    let data = Folder::new("restored");
    super::restore(folder.path(), "embedded", data.path()).expect_success();
    assert!(server.stop().success());
    assert_eq!(digest("embedded", data.path()), digest("embedded", &server.data_dir()));
}
