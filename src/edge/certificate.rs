//! Reads X.509 certificates: the names in a client's certificate, which the handshake has verified already, and the
//! expiry of the server's own. Format: [RFC 5280](https://www.rfc-editor.org/rfc/rfc5280#section-4.1).

use rustls_pki_types::CertificateDer;

// DER tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
/// The version field, which is optional.
const VERSION: u8 = 0xa0;
/// A time with a two-digit year: 1950 to 2049.
const UTC_TIME: u8 = 0x17;
/// A time with a four-digit year.
const GENERALIZED_TIME: u8 = 0x18;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// String types that hold ASCII or UTF-8: UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];
/// OID 2.5.4.3, the common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The certificate's DNS names, and its common name if that is not among them.
pub fn names(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let mut names: Vec<Box<str>> = certificate.valid_dns_names().map(Box::from).collect();
    if let Some(name) = common_name(certificate.subject())
        && !names.iter().any(|known| **known == *name)
    {
        names.push(name.into());
    }
    names
}

/// The first common name of a subject: a sequence of sets of pairs. `subject` is the content of the outer sequence,
/// without its tag and length.
fn common_name(subject: &[u8]) -> Option<&str> {
    let mut sets = subject;
    while let Some((SET, mut pairs, rest)) = element(sets) {
        sets = rest;
        while let Some((SEQUENCE, pair, rest)) = element(pairs) {
            pairs = rest;
            let Some((OBJECT_IDENTIFIER, kind, value)) = element(pair) else { continue };
            match element(value) {
                Some((tag, text, _)) if kind == COMMON_NAME && STRINGS.contains(&tag) => {
                    return std::str::from_utf8(text).ok().filter(|text| !text.is_empty());
                }
                _ => {}
            }
        }
    }
    None
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
    fn the_common_name_is_found_among_others_and_nothing_in_what_is_torn() {
        // C=DE, CN=gw-1
        let mut subject = vec![0x31, 0x0b, 0x30, 0x09, 0x06, 0x03, 0x55, 0x04, 0x06, 0x13, 0x02, b'D', b'E'];
        subject.extend([0x31, 0x0d, 0x30, 0x0b, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x04, b'g', b'w', b'-', b'1']);
        assert_eq!(common_name(&subject), Some("gw-1"));
        for end in 0..subject.len() {
            assert_eq!(common_name(&subject[..end]), None, "cut at {end}");
        }
        assert_eq!(common_name(&[0x31, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert!(names(&CertificateDer::from_slice(b"no certificate")).is_empty());
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
