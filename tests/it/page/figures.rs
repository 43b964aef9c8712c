//! Measures and prints size, time to a chart, memory and delay of the page. Short by default.

use crate::support::prelude::*;

use super::{now, page, write};

const SERIES: u64 = 100;
/// Readings per POST while readings come in; POSTs per second follow.
const LINES: u64 = 100;
const POSTS: u32 = 10;

/// Counts all bytes that a browser loads without a cache.
#[test]
fn the_bytes_of_the_page_are_measured() {
    let Some((server, browser)) = page() else { return };
    super::climate(&server);
    browser.open(&server.url("/"));
    browser.wait("document.querySelector('.plot canvas')");
    let found = browser.run(
        "const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
         const sum = (some) => some.reduce((sum, one) => sum + one.transferSize, 0);
         const isAnswer = (one) => /\\/(api|query)/.test(new URL(one.name).pathname);
         return { files: all.filter((one) => !isAnswer(one)).length, bytes: sum(all.filter((one) => !isAnswer(one))), answers: sum(all.filter(isAnswer)) };",
    );
    let bytes = found["bytes"].as_u64().unwrap();
    println!(
        "cold: {bytes} bytes on the wire in {} files, heads of answers included; {} bytes of answers",
        found["files"], found["answers"]
    );
    assert!((20_000..=200_000).contains(&bytes), "{found}");
    browser.load_until(&server.url("/"), "document.querySelector('.plot canvas')");
    let again = browser.run("return performance.getEntriesByType('resource').filter((one) => one.name.includes('/ui/')).reduce((sum, one) => sum + one.transferSize, 0);");
    println!("again: {again} bytes");
}

/// A hundred sensors with a reading per hour, sealed.
#[test]
fn the_time_to_a_chart_is_measured() {
    let Some(browser) = Browser::start() else { return };
    // Days are sealed once the documents of their sensors are written.
    let server = Launch::embedded().config("[sensors]\nwrite_interval = \"100ms\"\n").start();
    let hours = scaled(1_u64, 365) * 24;
    let now = now();
    for first in (0..hours).step_by(100) {
        let of_hour = |at: u64| {
            (0..SERIES).map(move |sensor| {
                format!("many,sensor=s{sensor:03} v={}.{} {}", 20 + (sensor + at) % 17, at % 10, now - at * 3600)
            })
        };
        write(&server, &(first..hours.min(first + 100)).flat_map(of_hour).collect::<Vec<_>>().join("\n"));
    }
    wait_until("everything is stored", || post(&server.url("/api/v1/flush"), "", &[]).status < 300);
    // The service does this in the background.
    crate::support::jobs::run_job(&server, "seal");
    for (range, text) in [("365d", "a year"), ("30d", "a month"), ("24h", "a day")] {
        for (function, way) in [("avg", "means"), ("raw", "readings, thinned")] {
            browser.load(&server.url(&format!("/#explore?m=many&f=v&fn={function}&range={range}&still=1")));
            browser.wait("document.querySelector('[data-series=\"100\"]')");
            let drawn = browser.run("const one = performance.getEntriesByName('draw').at(-1); return [one.startTime + one.duration, one.duration];");
            let answer = browser.run("const all = performance.getEntriesByType('resource').filter((one) => /summary|readings/.test(one.name)); return [all[0].duration, all[0].transferSize];");
            println!(
                "{SERIES} series of {} days, {text} of {way}: on the page {:.0} ms after it was asked for, {:.0} ms of it drawing; the answer took {:.0} ms and {} bytes",
                hours / 24,
                drawn[0].as_f64().unwrap(),
                drawn[1].as_f64().unwrap(),
                answer[0].as_f64().unwrap(),
                answer[1]
            );
        }
    }
    browser.expect_calm("charts");
}

/// A thousand readings per second while the page is open.
#[test]
fn memory_and_delay_of_the_live_view_are_measured() {
    let Some((server, browser)) = page() else { return };
    let minutes = scaled(0.05, 60.0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&server, &stop));
        let _end = StopOnDrop(&stop);
        watch_memory(&server, &browser, Duration::from_secs_f64(minutes * 60.0));
        watch_delay(&server, &browser);
    });
    browser.expect_calm("live");
}

fn send(server: &Server, stop: &AtomicBool) {
    let started = Instant::now();
    let mut number = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        let line = |at: u64| {
            format!("load,sensor=s{at:03},site=lab temp={}.{},humidity={}", 20 + at % 7, number % 10, 40 + at % 9)
        };
        post(&server.url("/write"), (0..LINES).map(line).collect::<Vec<_>>().join("\n"), &[]).expect(204);
        number += 1;
        std::thread::sleep(
            (started + Duration::from_secs(1) * number / POSTS).saturating_duration_since(Instant::now()),
        );
    }
}

fn watch_memory(server: &Server, browser: &Browser, length: Duration) {
    browser.devtools("Performance.enable", json!({}));
    browser.load_until(&server.url("/#live"), "document.querySelectorAll('table.live tbody tr').length === 200");
    let started = Instant::now();
    let mut heaps = Vec::new();
    for look in 0..=20_u32 {
        std::thread::sleep((started + length * look / 20).saturating_duration_since(Instant::now()));
        browser.devtools("HeapProfiler.collectGarbage", json!({}));
        let metrics = browser.devtools("Performance.getMetrics", json!({}));
        let metric_value = |name: &str| {
            let all = metrics["metrics"].as_array().expect("metrics");
            all.iter().find(|one| one["name"] == name).and_then(|one| one["value"].as_f64()).expect("a metric")
        };
        let heap = metric_value("JSHeapUsedSize") / f64::from(1 << 20);
        let nodes = metric_value("Nodes");
        println!(
            "after {:.1} min: {heap:.2} MiB of JavaScript heap, {nodes} nodes",
            started.elapsed().as_secs_f64() / 60.0
        );
        heaps.push(heap);
    }
    println!(
        "live: {:.2} MiB at first, {:.2} MiB at the end; {}",
        heaps[0],
        heaps[20],
        browser.run("return document.querySelector('.state').textContent;")
    );
    assert_eq!(browser.run("return document.querySelectorAll('table.live tbody tr').length;"), json!(200));
    let state = browser.run("return document.querySelector('.state').textContent;");
    assert!(state.as_str().is_some_and(|state| state.contains("the newest 200 are shown")), "{state}");
}

/// Measures the time from a reading's ack to its row; both use the machine's clock.
fn watch_delay(server: &Server, browser: &Browser) {
    browser.load_until(&server.url("/#live?m=probe"), "document.querySelector('table.live tbody')");
    browser.run(
        "window.shown = {};
         new MutationObserver((all) => {
           for (const row of all.flatMap((one) => [...one.addedNodes])) {
             const number = /number (\\d+)/.exec(row.textContent)?.[1];
             if (number) window.shown[number] ??= Date.now();
           }
         }).observe(document.querySelector('table.live tbody'), { childList: true });",
    );
    wait_until("the page listens", || {
        write(server, "probe,sensor=a number=99i");
        browser.is_true("window.shown[99]")
    });
    let mut delays = Vec::new();
    for number in 100..140 {
        write(server, &format!("probe,sensor=a number={number}i"));
        let acked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0;
        let shown: Value = browser.wait(&format!("window.shown[{number}]"));
        delays.push(shown.as_f64().unwrap() - acked);
    }
    delays.sort_by(f64::total_cmp);
    println!(
        "from its ack a reading is on the page within {:.0} ms (median), {:.0} ms (most of {})",
        delays[delays.len() / 2],
        delays[delays.len() - 1],
        delays.len()
    );
}
