//! Whether a request that goes on, as a stream does, would be let in now.

use super::{TokenRegistry, checked};
use crate::access::caller::{Caller, Denied};
use crate::access::secret::Secret;

impl TokenRegistry {
    /// The caller of a request that goes on, as its token is now; not counted as a use. `secret` is the id of the secret by which it was let in,
    /// if it was by one; else it was by its client's certificate, which is given as for [`TokenRegistry::caller`].
    ///
    /// # Errors
    /// When it would not be let in any more, or as another token: one of this name that was made since is another.
    pub fn again(
        &self,
        caller: &Caller,
        secret: Option<&str>,
        certified: &[Box<str>],
        now: i64,
    ) -> Result<Caller, Denied> {
        let known = self.current(now)?;
        let Caller::Holder(before) = caller else {
            return if self.is_open(&known) { Ok(Caller::Anybody) } else { Err(Denied::Missing) };
        };
        let holder = match secret {
            None => known.bound(certified).ok_or(Denied::Missing)?,
            Some(id) => match known.by_id.get(id).ok_or(Denied::Unknown)? {
                (Secret { until: Some(until), .. }, _) if now >= *until => return Err(Denied::Expired),
                (_, holder) => holder,
            },
        };
        let (token, before) = (&holder.token, &before.token);
        if token.name != before.name || token.created != before.created {
            return Err(Denied::Unknown);
        }
        checked(holder, now).map(|holder| Caller::Holder(holder.clone()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::access::{Mode, Quota, Scopes, Token, TokenFile, TokenStore};

    fn bound(created: i64, to: &str, rev: i64) -> (Token, String) {
        let (secret, text) = Secret::generate().unwrap();
        let scopes = Scopes { read: vec!["*".to_owned()], ..Scopes::default() };
        let token = Token {
            name: "gw".to_owned(),
            secrets: vec![secret],
            scopes,
            certificates: vec![to.to_owned()],
            quota: Quota::default(),
            created,
            expires: None,
            revoked: None,
            rev,
        };
        (token, text)
    }

    /// A stream of a client's certificate went on by the name of its token, whatever was bound to that: another certificate, or another token
    /// of that name, if it was made within a second of the end of the first.
    #[tokio::test]
    async fn a_certificate_is_asked_for_again_and_counts_as_its_token_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::own(folder.path());
        let registry = TokenRegistry::of_file(file.clone(), Mode::Always);
        let (first, text) = bound(100, "dns:old", 1);
        assert!(file.put(&first, None).await.unwrap());
        registry.load().await.unwrap();
        let old: [Box<str>; 2] = ["sha256:00".into(), "dns:old".into()];
        let by_certificate = registry.caller(None, &old, 200).unwrap();
        let by_secret = registry.caller(Some(&text), &[], 200).unwrap();
        let id = first.secrets[0].id.clone();
        let again = |now: i64| {
            [registry.again(&by_certificate, None, &old, now), registry.again(&by_secret, Some(&id), &[], now)]
                .map(|by| by.map(|by| by.name().to_owned()))
        };
        assert_eq!(again(300), [Ok("gw".to_owned()), Ok("gw".to_owned())]);
        let used = registry.list()[0].1;
        assert_eq!(used, Some(200), "to look again is no use");
        // Bound to another certificate: the secret is as it was.
        let rebound = Token { certificates: vec!["dns:new".to_owned()], rev: 2, ..first.clone() };
        assert!(file.put(&rebound, Some(1)).await.unwrap());
        registry.refresh().await.unwrap();
        assert_eq!(again(300), [Err(Denied::Missing), Ok("gw".to_owned())]);
        // Made anew under the same name, for the same certificate.
        assert!(file.put(&bound(250, "dns:old", 3).0, Some(2)).await.unwrap());
        registry.refresh().await.unwrap();
        assert!(registry.caller(None, &old, 300).is_ok());
        assert_eq!(again(300), [Err(Denied::Unknown), Err(Denied::Unknown)]);
    }
}
