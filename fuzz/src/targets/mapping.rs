//! Mappings: any text of a mapping, any topic and any message. A valid mapping survives its own JSON, its points stay
//! within the limits, and its trace is bounded.

use hourglass::mapping::{ELEMENTS_MAX, LINES_MAX, Mapping, apply, builtin, explain};
use hourglass::reading::Limits;
use hourglass::wire::Points;

/// Separates the parts of the data: the text of the mapping or the number of a built-in one, the topic, and the message.
pub const SEPARATOR: u8 = 0xff;
/// Maximum number of characters of a line of a trace.
const LINE_CHARS_MAX: usize = 300;

/// # Panics
/// If a mapping or message breaks a property.
pub fn check(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == SEPARATOR);
    let mut part = || parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(part());
    let topic = String::from_utf8_lossy(part());
    let message = part();
    let topic = (!topic.is_empty()).then_some(&*topic);
    match Mapping::from_text(&text) {
        Ok(mapping) => {
            let json = serde_json::to_string(&mapping).expect("a mapping is JSON");
            assert_eq!(Mapping::from_text(&json).as_ref(), Ok(&mapping), "{json}");
            check_message(&mapping, topic, message);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let index = text.len() % builtin::all().len();
    check_message(&builtin::all()[index], topic, message);
}

fn check_message(mapping: &Mapping, topic: Option<&str>, message: &[u8]) {
    let limits = Limits { line_bytes: 4096, tags: 8, fields: 20, name_bytes: 64 };
    // Each line of a body, and each element of an array, is a message.
    let messages_max = 1 + message.iter().filter(|byte| matches!(byte, b'\n' | b',' | b'[')).count();
    let mut points = apply(mapping, topic, message, limits, 0);
    let mut count = 0;
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            break;
        };
        count += 1;
        match point {
            Ok(point) => {
                let sensor = point.sensor(&limits).expect("a mapped sensor is valid");
                assert!(sensor.tags.len() <= limits.tags);
                assert!((1..=limits.fields).contains(&point.fields.len()));
                assert!(point.fields.iter().all(|(name, _)| (1..=limits.name_bytes).contains(&name.len())));
            }
            Err(rejection) => assert!(!rejection.message().is_empty()),
        }
    }
    assert!(count <= messages_max * ELEMENTS_MAX, "{count} points");
    let trace = explain(mapping, topic, message, limits, 0);
    assert!(trace.len() <= LINES_MAX && trace.iter().all(|line| line.chars().count() <= LINE_CHARS_MAX));
}
