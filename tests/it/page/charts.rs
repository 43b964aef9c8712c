//! Charts: every reading is drawn, gaps are silences, lines are distinguishable, and axes use the browser's locale.

use crate::support::prelude::*;

use super::{climate, now, page, write};

pub const CHART: &str = "document.querySelector('.plot canvas')";

/// Records every drawn text in `window.drawn`, in each loaded page.
pub fn keep_texts(browser: &Browser) {
    let source = "window.drawn = []; const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...more) { window.drawn.push(text); return draw.call(this, text, ...more); };";
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source }));
}

pub fn texts(browser: &Browser, expression: &str) -> Vec<String> {
    let all = browser.wait(&format!("{expression}.length > 0 && {expression}"));
    all.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

const NAMES: &str = "[...document.querySelectorAll('.legend-name')].map((one) => one.textContent)";

/// Returns the drawn fraction of a time span (seconds before now, within six hours) of the first series.
fn drawn_share(browser: &Browser, from: u64, to: u64) -> f64 {
    let script = format!(
        "const [canvas, over] = [document.querySelector('.plot canvas'), document.querySelector('.u-over').getBoundingClientRect()];
         const [left, scale] = [over.left - canvas.getBoundingClientRect().left, canvas.width / canvas.getBoundingClientRect().width];
         const at = (before) => Math.round((left + (1 - before / 21600) * over.width) * scale);
         const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
         let found = 0;
         for (let x = at({from}); x < at({to}); x += 1) {{
           const isDrawn = (y) => {{ const [red, green, blue, alpha] = data.subarray((y * canvas.width + x) * 4); return alpha > 100 && green - red > 60 && blue - red > 60; }};
           if (Array.from({{ length: canvas.height }}, (_, y) => y).some(isDrawn)) found += 1;
         }}
         return found / (at({to}) - at({from}));"
    );
    browser.run(&script).as_f64().unwrap()
}

/// Regression: one usual step for the whole range made slower spans gaps, and a reading between two gaps was not drawn.
#[test]
fn charts_show_every_reading_and_gaps() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let fast = (0..1000).map(|at| 20_900 - at);
    let slow = (0..=36).map(|at| 19_800 - at * 300);
    let times = fast.chain(slow).chain([6000]).chain((0..10).map(|at| 3000 - at * 300));
    let lines: Vec<String> =
        times.map(|before| format!("door,sensor=front v={} {}", before % 7, now - before)).collect();
    write(&server, &lines.join("\n"));
    browser.look(1200, 900, "light");
    browser.load_until(&server.url("/#explore?m=door&f=v&fn=raw&range=6h&still=1"), CHART);
    browser.picture("silences");
    for (from, to, least, most, what) in [
        (20_800, 20_000, 0.95, 1.0, "each second"),
        (19_500, 9_300, 0.95, 1.0, "each five minutes"),
        (8_700, 6_300, 0.0, 0.0, "a silence"),
        (6_100, 5_900, 0.2, 1.0, "a reading alone"),
        (5_700, 3_300, 0.0, 0.0, "another silence"),
        (2_800, 400, 0.95, 1.0, "each five minutes again"),
    ] {
        let share = drawn_share(&browser, from, to);
        assert!((least..=most).contains(&share), "{what}: {share}");
    }
    browser.expect_calm("silences");
}

/// Regression: the time axis was American for everybody: 1:30pm, 11/25/26.
#[test]
fn the_time_axis_uses_the_locale_and_zone_of_the_browser() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    keep_texts(&browser);
    for (locale, zone, clock, day) in [
        ("de-DE", "Asia/Kolkata", r"^\d{2}:\d{2}$", r"^\d{2}\.\d{2}\.\d{4}$"),
        ("en-US", "America/New_York", r"^\d{1,2}:\d{2}\s[AP]M$", r"^[A-Z][a-z]{2} \d{1,2}, \d{4}$"),
    ] {
        browser.devtools("Emulation.setLocaleOverride", json!({ "locale": locale }));
        browser.devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": zone }));
        browser.load_until(&server.url("/#explore?m=climate&f=temp&range=24h&still=1"), CHART);
        let all = texts(&browser, "window.drawn");
        let matching = |pattern: &str| {
            let script = format!("return window.drawn.filter((text) => new RegExp({}).test(text));", json!(pattern));
            browser.run(&script).as_array().unwrap().clone()
        };
        assert!(matching(clock).len() >= 4 && !matching(day).is_empty(), "{locale}: {all:?}");
        // Full hours of the browser's zone, which is half an hour off others.
        assert!(matching(clock).iter().all(|text| text.as_str().unwrap().contains(":00")), "{locale}: {all:?}");
        browser.devtools("Emulation.setLocaleOverride", json!({}));
    }
    browser.expect_calm("languages");
}

