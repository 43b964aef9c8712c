//! Reads X.509 certificates that were verified already or are the server's own: what a token may be bound to, and when
//! they expire. Format: [RFC 5280](https://www.rfc-editor.org/rfc/rfc5280#section-4.1).

use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::access::hex;

// DER tags.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// The version field, which is optional.
const VERSION: u8 = 0xa0;
/// A time with a two-digit year: 1950 to 2049.
const UTC_TIME: u8 = 0x17;
/// A time with a four-digit year.
const GENERALIZED_TIME: u8 = 0x18;

/// What a token may be bound to (`access` compares the texts): the certificate's SHA-256 fingerprint as `sha256:HEX`,
/// and its DNS names as `dns:NAME` in lower case. Not the common name: an authority that checks DNS names need not
/// check what else stands in a subject.
pub fn identities(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let fingerprint = format!("sha256:{}", hex(&Sha256::digest(certificate)));
    let mut identities = vec![fingerprint.into_boxed_str()];
    if let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) {
        let names = certificate.valid_dns_names().map(str::to_ascii_lowercase);
        identities.extend(names.map(|name| format!("dns:{name}").into_boxed_str()));
    }
    identities
}

/// The expiry of a certificate (`notAfter`), in seconds since the epoch.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let expect = |der, tag| element(der).filter(|found| found.0 == tag).map(|(_, content, rest)| (content, rest));
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (signed, _) = expect(certificate, SEQUENCE)?;
    let serial = expect(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, algorithm) = expect(serial, INTEGER)?;
    let (_, issuer) = expect(algorithm, SEQUENCE)?;
    let (_, validity) = expect(issuer, SEQUENCE)?;
    let (validity, _) = expect(validity, SEQUENCE)?;
    let (_, _not_before, not_after) = element(validity)?;
    let (tag, text, _) = element(not_after)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// Seconds since the epoch of a time such as `491231235959Z` or `20491231235959Z`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let text = match tag {
        UTC_TIME if *text < *"50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(time.duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0)).as_secs())
}

/// The first DER element: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_has_a_fingerprint_and_no_names() {
        let identities = identities(&CertificateDer::from_slice(b"abc"));
        // From FIPS 180-2, appendix B.1.
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(identities, [expected.into()]);
    }

    #[test]
    fn both_kinds_of_time_are_read() {
        for (tag, text, second) in [
            (UTC_TIME, "700101000001Z", Some(1)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "491231235959+0100", None),
            (GENERALIZED_TIME, "", None),
            (SEQUENCE, "491231235959Z", None),
        ] {
            assert_eq!(seconds(tag, text), second, "{text}");
        }
    }

    #[test]
    fn the_end_is_found_behind_what_may_be_missing_and_nowhere_in_what_is_torn() {
        let element = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).expect("short")], content].concat();
        let times = [element(UTC_TIME, b"260101000000Z"), element(UTC_TIME, b"270101000000Z")].concat();
        let behind = [&element(SEQUENCE, &[])[..], &element(SEQUENCE, b"issuer"), &element(SEQUENCE, &times), b"..."];
        for version in [&[][..], &element(VERSION, &element(INTEGER, &[2]))] {
            let signed = element(SEQUENCE, &[version, &element(INTEGER, &[7]), &behind.concat()].concat());
            let whole = element(SEQUENCE, &[&signed[..], b"signature"].concat());
            assert_eq!(not_after(&whole[..].into()), Some(1_798_761_600));
            for end in 0..whole.len() {
                assert_eq!(not_after(&whole[..end].into()), None, "cut at {end}");
            }
        }
    }
}
