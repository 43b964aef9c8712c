//! `thin=lttb` against the algorithm as published, on readings that were preselected by extremes if there are many.

use crate::support::prelude::*;

/// A reading: its time and the value of each field.
type Row = (i64, BTreeMap<&'static str, f64>);

/// Returns the places of the points that largest triangles choose, without the first and the last one.
fn triangles(points: &[(f64, f64)], buckets: usize) -> Vec<usize> {
    if points.len() < 3 || points.len() - 2 <= buckets {
        return (1..points.len().max(1) - 1).collect();
    }
    let bound = |bucket: usize| 1 + bucket * (points.len() - 2) / buckets;
    let mut chosen: Vec<usize> = vec![0];
    for bucket in 0..buckets {
        let (ax, ay) = points[*chosen.last().expect("the first one")];
        let next = &points[bound(bucket + 1)..bound(bucket + 2).min(points.len())];
        let cx = next.iter().map(|(x, _)| x).sum::<f64>() / next.len() as f64;
        let cy = next.iter().map(|(_, y)| y).sum::<f64>() / next.len() as f64;
        let mut best = (bound(bucket), -1.0);
        for (place, (bx, by)) in points.iter().enumerate().take(bound(bucket + 1)).skip(bound(bucket)) {
            let area = ((ax - cx) * (by - ay) - (ax - bx) * (cy - ay)).abs();
            if area > best.1 {
                best = (place, area);
            }
        }
        chosen.push(best.0);
    }
    chosen.split_off(1)
}

/// Returns the first and last reading, and the extremes of each field per pixel, if there are more than `max`.
fn extremes(rows: &[Row], fields: &[&'static str], max: usize, range: &Range<i64>) -> Vec<Row> {
    if rows.len() <= max {
        return rows.to_vec();
    }
    let pixels = ((max - 2) / (2 * fields.len())) as i64;
    let width = (range.end - range.start + pixels - 1) / pixels;
    let mut kept = BTreeSet::from([rows[0].0, rows[rows.len() - 1].0]);
    for pixel in 0..pixels {
        let within: Vec<&Row> = rows.iter().filter(|(time, _)| (time - range.start) / width == pixel).collect();
        for field in fields {
            let values = || within.iter().filter_map(|(time, values)| Some((*time, *values.get(field)?)));
            let least = values().min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            let greatest = values().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
            kept.extend(least.into_iter().chain(greatest).map(|(time, _)| time));
        }
    }
    rows.iter().filter(|(time, _)| kept.contains(time)).cloned().collect()
}

fn lttb(rows: &[Row], fields: &[&'static str], max: usize, range: &Range<i64>) -> Vec<i64> {
    let rows = extremes(rows, fields, 4 * max, range);
    if rows.len() <= max {
        return rows.iter().map(|(time, _)| *time).collect();
    }
    let of_field = |field: &&'static str| -> Vec<(i64, f64)> {
        rows.iter().filter_map(|(time, values)| Some((*time, *values.get(field)?))).collect()
    };
    let lines: Vec<Vec<(i64, f64)>> = fields.iter().map(of_field).collect();
    let ends = |line: &Vec<(i64, f64)>| [line[0].0, line[line.len() - 1].0];
    let mut kept = BTreeSet::from([rows[0].0, rows[rows.len() - 1].0]);
    kept.extend(lines.iter().flat_map(ends));
    let buckets = max.saturating_sub(kept.len()) / fields.len();
    for line in &lines {
        let points: Vec<(f64, f64)> = line.iter().map(|(time, value)| ((time - rows[0].0) as f64, *value)).collect();
        kept.extend(triangles(&points, buckets).into_iter().map(|place| line[place].0));
    }
    kept.into_iter().collect()
}

tests! {
    fn largest_triangles_are_kept_embedded() => largest_triangles_are_kept(&stores()[0]);
    fn largest_triangles_are_kept_in_mongodb() => largest_triangles_are_kept(&stores()[1]);
}

fn largest_triangles_are_kept(store: &str) {
    let server = Launch::with_store(store).start();
    let mut random = Random::new(seed());
    let range = START - START % DAY..START - START % DAY + 2 * DAY;
    // Walks in eighths, so that no text rounds them; `b` is missing in a third of the readings, and in the first ones.
    let mut rows: Vec<Row> = Vec::new();
    let mut level = 0.0;
    for n in 0..3_000 {
        level += random.below(9) as f64 / 8.0 - 0.5;
        let peak = if random.once_in(50) { 20.0 } else { 0.0 };
        let mut values = BTreeMap::from([("a", level + peak)]);
        if n > 5 && !random.once_in(3) {
            values.insert("b", random.below(100) as f64 / 4.0);
        }
        rows.push((range.start + n * 57 * SECOND + random.below(50) * SECOND, values));
    }
    let line = |(time, values): &Row| {
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("m {} {time}\n", values.join(","))
    };
    write_to(&server, "db=d&precision=ns", rows.iter().map(line).collect::<String>());
    for is_flushed in [false, true] {
        if is_flushed {
            flush(&server);
        }
        for (fields, max) in [
            (&["a"][..], 800),
            (&["a"], 100),
            (&["a"], 11),
            (&["a"], 3_000),
            (&["a", "b"], 1_000),
            (&["a", "b"], 90),
            (&["a", "b"], 3),
        ] {
            let asked = format!(
                "/api/v1/readings?db=d&sensor=m&epoch=ns&precision=ns&from={}&to={}&max_points={max}&thin=lttb",
                range.start, range.end
            );
            let answer = server.fetch(&format!("{asked}&fields={}", fields.join(",")));
            let shown = answer["series"][0]["readings"].as_array().expect("readings").iter();
            let shown: Vec<i64> = shown.map(|reading| reading["ts"].as_i64().expect("a time")).collect();
            assert_eq!(shown, lttb(&rows, fields, max, &range), "{fields:?} {max}");
        }
    }
    let asked = "/api/v1/readings?db=d&sensor=m&";
    for (bad, reason) in [("thin=lttb", "needs max_points"), ("max_points=9&thin=avg", "neither extremes nor lttb")] {
        let answer = get(&server.url(&format!("{asked}{bad}"))).expect(400);
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
    // Readings without numbers are thinned by extremes, and descending answers are reversed.
    let texts: String = (0..100).map(|n| format!("t s=\"{n}\" {}\n", START + n)).collect();
    write_to(&server, "db=d&precision=ns", texts);
    let times = |more: &str| -> Vec<i64> {
        let answer = server.fetch(&format!("/api/v1/readings?db=d&sensor=t&epoch=ns&max_points=9&{more}"));
        answer["series"][0]["readings"]
            .as_array()
            .expect("readings")
            .iter()
            .map(|one| one["ts"].as_i64().expect("a time"))
            .collect()
    };
    assert_eq!(times("thin=lttb"), times("thin=extremes"));
    let reversed: Vec<i64> = times("thin=lttb").into_iter().rev().collect();
    assert_eq!(times("thin=lttb&order=desc"), reversed);
}
