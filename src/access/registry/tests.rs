use super::*;
use crate::access::{Quota, Scopes};

fn token(name: &str) -> (Token, String) {
    let (secret, text) = Secret::generate().unwrap();
    let scopes = Scopes { read: vec!["*".to_owned()], ..Scopes::default() };
    let token = Token {
        name: name.to_owned(),
        secrets: vec![secret],
        scopes,
        certificates: Vec::new(),
        quota: Quota::default(),
        created: 100,
        expires: None,
        revoked: None,
        rev: 1,
    };
    (token, text)
}

#[tokio::test]
async fn a_token_is_valid_from_its_creation_to_its_revocation() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::primary(folder.path());
    let registry = TokenRegistry::from_file(file.clone(), Mode::OnceThereIsAToken);
    registry.load().await.unwrap();
    assert!(matches!(registry.caller(Some("anything"), &[], 0), Ok(Caller::Anybody)));
    let (mut one, text) = token("one");
    one.certificates = vec!["dns:gw-1".to_owned()];
    assert!(file.put(&one, None).await.unwrap());
    assert!(!file.put(&one, None).await.unwrap(), "names are unique");
    assert!(!file.put(&one, Some(7)).await.unwrap(), "the stored rev differs");
    registry.refresh().await.unwrap();
    assert_eq!(registry.caller(Some(&text), &[], 0).unwrap().name(), "one");
    assert_eq!(registry.caller(None, &[], 0).unwrap_err(), Denied::Missing);
    assert_eq!(registry.caller(Some("x"), &[], 0).unwrap_err(), Denied::Malformed);
    assert_eq!(registry.caller(Some(&token("one").1), &[], 0).unwrap_err(), Denied::Unknown);
    let wrong = format!("{}0", &text[..text.len() - 1]);
    let wrong = if wrong == text { format!("{}1", &text[..text.len() - 1]) } else { wrong };
    assert_eq!(registry.caller(Some(&wrong), &[], 0).unwrap_err(), Denied::Unknown);
    assert_eq!(registry.caller(None, &["sha256:00".into(), "dns:gw-1".into()], 0).unwrap().name(), "one");
    // A certificate with the name of a token is not bound to it, and a bound certificate does not help a wrong token.
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
    assert!(registry.is_enforced(), "the service stays closed after the last token");
}

/// Regression: a store that could not be read yet left the service open to everybody.
#[tokio::test]
async fn all_requests_are_denied_until_tokens_are_read() {
    for mode in [Mode::OnceThereIsAToken, Mode::Always] {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::primary(folder.path());
        let registry = TokenRegistry::from_file(file, mode);
        assert_eq!(registry.caller(None, &[], 0).unwrap_err(), Denied::Unavailable);
        assert!(registry.is_enforced());
        registry.load().await.unwrap();
        assert_eq!(registry.caller(None, &[], 0).is_ok(), mode == Mode::OnceThereIsAToken);
    }
}

/// A store that is unavailable once the flag is set.
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

/// Regression: a revoked token stayed valid for ever on an instance without a connection to MongoDB.
#[tokio::test]
async fn outdated_tokens_are_not_valid() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Away::default());
    let hour = Duration::from_secs(3600);
    let open = || {
        let cache = TokenFile::cache(folder.path());
        TokenRegistry::from_store(store.clone(), cache, Mode::OnceThereIsAToken, hour)
    };
    let registry = open();
    registry.load().await.unwrap();
    store.0.store(true, Ordering::Relaxed);
    let now = now_seconds();
    assert!(registry.caller(None, &[], now + 3500).is_ok());
    assert_eq!(registry.caller(None, &[], now + 3700).unwrap_err(), Denied::Unavailable);
    // A restart does not renew their age.
    let registry = open();
    registry.load().await.unwrap();
    assert!(registry.caller(None, &[], now + 3500).is_ok());
    assert_eq!(registry.caller(None, &[], now + 3700).unwrap_err(), Denied::Unavailable);
    store.0.store(false, Ordering::Relaxed);
    registry.refresh().await.unwrap();
    assert!(registry.caller(None, &[], now).is_ok());
}

/// Regression: the maximum lifetime did not apply to tokens without an end.
#[tokio::test]
async fn the_maximum_lifetime_applies_to_all_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::primary(folder.path());
    let (one, text_one) = token("one");
    let (mut two, text_two) = token("two");
    two.expires = Some(120);
    for token in [&one, &two] {
        file.put(token, None).await.unwrap();
    }
    let registry = TokenRegistry::from_file(file, Mode::Always).limit_lifetime(Some(50));
    registry.load().await.unwrap();
    let ok = |text: &str, now| registry.caller(Some(text), &[], now).is_ok();
    assert!(ok(&text_one, 149) && ok(&text_two, 119));
    assert_eq!(registry.caller(Some(&text_one), &[], 150).unwrap_err(), Denied::Expired);
    assert_eq!(registry.caller(Some(&text_two), &[], 120).unwrap_err(), Denied::Expired);
    assert!(registry.has_live(149) && !registry.has_live(150));
    assert_eq!(registry.terms(110), TokenTerms { valid: 2, ends_in: Some(10), oldest: 10, unused: 0 });
    assert_eq!(registry.terms(125), TokenTerms { valid: 1, ends_in: Some(25), oldest: 25, unused: 0 });
    assert_eq!(registry.terms(200), TokenTerms::default());
}

/// Regression: uses were kept in memory only, so after a restart every token seemed never used.
#[tokio::test]
async fn uses_are_stored_at_most_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::primary(folder.path());
    let (one, text) = token("one");
    file.put(&one, None).await.unwrap();
    file.put(&token("two").0, None).await.unwrap();
    let registry = TokenRegistry::from_file(file.clone(), Mode::Always);
    registry.load().await.unwrap();
    registry.store_uses(1000).await.unwrap();
    assert!(file.uses().await.unwrap().is_empty(), "no token was used");
    for (used, stored_at, expected) in [(1000, 1001, 1000), (1030, 1031, 1000), (1050, 1061, 1050), (1055, 1062, 1050)]
    {
        registry.caller(Some(&text), &[], used).unwrap();
        registry.store_uses(stored_at).await.unwrap();
        let uses = file.uses().await.unwrap();
        assert_eq!(uses, HashMap::from([("one".to_owned(), expected)]), "{used}");
    }
    let later = TokenRegistry::from_file(file, Mode::Always);
    later.load().await.unwrap();
    later.read_uses().await.unwrap();
    assert_eq!(later.terms(1100).unused, 1000, "two was never used");
    assert_eq!(later.known_tokens().by_name["one"].last_use.last(), Some(1050));
}

#[tokio::test]
async fn tokens_and_secrets_expire() {
    let folder = tempfile::tempdir().unwrap();
    let file = TokenFile::primary(folder.path());
    let (mut one, old) = token("one");
    let (newer, text) = Secret::generate().unwrap();
    one.secrets[0].until = Some(50);
    one.secrets.push(newer);
    one.expires = Some(80);
    file.put(&one, None).await.unwrap();
    let registry = TokenRegistry::from_file(file, Mode::Always);
    assert_eq!(registry.caller(Some(&text), &[], 0).unwrap_err(), Denied::Unavailable);
    registry.load().await.unwrap();
    assert!(registry.caller(Some(&old), &[], 49).is_ok() && registry.caller(Some(&text), &[], 79).is_ok());
    assert_eq!(registry.caller(Some(&old), &[], 50).unwrap_err(), Denied::Expired);
    assert_eq!(registry.caller(Some(&text), &[], 80).unwrap_err(), Denied::Expired);
}
