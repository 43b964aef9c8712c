//! A sensor: one measurement and its sorted tags. Its key is the canonical line-protocol text,
//! `climate,room=lab,sensor=s1`.

use std::fmt::Write;

/// One series: a measurement and its tags, sorted bytewise by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sensor {
    /// The canonical key: names escaped as in line protocol, tags sorted.
    pub key: Box<str>,
    /// The measurement, unescaped.
    pub measurement: Box<str>,
    /// Tag keys and values, unescaped, sorted by key, keys distinct.
    pub tags: Box<[(Box<str>, Box<str>)]>,
}

impl Sensor {
    /// The sensor of this measurement and these tags, in any order.
    ///
    /// # Errors
    /// The key that stands twice, if one does.
    pub fn new<S: AsRef<str>>(measurement: &str, tags: impl IntoIterator<Item = (S, S)>) -> Result<Self, String> {
        let mut tags: Vec<(Box<str>, Box<str>)> =
            tags.into_iter().map(|(k, v)| (k.as_ref().into(), v.as_ref().into())).collect();
        tags.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        if let Some(twice) = tags.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(twice[0].0.to_string());
        }
        Ok(Self { key: canonical_key(measurement, &tags).into(), measurement: measurement.into(), tags: tags.into() })
    }
}

fn canonical_key(measurement: &str, tags: &[(Box<str>, Box<str>)]) -> String {
    let mut key = String::with_capacity(measurement.len() + tags.len() * 16);
    escape_into(&mut key, measurement, &[',', ' ']);
    for (name, value) in tags {
        key.push(',');
        escape_into(&mut key, name, &[',', '=', ' ']);
        key.push('=');
        escape_into(&mut key, value, &[',', '=', ' ']);
    }
    key
}

/// Line protocol puts a backslash before its separators; a backslash itself stands as it is.
fn escape_into(out: &mut String, name: &str, separators: &[char]) {
    for c in name.chars() {
        if separators.contains(&c) {
            out.push('\\');
        }
        // Writing a char to a String cannot fail.
        let _ = out.write_char(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_sorted_and_escaped() {
        let sensor = Sensor::new("my climate", [("site", "a,b"), ("room", "x=1 y")]).expect("distinct keys");
        assert_eq!(&*sensor.key, r"my\ climate,room=x\=1\ y,site=a\,b");
        assert_eq!(Sensor::new("m", [("a", "1"), ("a", "2")]), Err("a".to_owned()));
    }
}
