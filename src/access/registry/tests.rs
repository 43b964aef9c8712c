use super::*;
use crate::access::{Quota, Scopes};

fn token(name: &str) -> (Token, String) {
    let (secret, text) = Secret::generate().unwrap();
    let scopes = Scopes { read: vec!["*".to_owned()], ..Scopes::default() };
    let (quota, created) = (Quota::default(), 100);
    let token = Token {
        name: name.to_owned(),
        secrets: vec![secret],
        scopes,
        certificates: Vec::new(),
        quota,
        created,
        expires: None,
        revoked: None,
        rev: 1,
    };
    (token, text)
}

#[tokio::test]
async fn a_token_counts_from_when_it_is_kept_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::own(folder.path());
    let registry = TokenRegistry::of_file(file.clone(), Mode::OnceThereIsAToken);
    registry.load().await.unwrap();
    assert!(matches!(registry.caller(Some("anything"), &[], 0), Ok(Caller::Anybody)));
    let (mut one, text) = token("one");
    one.certificates = vec!["dns:gw-1".to_owned()];
    assert!(file.put(&one, None).await.unwrap());
    assert!(!file.put(&one, None).await.unwrap(), "a name is there once");
    assert!(!file.put(&one, Some(7)).await.unwrap(), "another rev than it knows");
    registry.refresh().await.unwrap();
    assert_eq!(registry.caller(Some(&text), &[], 0).unwrap().name(), "one");
    assert_eq!(registry.caller(None, &[], 0).unwrap_err(), Denied::Missing);
    assert_eq!(registry.caller(Some("x"), &[], 0).unwrap_err(), Denied::Malformed);
    assert_eq!(registry.caller(Some(&token("one").1), &[], 0).unwrap_err(), Denied::Unknown);
    let wrong = format!("{}0", &text[..text.len() - 1]);
    let wrong = if wrong == text { format!("{}1", &text[..text.len() - 1]) } else { wrong };
    assert_eq!(registry.caller(Some(&wrong), &[], 0).unwrap_err(), Denied::Unknown);
    assert_eq!(registry.caller(None, &["sha256:00".into(), "dns:gw-1".into()], 0).unwrap().name(), "one");
    // The names of tokens alone bind nothing, and neither does a certificate beside a wrong token.
    assert_eq!(registry.caller(None, &["one".into(), "dns:one".into()], 0).unwrap_err(), Denied::Missing);
    assert_eq!(registry.caller(Some("x"), &["dns:gw-1".into()], 0).unwrap_err(), Denied::Malformed);
    one.revoked = Some(200);
    one.rev = 2;
    assert!(file.put(&one, Some(1)).await.unwrap());
    registry.refresh().await.unwrap();
    assert_eq!(registry.caller(Some(&text), &[], 0).unwrap_err(), Denied::Revoked);
    assert_eq!(registry.caller(None, &["dns:gw-1".into()], 0).unwrap_err(), Denied::Revoked);
    let (mut two, _) = token("two");
    two.certificates = vec!["dns:gw-1".to_owned()];
    assert!(file.put(&two, None).await.unwrap());
    registry.refresh().await.unwrap();
    assert_eq!(registry.caller(None, &["dns:gw-1".into()], 0).unwrap().name(), "two");
    assert!(registry.is_enforced(), "the last token's end opens nothing");
}

/// A store that could not be read yet left the service open to everybody where no listener is exposed.
#[tokio::test]
async fn what_was_never_read_opens_nothing() {
    for mode in [Mode::OnceThereIsAToken, Mode::Always] {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::own(folder.path());
        let registry = TokenRegistry::of_file(file, mode);
        assert_eq!(registry.caller(None, &[], 0).unwrap_err(), Denied::Unavailable);
        assert!(registry.is_enforced());
        registry.load().await.unwrap();
        assert_eq!(registry.caller(None, &[], 0).is_ok(), mode == Mode::OnceThereIsAToken);
    }
}

/// A store that answers until it is away.
#[derive(Debug, Default)]
struct Away(std::sync::atomic::AtomicBool);

#[async_trait::async_trait]
impl TokenStore for Away {
    async fn tokens(&self) -> Result<Vec<Token>, TokenStoreError> {
        let away = || TokenStoreError::Away { detail: "away".to_owned() };
        if self.0.load(Ordering::Relaxed) { Err(away()) } else { Ok(Vec::new()) }
    }

    async fn put(&self, _: &Token, _: Option<i64>) -> Result<bool, TokenStoreError> {
        Ok(false)
    }

    async fn uses(&self) -> Result<HashMap<String, i64>, TokenStoreError> {
        Ok(HashMap::new())
    }

