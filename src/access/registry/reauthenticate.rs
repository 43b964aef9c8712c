//! Authenticates a long request, such as a stream, again while it runs.

use super::{TokenRegistry, check_valid};
use crate::access::caller::{Caller, Denied};

impl TokenRegistry {
    /// Authenticates a running request with the present state of its token. This does not count as a use. `secret` is
    /// the id of the secret that the request had. Without one, `identities` are those of the client's certificate, as
    /// in [`TokenRegistry::caller`].
    ///
    /// # Errors
    /// If the request would be denied now, or would have another token. A token that was created again under the same
    /// name counts as another token.
    pub fn reauthenticate(
        &self,
        caller: &Caller,
        secret: Option<&str>,
        identities: &[Box<str>],
        now: i64,
    ) -> Result<Caller, Denied> {
        let known = self.current(now)?;
        let Caller::Holder(before) = caller else {
            return if self.is_open(&known) { Ok(Caller::Anybody) } else { Err(Denied::Missing) };
        };
        let holder = match secret {
            None => known.by_identities(identities).ok_or(Denied::Missing)?,
            Some(id) => {
                let found = known.by_id.get(id).ok_or(Denied::Unknown)?;
                if found.secret.until.is_some_and(|until| now >= until) {
                    return Err(Denied::Expired);
                }
                &found.holder
            }
        };
        if holder.token.name != before.token.name || holder.token.created != before.token.created {
            return Err(Denied::Unknown);
        }
        check_valid(&holder.token, now)?;
        Ok(Caller::Holder(holder.clone()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::access::secret::Secret;
    use crate::access::{Mode, Quota, Scopes, Token, TokenFile, TokenStore};

    fn bound_token(created: i64, certificate: &str, rev: i64) -> (Token, String) {
        let (secret, text) = Secret::generate().unwrap();
        let scopes = Scopes { read: vec!["*".to_owned()], ..Scopes::default() };
        let token = Token {
            name: "gw".to_owned(),
            secrets: vec![secret],
            scopes,
            certificates: vec![certificate.to_owned()],
            quota: Quota::default(),
            created,
            expires: None,
            revoked: None,
            rev,
        };
        (token, text)
    }

    /// Regression: a stream that was authenticated by a certificate continued after its token was bound to another
    /// certificate, or was replaced by another token of the same name.
    #[tokio::test]
    async fn a_running_request_is_bound_to_its_certificate_and_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::primary(folder.path());
        let registry = TokenRegistry::from_file(file.clone(), Mode::Always);
        let (first, text) = bound_token(100, "dns:old", 1);
        assert!(file.put(&first, None).await.unwrap());
        registry.load().await.unwrap();
        let old: [Box<str>; 2] = ["sha256:00".into(), "dns:old".into()];
        let by_certificate = registry.caller(None, &old, 200).unwrap();
        let by_secret = registry.caller(Some(&text), &[], 200).unwrap();
        let id = first.secrets[0].id.clone();
        let again = |now: i64| {
            let callers = [
                registry.reauthenticate(&by_certificate, None, &old, now),
                registry.reauthenticate(&by_secret, Some(&id), &[], now),
            ];
            callers.map(|caller| caller.map(|caller| caller.name().to_owned()))
        };
        assert_eq!(again(300), [Ok("gw".to_owned()), Ok("gw".to_owned())]);
        let last_use = registry.list()[0].last_use;
        assert_eq!(last_use, Some(200), "a running request is not a new use");
        // Bind the token to another certificate. The secret stays.
        let rebound = Token { certificates: vec!["dns:new".to_owned()], rev: 2, ..first.clone() };
        assert!(file.put(&rebound, Some(1)).await.unwrap());
        registry.refresh().await.unwrap();
        assert_eq!(again(300), [Err(Denied::Missing), Ok("gw".to_owned())]);
        // Create another token of the same name with the same certificate.
        assert!(file.put(&bound_token(250, "dns:old", 3).0, Some(2)).await.unwrap());
        registry.refresh().await.unwrap();
        assert!(registry.caller(None, &old, 300).is_ok());
        assert_eq!(again(300), [Err(Denied::Unknown), Err(Denied::Unknown)]);
    }
}
