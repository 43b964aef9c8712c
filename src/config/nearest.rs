//! Which known key a mistyped one resembles. Knows names only.

/// The known key that was most likely meant, or `None` when none is near.
///
/// A key of the right name in the wrong section, or in none, counts as near whatever the sections;
/// otherwise up to a third of its letters may be wrong.
pub fn nearest<'k>(mistyped: &str, known: impl Iterator<Item = &'k str>) -> Option<String> {
    let mistyped = mistyped.to_lowercase().replace('-', "_");
    let name = last_part(&mistyped);
    let distances = known.filter_map(|key| {
        // Without a section all sections are as far away: that of a shorter name is no more likely meant.
        let bare = mistyped == name && last_part(key) == name;
        let distance = if bare { 0 } else { edits(&mistyped, key) };
        let near = distance <= mistyped.chars().count() / 3 || last_part(key) == name;
        near.then_some((distance, key))
    });
    distances.min().map(|(_, key)| key.to_owned())
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// How many letters must be inserted, left out or replaced to make one of the other.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    // `row[i]` is the distance between the letters of `left` seen so far and the first i of `right`.
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (seen, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = seen + 1;
        for (i, other) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[i + 1];
            row[i + 1] = replaced.min(row[i] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (left, right, count) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edits(left, right), count, "{left} {right}");
        }
    }

    #[test]
    fn the_key_that_was_meant_is_found() {
        let known = ["hot.max_bytes", "ingest.shards", "limits.body_bytes", "page.max_bytes", "server.listen"];
        let cases = [
            ("ingest.shrads", Some("ingest.shards")),
            ("ingst.shards", Some("ingest.shards")),
            ("Ingest.Shards", Some("ingest.shards")),
            ("listen", Some("server.listen")),
            ("ingest.body-bytes", Some("limits.body_bytes")),
            ("pages.max_bytes", Some("page.max_bytes")),
            ("max_bytes", Some("hot.max_bytes")),
            ("server.colour", None),
            ("x", None),
        ];
        for (mistyped, meant) in cases {
            assert_eq!(nearest(mistyped, known.into_iter()).as_deref(), meant, "{mistyped}");
        }
    }
}