    async fn note_uses(&self, _: &[(String, i64)]) -> Result<(), TokenStoreError> {
        Ok(())
    }
}

/// A token that was revoked in MongoDB stayed valid for ever on an instance that MongoDB was away from.
#[tokio::test]
async fn what_cannot_be_read_again_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (store, hour) = (Arc::new(Away::default()), Duration::from_secs(3600));
    let open = || {
        let cache = TokenFile::cache(folder.path());
        TokenRegistry::of_store(store.clone(), cache, Mode::OnceThereIsAToken, hour)
    };
    let registry = open();
    registry.load().await.unwrap();
    store.0.store(true, Ordering::Relaxed);
    let now = now_seconds();
    assert!(registry.caller(None, &[], now + 3500).is_ok());
    assert_eq!(registry.caller(None, &[], now + 3700).unwrap_err(), Denied::Unavailable);
    // Nor does a start make them younger.
    let registry = open();
    registry.load().await.unwrap();
    assert!(registry.caller(None, &[], now + 3500).is_ok());
    assert_eq!(registry.caller(None, &[], now + 3700).unwrap_err(), Denied::Unavailable);
    store.0.store(false, Ordering::Relaxed);
    registry.refresh().await.unwrap();
    assert!(registry.caller(None, &[], now).is_ok());
}

/// A token without an end was valid for ever, wherever it was created.
#[tokio::test]
async fn no_token_lives_longer_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::own(folder.path());
    let (one, of_one) = token("one");
    let (mut two, of_two) = token("two");
    two.expires = Some(120);
    for token in [&one, &two] {
        file.put(token, None).await.unwrap();
    }
    let registry = TokenRegistry::of_file(file, Mode::Always).limit_lifetime(Some(50));
    registry.load().await.unwrap();
    let ok = |text: &str, now| registry.caller(Some(text), &[], now).is_ok();
    assert!(ok(&of_one, 149) && ok(&of_two, 119));
    assert_eq!(registry.caller(Some(&of_one), &[], 150).unwrap_err(), Denied::Expired);
    assert_eq!(registry.caller(Some(&of_two), &[], 120).unwrap_err(), Denied::Expired);
    assert!(registry.has_live(149) && !registry.has_live(150));
    assert_eq!(registry.terms(110), TokenTerms { valid: 2, ends_in: Some(10), oldest: 10, unused: 0 });
    assert_eq!(registry.terms(125), TokenTerms { valid: 1, ends_in: Some(25), oldest: 25, unused: 0 });
    assert_eq!(registry.terms(200), TokenTerms::default());
}

/// Uses were in memory only: after a restart every token seemed never used.
#[tokio::test]
async fn uses_are_stored_at_most_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::own(folder.path());
    let (one, text) = token("one");
    file.put(&one, None).await.unwrap();
    file.put(&token("two").0, None).await.unwrap();
    let registry = TokenRegistry::of_file(file.clone(), Mode::Always);
    registry.load().await.unwrap();
    registry.store_uses(1000).await.unwrap();
    assert!(file.uses().await.unwrap().is_empty(), "nothing was used");
    for (used, stored_at, expected) in [(1000, 1001, 1000), (1030, 1031, 1000), (1050, 1061, 1050), (1055, 1062, 1050)]
    {
        registry.caller(Some(&text), &[], used).unwrap();
        registry.store_uses(stored_at).await.unwrap();
        let uses = file.uses().await.unwrap();
        assert_eq!(uses, HashMap::from([("one".to_owned(), expected)]), "{used}");
    }
    let later = TokenRegistry::of_file(file, Mode::Always);
    later.load().await.unwrap();
    later.recall_uses().await.unwrap();
    assert_eq!(later.terms(1100).unused, 1000, "two was never used");
    assert_eq!(later.known().by_name["one"].uses.last(), Some(1050));
}

#[tokio::test]
async fn time_ends_tokens_and_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::own(folder.path());
    let (mut one, old) = token("one");
    let (newer, text) = Secret::generate().unwrap();
    one.secrets[0].until = Some(50);
    one.secrets.push(newer);
    one.expires = Some(80);
    file.put(&one, None).await.unwrap();
    let registry = TokenRegistry::of_file(file, Mode::Always);
    assert_eq!(registry.caller(Some(&text), &[], 0).unwrap_err(), Denied::Unavailable);
    registry.load().await.unwrap();
    assert!(registry.caller(Some(&old), &[], 49).is_ok() && registry.caller(Some(&text), &[], 79).is_ok());
    assert_eq!(registry.caller(Some(&old), &[], 50).unwrap_err(), Denied::Expired);
    assert_eq!(registry.caller(Some(&text), &[], 80).unwrap_err(), Denied::Expired);
}
