//! The names in a client's certificate. Whether they may be believed was judged before, in the handshake.

use rustls_pki_types::CertificateDer;

/// Tag of a SEQUENCE.
const SEQUENCE: u8 = 0x30;
/// Tag of a SET.
const SET: u8 = 0x31;
/// Tag of an OBJECT IDENTIFIER.
const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tags of the strings that hold ASCII or UTF-8: UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];
/// 2.5.4.3, the common name.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The certificate's DNS names, and its common name where that is another one.
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

/// The first common name of a subject, which is given without its own tag: a sequence of sets of pairs.
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

/// The first element in DER: its tag, its content, and what comes behind it.
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
}
