use bson::doc;

use super::*;

/// Regression: a whole command that failed with "bad value" or "type mismatch", for example over an option that a proxy
/// does not know, was taken for a refusal of each of its documents, and all their readings went to the dead letters.
#[test]
fn only_what_is_said_of_a_document_by_its_content_is_a_refusal() {
    let class = |code| classify_code(code, String::new()).class();
    for (code, expected) in [
        (2, "failing"),
        (14, "failing"),
        (112, "busy"),
        (24, "busy"),
        (251, "busy"),
        (121, "refused"),
        (10_334, "refused"),
        (17_419, "refused"),
        (13, "denied"),
        (10_107, "unavailable"),
        (11_600, "unknown"),
        (166, "database"),
        (4_711, "database"),
    ] {
        assert_eq!(class(code), expected, "{code}");
    }
    let of_one = |code| of_one(code, "").class();
    assert_eq!(
        [2, 14, 112, 121, 4_711, 11_600].map(of_one),
        ["failing", "failing", "busy", "refused", "failing", "unknown"]
    );
}

fn reply(n: i32, codes: &[(i32, i32)]) -> Document {
    let errors: Vec<Document> = codes.iter().map(|(index, code)| doc! { "index": index, "code": code }).collect();
    doc! { "n": n, "ok": 1, "writeErrors": errors }
}

#[test]
fn an_upsert_that_the_validator_stopped_proves_nothing_and_a_plain_update_does() {
    let upserts = reply(1, &[(1, DUPLICATE_KEY), (2, VALIDATION), (3, WRITE_CONFLICT)]);
    assert_eq!(stopped_by_validator(&upserts), [2]);
    let outcomes = of_updates(Ok(upserts), 4);
    assert_eq!(outcomes[..3], [Written::Yes, Written::Conflict, Written::Conflict]);
    assert!(matches!(outcomes[3], Written::Failed(StorageError::Busy(_))));
    let proven = proven_invalid(&reply(1, &[(0, VALIDATION), (2, WRITE_CONFLICT)]));
    assert!(matches!(proven[..], [(0, StorageError::Refused(_))]), "{proven:?}");
}

#[test]
fn plain_updates_of_a_transaction_all_hit_or_none_counts() {
    assert_eq!(of_exact_updates(&reply(3, &[]), 3), Written::Yes);
    assert_eq!(of_exact_updates(&reply(2, &[]), 3), Written::Conflict);
    assert!(matches!(of_exact_updates(&reply(2, &[(2, VALIDATION)]), 3), Written::Failed(StorageError::Refused(_))));
}
