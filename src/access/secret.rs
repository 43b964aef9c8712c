//! The secret of a token: 256 random bits, shown once, stored as SHA-256. Its text is `hg_<id>_<secret>`. The id is
//! public and is the key by which a token is looked up.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const PREFIX: &str = "hg_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// The stored form of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// 12 hexadecimal digits.
    pub id: String,
    /// The SHA-256 of the secret's hexadecimal text (not of its bytes), in hexadecimal.
    pub sha256: String,
    /// The end of its validity after a rotation, in seconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

impl Secret {
    /// Generates a secret. Also returns its text, which is shown once.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn generate() -> Result<(Self, String), getrandom::Error> {
        let mut id = [0; ID_BYTES];
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        let id = hex(&id);
        let secret = hex(&secret);
        let text = format!("{PREFIX}{id}_{secret}");
        Ok((Self { sha256: hex(&Sha256::digest(&secret)), id, until: None }, text))
    }

    /// Returns true if the presented secret is this one. Compares in constant time.
    #[must_use]
    pub fn matches(&self, presented: &PresentedToken<'_>) -> bool {
        let digest = hex(&Sha256::digest(presented.secret));
        bool::from(self.sha256.as_bytes().ct_eq(digest.as_bytes()))
    }
}

/// A token as a client sent it. Its `Debug` output shows only the id.
#[derive(Clone, Copy)]
pub struct PresentedToken<'a> {
    /// The claimed id.
    pub id: &'a str,
    secret: &'a str,
}

impl<'a> PresentedToken<'a> {
    /// Parses the text of a token. Returns `None` if it does not have the form of one.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (id, secret) = text.trim().strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str, bytes: usize| text.len() == 2 * bytes && text.bytes().all(|b| b.is_ascii_hexdigit());
        (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then_some(Self { id, secret })
    }

    /// Returns the stored form of this secret, for a token with a given text.
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        Secret { id: self.id.to_owned(), sha256: hex(&Sha256::digest(self.secret)), until: None }
    }
}

impl std::fmt::Debug for PresentedToken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}_***", self.id)
    }
}

/// Formats bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_only_its_own_text() {
        let (secret, text) = Secret::generate().unwrap();
        let (other, other_text) = Secret::generate().unwrap();
        assert_ne!(text, other_text);
        let presented = PresentedToken::parse(&text).unwrap();
        assert!(presented.id == secret.id && secret.matches(&presented) && !other.matches(&presented));
        assert_eq!(presented.to_secret(), secret);
        assert!(!text.contains(&secret.sha256) && !secret.sha256.contains(&text[16..]));
        assert!(!format!("{presented:?}").contains(&text[16..]), "Debug shows the secret");
    }

    #[test]
    fn the_digest_is_sha_256_of_the_secrets_text() {
        // From FIPS 180-2, appendix B.1: "abc".
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&Sha256::digest("abc")), expected);
    }

    #[test]
    fn malformed_tokens_are_rejected() {
        let (_, text) = Secret::generate().unwrap();
        for wrong in
            ["", "hg_", "hg__", &text[..text.len() - 1], &text[1..], &format!("{text}0"), &text.replace("hg_", "hx_")]
        {
            assert!(PresentedToken::parse(wrong).is_none(), "{wrong}");
        }
        assert!(PresentedToken::parse(&format!(" {text}\n")).is_some());
    }
}