/// Regression: the demo's first chart named its twelve lines by the common start of their keys.
#[test]
fn lines_are_named_by_their_differences() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let sensor_line = |tags: &str, ago: u64| format!("climate,{tags} temp={}.25 {}", 20 + ago % 3, now - ago);
    let lines: Vec<String> = [60, 120, 180]
        .into_iter()
        .flat_map(|ago| {
            [
                sensor_line("line=a,plant=x,sensor=hall,site=bremen", ago),
                sensor_line("line=b,plant=x,sensor=hall,site=bremen", ago),
                sensor_line("line=a,plant=x,sensor=hall,site=porto", ago),
            ]
        })
        .chain([sensor_line("line=a,plant=x,sensor=hall,site=bremen", 60 + 7 * 86_400)])
        .collect();
    write(&server, &lines.join("\n"));
    browser.load(&server.url("/#explore?m=climate&f=temp&range=1h&still=1&week=1"));
    browser.wait("document.querySelectorAll('.legend-name').length === 4");
    let mut names = texts(&browser, NAMES);
    names.sort();
    assert_eq!(names, ["a · bremen", "a · bremen, a week before", "a · porto", "b · bremen"]);
    let hints = "[...document.querySelectorAll('.legend-name, [aria-label=Values] th span')].map((one) => one.title)";
    let hints = texts(&browser, hints);
    assert!(hints.len() == 8 && hints.iter().all(|hint| hint.starts_with("climate,line=")), "{hints:?}");
    // Dashed lines are dashed in the legend, too.
    assert_eq!(browser.run("return document.querySelectorAll('.swatch.dashed').length;"), json!(1));
    // Properties of the object prototype are no tags.
    write(&server, &format!("odd,constructor=x,sensor=s v=1 {now}\nodd,sensor=t v=1 {now}"));
    browser.load(&server.url("/#explore?m=odd&f=v&range=1h&still=1"));
    browser.wait("document.querySelectorAll('.legend-name').length === 2");
    let mut names = texts(&browser, NAMES);
    names.sort();
    assert_eq!(names, ["s · x", "t"]);
    browser.expect_calm("names");
}

/// Regression: means were shown with 14 digits, the last of which were noise.
#[test]
fn means_are_rounded_and_readings_are_exact() {
    let Some((server, browser)) = page() else { return };
    let now = now() / 60 * 60 - 300;
    let sensor_line = |at: u64, value: &str| format!("gps,sensor=car v={value} {}", now + at);
    write(&server, &[sensor_line(0, "10.1"), sensor_line(1, "10.2"), sensor_line(2, "11.052")].join("\n"));
    for (function, shown) in [("avg", "10.451"), ("median", "10.2"), ("max", "11.052"), ("raw", "11.052")] {
        browser.load_until(&server.url(&format!("/#explore?m=gps&f=v&fn={function}&range=6h&still=1")), CHART);
        let cells = "[...document.querySelectorAll('[aria-label=Values] td')].map((one) => one.textContent)";
        let cells = texts(&browser, cells);
        assert!(cells.iter().any(|cell| cell == shown), "{function}: {cells:?}");
    }
    browser.expect_calm("means");
}

/// Regression: `Refresh` stayed checked after zooming, though nothing was refreshed; the axis of acks had no unit.
#[test]
fn a_fixed_range_is_not_refreshed() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    keep_texts(&browser);
    browser.load_until(&server.url("/#explore?m=climate&f=temp&range=6h"), CHART);
    let refresh =
        "[...document.querySelectorAll('.check')].find((one) => one.textContent === 'Refresh').querySelector('input')";
    let state = format!("[{refresh}.checked, {refresh}.disabled].join()");
    browser.wait(&format!("{state} === 'true,false'"));
    browser.click_until("[aria-label='Zoom in']", "+", &format!("{state} === 'false,true'"));
    browser.expect_no_barriers("charts");
    browser.load_until(&server.url("/#health"), "window.drawn.some((text) => text.endsWith(' ms'))");
    browser.expect_calm("refresh");
}

/// Regression: three of the twelve hues were pink, and all had the same lightness.
#[test]
fn colours_differ_for_colour_blind_readers() {
    let Some((server, browser)) = page() else { return };
    browser.load(&server.url("/"));
    browser.run("import('/ui/chart.js').then((chart) => { window.colours = chart.COLOURS; });");
    let all = browser.wait("window.colours");
    for (theme, ground) in [("light", "#ffffff"), ("dark", "#1c1f24")] {
        let colours: Vec<[f64; 3]> = all[theme].as_array().unwrap().iter().map(linear).collect();
        assert_eq!(colours.len(), 12);
        let ground = luminance(linear(&json!(ground)));
        for (at, colour) in colours.iter().enumerate() {
            let one = luminance(*colour).max(ground);
            let other = luminance(*colour).min(ground);
            assert!((one + 0.05) / (other + 0.05) >= 3.0, "{theme} {at}: too close to the background");
            for (before, earlier) in colours[..at].iter().enumerate() {
                for (eyes, least) in EYES.iter().zip([0.13, 0.08, 0.08]) {
                    let seen_colour = oklab_as_seen(eyes, colour);
                    let seen_earlier = oklab_as_seen(eyes, earlier);
                    let distance =
                        (0..3).map(|axis| (seen_colour[axis] - seen_earlier[axis]).powi(2)).sum::<f64>().sqrt();
                    assert!(distance >= least, "{theme} {at} and {before}: {distance}");
                }
            }
        }
    }
}

type Matrix = [[f64; 3]; 3];

/// Colour vision: normal, without green, without red (Machado et al., 2009).
const EYES: [Matrix; 3] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
];

fn times(matrix: &Matrix, colour: &[f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(colour).map(|(one, other)| one * other).sum())
}

/// Converts to red, green and blue from 0 to 1, linear in light.
fn linear(hex: &Value) -> [f64; 3] {
    let hex = hex.as_str().unwrap();
    [1, 3, 5].map(|at| {
        let part = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

fn luminance(colour: [f64; 3]) -> f64 {
    0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]
}

/// Converts a colour, as seen with this vision, to Oklab, where distances match perception.
fn oklab_as_seen(eyes: &Matrix, colour: &[f64; 3]) -> [f64; 3] {
    const CONES: Matrix = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    const LAB: Matrix = [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ];
    let colour = times(eyes, colour).map(|part| part.clamp(0.0, 1.0));
    times(&LAB, &times(&CONES, &colour).map(|part| part.max(0.0).cbrt()))
}
