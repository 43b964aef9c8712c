use bson::doc;

use super::*;

/// Regression: if a whole command failed with "bad value" or "type mismatch", for example because of an option that a proxy
/// did not know, all its documents counted as refused, and their readings went to the dead letters.
#[test]
fn only_invalid_content_of_a_document_is_a_refusal() {
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
    let document_class = |code| classify_document_error(code, "").class();
    assert_eq!(
        [2, 14, 112, 121, 4_711, 11_600].map(document_class),
        ["failing", "failing", "busy", "refused", "failing", "unknown"]
    );
}

fn reply(n: i32, codes: &[(i32, i32)]) -> Document {
    let errors: Vec<Document> = codes.iter().map(|(index, code)| doc! { "index": index, "code": code }).collect();
    doc! { "n": n, "ok": 1, "writeErrors": errors }
}

#[test]
fn statements_that_a_rule_stopped_are_found() {
    let upserts = reply(1, &[(1, DUPLICATE_KEY), (2, VALIDATION), (3, WRITE_CONFLICT)]);
    assert_eq!(broken_rules(&upserts), [(2, Rule::Schema)], "a duplicate _id breaks no rule");
    let outcomes = update_outcomes(Ok(upserts), 4);
    assert_eq!(outcomes[..3], [WriteOutcome::Applied, WriteOutcome::Conflict, WriteOutcome::Conflict]);
    assert!(matches!(outcomes[3], WriteOutcome::Failed(StorageError::Busy(_))));
    let message = "E11000 duplicate key error collection: t.s index: hourglass.unique.press.serial dup key: { meta.serial: \"A\" }";
    let rule = Rule::from_error(DUPLICATE_KEY, message);
    assert_eq!(rule, Some(Rule::Unique("meta.serial".to_owned())));
    assert!(matches!(rule.map(|rule| refusal(&rule)), Some(StorageError::Refused(_))));
}

#[test]
fn updates_of_a_transaction_succeed_only_together() {
    assert_eq!(exact_updates_outcome(&reply(3, &[]), 3), WriteOutcome::Applied);
    assert_eq!(exact_updates_outcome(&reply(2, &[]), 3), WriteOutcome::Conflict);
    assert!(matches!(
        exact_updates_outcome(&reply(2, &[(2, VALIDATION)]), 3),
        WriteOutcome::Failed(StorageError::Refused(_))
    ));
}
