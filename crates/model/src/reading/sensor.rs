//! A sensor: a measurement and its sorted tags. Its key is the canonical line-protocol text, e.g.
//! `climate,room=lab,sensor=s1`.

use std::borrow::Cow;
use std::fmt::Write;

/// A sensor (`InfluxDB` calls it a series): a measurement and its tags, sorted bytewise by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// The canonical key: parts escaped as in line protocol, tags sorted.
    pub key: Box<str>,
    /// The measurement, unescaped.
    pub measurement: Box<str>,
    /// Tag keys and values, unescaped, sorted by key; keys are distinct.
    pub tags: Box<[(Box<str>, Box<str>)]>,
}

impl Sensor {
    /// The sensor with this measurement and these tags, given in any order.
    ///
    /// # Errors
    /// The tag key, if one appears twice.
    pub fn new<S: AsRef<str>>(measurement: &str, tags: impl IntoIterator<Item = (S, S)>) -> Result<Self, String> {
        let mut tags: Vec<(Box<str>, Box<str>)> =
            tags.into_iter().map(|(k, v)| (k.as_ref().into(), v.as_ref().into())).collect();
        tags.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if let Some(twice) = tags.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice[0].0.to_string());
        }
        Ok(Self { key: canonical_key(measurement, &tags).into(), measurement: measurement.into(), tags: tags.into() })
    }

    /// The value of a tag.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// Parses a key whose part lengths are unknown. The result is wrong if a part ends in a backslash; see
    /// [`Sensor::part_lengths`].
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let mut lengths = Vec::new();
        let mut rest = key;
        let mut separators = [','].as_slice();
        loop {
            let end = end_of_part(rest, separators);
            lengths.push(end as u64);
            let Some(next) = rest.get(end + 1..) else { break };
            separators = if rest.as_bytes()[end] == b',' { &['='] } else { &[','] };
            rest = next;
        }
        let parts = Self::split_key(key, &lengths)?;
        let (measurement, tags) = parts.split_first()?;
        if tags.len() % 2 == 1 {
            return None;
        }
        Self::new(measurement, tags.chunks_exact(2).map(|tag| (&*tag[0], &*tag[1]))).ok()
    }

    /// The length in bytes of each part of the key: the measurement, then each tag's name and value. Without the
    /// lengths a key is ambiguous, because a part may end in a backslash.
    pub fn part_lengths(&self) -> impl Iterator<Item = usize> {
        let tags = self.tags.iter().flat_map(|(name, value)| [(name, TAG), (value, TAG)]);
        std::iter::once((&self.measurement, MEASUREMENT)).chain(tags).map(|(part, separators)| {
            part.len() + part.bytes().filter(|byte| separators.contains(&char::from(*byte))).count()
        })
    }

    /// Splits a key into parts of these lengths and unescapes them; `None` if the lengths do not fit the key.
    #[must_use]
    pub fn split_key<'k>(key: &'k str, lengths: &[u64]) -> Option<Vec<Cow<'k, str>>> {
        let mut rest = key;
        let mut parts = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            let separators = if number == 0 {
                MEASUREMENT
            } else {
                rest = rest.strip_prefix(if number % 2 == 1 { ',' } else { '=' })?;
                TAG
            };
            let (part, remainder) = rest.split_at_checked(usize::try_from(*length).ok()?)?;
            parts.push(unescaped(part, separators));
            rest = remainder;
        }
        rest.is_empty().then_some(parts)
    }
}

/// Characters that are escaped in a measurement.
const MEASUREMENT: &[char] = &[',', ' '];
/// Characters that are escaped in a tag's name or value.
const TAG: &[char] = &[',', '=', ' '];

fn canonical_key(measurement: &str, tags: &[(Box<str>, Box<str>)]) -> String {
    let mut key = String::with_capacity(measurement.len() + tags.len() * 16);
    escape_into(&mut key, measurement, MEASUREMENT);
    for (name, value) in tags {
        key.push(',');
        escape_into(&mut key, name, TAG);
        key.push('=');
        escape_into(&mut key, value, TAG);
    }
    key
}

/// Escapes a name: line protocol puts a backslash before separators, and leaves backslashes unescaped.
fn escape_into(out: &mut String, name: &str, separators: &[char]) {
    for c in name.chars() {
        if separators.contains(&c) {
            out.push('\\');
        }
        // Writing a char to a String cannot fail.
        let _ = out.write_char(c);
    }
}

/// The position of the first separator that is not escaped; the length if there is none.
fn end_of_part(text: &str, separators: &[char]) -> usize {
    let mut escaped = false;
    let is_end = |c: char| {
        let ends = separators.contains(&c) && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    };
    text.find(is_end).unwrap_or(text.len())
}

/// The inverse of [`escape_into`].
fn unescaped<'p>(part: &'p str, separators: &[char]) -> Cow<'p, str> {
    if !part.contains('\\') {
        return Cow::Borrowed(part);
    }
    let mut out = String::with_capacity(part.len());
    let mut chars = part.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(next) if c == '\\' && separators.contains(next) => {}
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_split_key_yields_the_original_parts(
            measurement in r"[a\\,= é]{1,6}",
            tags in prop::collection::btree_map(r"[a\\,= é]{1,4}", r"[a\\,= é]{1,4}", 0..4),
        ) {
            let sensor = Sensor::new(&measurement, tags).expect("distinct names");
            let lengths: Vec<u64> = sensor.part_lengths().map(|length| length as u64).collect();
            let parts = Sensor::split_key(&sensor.key, &lengths).expect("its own parts");
            let expected = sensor.tags.iter().flat_map(|(name, value)| [&**name, &**value]);
            let expected: Vec<&str> = std::iter::once(&*sensor.measurement).chain(expected).collect();
            prop_assert_eq!(parts, expected);
        }

        #[test]
        fn wrong_lengths_do_not_panic(lengths in prop::collection::vec(0..12_u64, 0..6)) {
            let key = r"m\,é,a=1\ 2,bc=ü";
            if let Some(parts) = Sensor::split_key(key, &lengths) {
                prop_assert_eq!(parts.len(), lengths.len());
            }
            prop_assert_eq!(Sensor::split_key(key, &[u64::MAX]), None);
        }
    }

    #[test]
    fn the_key_is_sorted_and_escaped() {
        let sensor = Sensor::new("my climate", [("site", "a,b"), ("room", "x=1 y")]).expect("distinct keys");
        assert_eq!(&*sensor.key, r"my\ climate,room=x\=1\ y,site=a\,b");
        assert_eq!(Sensor::new("m", [("a", "1"), ("a", "2")]), Err("a".to_owned()));
    }
}
