use super::*;

fn letter(database: &str, readings: u64) -> DeadLetter {
    let lines = (0..readings).map(|n| format!("m t=\"a\n# b\" {n}\n")).collect();
    DeadLetter::Readings(ReadingsLetter {
        database: database.to_owned(),
        readings,
        kept: "2026-01-15T14:00:00Z".to_owned(),
        reason: "no\nreason".to_owned(),
        lines,
    })
}

fn all(letters: &DeadLetters) -> Vec<(u64, DeadLetter)> {
    let mut found = Vec::new();
    letters
        .read(0, |id, letter| {
            found.push((id, letter));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// The service appends and a command resends, and both share the file. No letter that is appended meanwhile is lost.
#[tokio::test]
async fn they_are_outstanding_until_they_are_done_by_any_process() {
    let folder = tempfile::tempdir().unwrap();
    let open = || DeadLetters::new(folder.path().join("dead-letters"));
    let service = open();
    let command = open();
    assert_eq!(service.outstanding().await.unwrap(), OutstandingLetters::default());
    service.write(&letter("a", 2)).unwrap();
    service.write(&letter("b", 3)).unwrap();
    let meta = Map::from_iter([("site".to_owned(), Value::Null)]);
    let change = MetadataLetter {
        database: "a".to_owned(),
        sensor: "m,s=1".to_owned(),
        meta,
        replaces: true,
        kept: String::new(),
        reason: "x".to_owned(),
    };
    service.write(&DeadLetter::Metadata(change.clone())).unwrap();
    let outstanding = service.outstanding().await.unwrap();
    assert_eq!((outstanding.readings(), outstanding.metadata), (5, 1));
    assert_eq!(outstanding.describe(), "2 readings of database \"a\", 3 readings of database \"b\"");
    let found = all(&command);
    assert_eq!(
        found.iter().map(|(_, letter)| letter.clone()).collect::<Vec<_>>(),
        [letter("a", 2), letter("b", 3), DeadLetter::Metadata(change)]
    );
    let (first, more) = command.page(0, 1, 1000).await.unwrap();
    assert_eq!((&first[..], more), (&found[..1], true));
    assert_eq!(command.page(found[0].0, 9, 1000).await.unwrap(), (found[1..].to_vec(), false));
    let sending = command.begin_sending().unwrap();
    assert_eq!(service.begin_sending().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    command.mark_done(vec![found[0].0, found[2].0]).unwrap();
    command.remove_done().unwrap();
    let outstanding = service.outstanding().await.unwrap();
    assert_eq!((outstanding.readings(), outstanding.metadata), (3, 0));
    command.mark_done(vec![found[1].0]).unwrap();
    command.remove_done().unwrap();
    drop(sending);
    assert!(service.0.file.lock().segments().unwrap().is_empty());
    // The service's segment was removed, so it starts another one.
    service.write(&letter("c", 4)).unwrap();
    assert_eq!(all(&command).len(), 1);
    assert_eq!(service.outstanding().await.unwrap().readings(), 4);
}

#[test]
fn parts_are_of_whole_readings() {
    let lines = b"m\\ \"x,t=a v=1 1\nm t=\"a \\\"\nb\",v=2 2\nm v=3 3\n";
    assert_eq!(parts(lines, 1).len(), 3);
    assert_eq!(parts(lines, 1).concat(), lines);
    assert_eq!(parts(lines, 1000), [&lines[..]]);
    assert_eq!(parts(b"", 1), [&b""[..]; 0]);
}
