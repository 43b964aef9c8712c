//! Reads identities and expiry times from X.509 certificates that were verified already or are the server's own. Format: [RFC 5280](https://www.rfc-editor.org/rfc/rfc5280#section-4.1).

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

/// Returns the identities to which a token can be bound: the SHA-256 fingerprint as `sha256:HEX`, and the DNS names as
/// `dns:NAME` in lower case. The common name is not included, because authorities need not verify it.
pub fn identities(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let fingerprint = format!("sha256:{}", hex(&Sha256::digest(certificate)));
    let mut identities = vec![fingerprint.into_boxed_str()];
    if let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) {
        let names = certificate.valid_dns_names().map(str::to_ascii_lowercase);
        identities.extend(names.map(|name| format!("dns:{name}").into_boxed_str()));
    }
    identities
}

/// Returns the expiry of a certificate (`notAfter`), in seconds since the epoch; `None` if it is malformed.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<i64> {
    let expect = |der, tag| element(der).filter(|found| found.tag == tag);
    let certificate = expect(certificate, SEQUENCE)?;
    let signed = expect(certificate.content, SEQUENCE)?.content;
    let serial = expect(signed, VERSION).map_or(signed, |version| version.rest);
    let algorithm = expect(serial, INTEGER)?.rest;
    let issuer = expect(algorithm, SEQUENCE)?.rest;
    let validity = expect(issuer, SEQUENCE)?.rest;
    let validity = expect(validity, SEQUENCE)?.content;
    let not_before = element(validity)?;
    let not_after = element(not_before.rest)?;
    seconds(not_after.tag, std::str::from_utf8(not_after.content).ok()?)
}

/// Parses a time to seconds since the epoch, such as `491231235959Z` or `20491231235959Z`.
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

/// A DER element.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    /// The bytes after the element.
    rest: &'a [u8],
}

/// Parses the first DER element.
fn element(der: &[u8]) -> Option<Element<'_>> {
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
    Some(Element { tag: *tag, content, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificates_have_a_fingerprint_but_no_names() {
        let identities = identities(&CertificateDer::from_slice(b"abc"));
        // From FIPS 180-2, appendix B.1.
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(identities, [expected.into()]);
    }

    #[test]
    fn both_time_formats_are_parsed() {
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
    fn the_expiry_is_found_with_and_without_a_version_but_not_in_truncated_certificates() {
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
