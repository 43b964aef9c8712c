//! Finds the known key that a mistyped key resembles.

/// Returns the known key that was most likely meant, or `None` if no key is close.
///
/// A key counts as close if its name without the section is the same, or if the edit distance is at most a third of the
/// mistyped key's length.
pub fn nearest<'k>(mistyped: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let mistyped = mistyped.to_lowercase().replace('-', "_");
    let name = last_part(&mistyped);
    let distances = known.filter_map(|key| {
        // Without a section, treat all sections alike. The edit distance would prefer those with short names.
        let lacks_section = mistyped == name && last_part(key) == name;
        let distance = if lacks_section { 0 } else { strsim::levenshtein(&mistyped, key) };
        let is_close = distance <= mistyped.chars().count() / 3 || last_part(key) == name;
        is_close.then_some((distance, key))
    });
    // Of keys that are equally near, that of the server is meant most often.
    distances
        .min_by_key(|(distance, key)| (*distance, !key.starts_with("server."), *key))
        .map(|(_, key)| key.to_owned())
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_meant_is_found() {
        let known = [
            "memtable.max_bytes",
            "ingest.shards",
            "limits.body_bytes",
            "page.max_bytes",
            "server.listen",
            "cluster.listen",
        ];
        let cases = [
            ("ingest.shrads", Some("ingest.shards")),
            ("ingst.shards", Some("ingest.shards")),
            ("Ingest.Shards", Some("ingest.shards")),
            ("listen", Some("server.listen")),
            ("ingest.body-bytes", Some("limits.body_bytes")),
            ("pages.max_bytes", Some("page.max_bytes")),
            ("max_bytes", Some("memtable.max_bytes")),
            ("server.colour", None),
            ("x", None),
        ];
        for (mistyped, meant) in cases {
            assert_eq!(nearest(mistyped, known.into_iter()).as_deref(), meant, "{mistyped}");
        }
    }
}
