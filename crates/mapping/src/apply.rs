//! Applies a mapping to a body.

use hourglass_model::reading::{Limits, Reason, Rejection};
use hourglass_wire::json::{Element, Elements};
use hourglass_wire::{Point, PointSeries, Points, Skipped};

use crate::mapping::{BodyFormat, Mapping};
use crate::notes::Notes;
use crate::pointer::Scope;
use crate::reader::{MappedReading, Reader};
use crate::tree::Node;

/// Maximum number of elements of the array of `each`, in one message.
pub const ELEMENTS_MAX: usize = 1_000;

/// The readings of a body, one at a time. Memory is bounded by `limits.line_bytes`, because only one message is parsed
/// at a time.
#[derive(Debug)]
pub struct MappedPoints<'m, 'a> {
    mapping: &'m Mapping,
    topic: Option<&'m str>,
    limits: Limits,
    arrival_ns: i64,
    elements: Elements<'a>,
    /// The whole body, if it is a plain value that was not read yet.
    plain: Option<Element<'a>>,
    /// The message of which elements are left.
    message: Option<Message<'a>>,
    /// The current reading, which the returned point borrows.
    reading: Option<MappedReading<'a>>,
    /// The number of elements of the arrays of `each` so far.
    elements_read: usize,
    skipped: usize,
    pause: Skipped,
    notes: Notes,
}

/// A parsed message.
#[derive(Debug)]
struct Message<'a> {
    element: Element<'a>,
    root: Node<'a>,
    /// The index of the next element of the array of `each`.
    next: usize,
    /// True if an element was rejected.
    is_rejected: bool,
}

/// Applies a mapping to the body of a message or request.
///
/// `arrival_ns` only decides which of two instants a local time means. A reading without a time has none, so the caller
/// stamps it. With `each`, points are numbered by their elements.
#[must_use]
pub fn apply<'m, 'a>(
    mapping: &'m Mapping,
    topic: Option<&'m str>,
    body: &'a [u8],
    limits: Limits,
    arrival_ns: i64,
) -> MappedPoints<'m, 'a> {
    let is_plain = mapping.body == BodyFormat::Plain;
    MappedPoints {
        mapping,
        topic,
        limits,
        arrival_ns,
        elements: Elements::new(if is_plain { b"" } else { body }),
        plain: is_plain.then_some(Element { number: 1, text: body }),
        message: None,
        reading: None,
        elements_read: 0,
        skipped: 0,
        pause: Skipped::default(),
        notes: Notes::default(),
    }
}

/// Traces a mapping: which rule made which part of each reading, and which values were left out and why. Nothing is
/// stored. The trace has at most [`LINES_MAX`](crate::LINES_MAX) lines.
#[must_use]
pub fn explain(mapping: &Mapping, topic: Option<&str>, body: &[u8], limits: Limits, arrival_ns: i64) -> Vec<String> {
    let mut points = apply(mapping, topic, body, limits, arrival_ns);
    points.notes = Notes::on();
    if let Some(topic) = topic {
        let filter = mapping.topics.iter().find(|filter| filter.matches(topic));
        points.notes.add(|| match filter {
            Some(filter) => format!("topic {topic:?} matches {:?}", filter.as_str()),
            None => format!("topic {topic:?} matches no filter of {:?}, which is applied anyway", mapping.name),
        });
    }
    loop {
        match points.advance() {
            Some(Ok(_)) => {}
            Some(Err(rejection)) => points.notes.add(|| format!("rejected: {}", rejection.message())),
            None if points.is_paused() => {}
            None => break,
        }
    }
    points.notes.into_lines()
}

impl<'a> MappedPoints<'_, 'a> {
    /// The number of messages and elements so far that gave neither a reading nor a rejection, because of `only_with` or
    /// because every field is null or ignored.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Makes the next reading, and returns the message that it is from. `None` is the end or a pause.
    fn advance(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        self.pause.reset();
        while !self.pause.note() {
            let Some(message) = self.message.take() else {
                let element = match self.plain.take().map(Ok).or_else(|| self.elements.next()) {
                    Some(Ok(element)) => element,
                    Some(Err(rejection)) => return Some(Err(rejection)),
                    None => {
                        self.pause.reset();
                        return None;
                    }
                };
                match self.parse(element) {
                    Ok(message) => self.message = Some(message),
                    Err(reason) => return Some(Err(reject(element, reason))),
                }
                continue;
            };
            if let Some(result) = self.read(message) {
                return Some(result);
            }
        }
        None
    }

    fn parse(&mut self, element: Element<'a>) -> Result<Message<'a>, Reason> {
        let found = element.text.len();
        let limit = self.limits.line_bytes;
        if found > limit {
            return Err(Reason::Limit { what: "bytes of one message", found, limit, key: "limits.line_bytes" });
        }
        let text = std::str::from_utf8(element.text).map_err(|_| Reason::NotUtf8)?;
        let root = match self.mapping.body {
            BodyFormat::Json => Node::parse(text),
            BodyFormat::Plain => Node::parse_plain(text),
        };
        let root = root.map_err(Reason::Json)?;
        if let Some(each) = &self.mapping.each {
            match each.find(Scope { root: &root, element: None }) {
                Some(Node::Array(items)) if items.len() <= ELEMENTS_MAX => {}
                Some(Node::Array(items)) => {
                    let why = format!("each: {} elements, at most {ELEMENTS_MAX} are allowed", items.len());
                    return Err(Reason::Json(why));
                }
                _ => return Err(Reason::Json(format!("each: the message has no array at path {:?}", each.as_str()))),
            }
        }
        self.notes.add(|| format!("message {}", element.number));
        Ok(Message { element, root, next: 0, is_rejected: false })
    }

    /// Reads the message, or its next element; `None` if that gives no reading.
    fn read(&mut self, mut message: Message<'a>) -> Option<Result<Element<'a>, Rejection>> {
        let mut scope = Scope { root: &message.root, element: None };
        if let Some(each) = &self.mapping.each {
            let Some(Node::Array(items)) = each.find(scope) else { return None };
            let index = message.next;
            scope.element = Some((each, items.get(index)?));
            // The ingest path gives undated readings of one request distinct times by their numbers.
            self.elements_read += 1;
            message.element.number = self.elements_read;
            self.notes.add(|| format!("element {index}"));
        }
        let reader = Reader {
            mapping: self.mapping,
            topic: self.topic,
            scope,
            limits: &self.limits,
            arrival_ns: self.arrival_ns,
            notes: &mut self.notes,
            fields: Vec::new(),
            ignored: Vec::new(),
            used: Vec::new(),
        };
        let result = reader.read();
        let element = message.element;
        let is_first_rejection = !message.is_rejected;
        message.is_rejected |= result.is_err();
        message.next += 1;
        self.message = self.mapping.each.is_some().then_some(message);
        match result {
            Ok(Some(reading)) => {
                self.reading = Some(reading);
                Some(Ok(element))
            }
            Ok(None) => {
                self.skipped += 1;
                None
            }
            Err(reason) if is_first_rejection => Some(Err(reject(element, reason))),
            // A message with many invalid elements must not be kept once for each of them.
            Err(reason) => Some(Err(Rejection { whole: None, ..reject(element, reason) })),
        }
    }
}

impl<'a> Points<'a> for MappedPoints<'_, 'a> {
    const IS_SLOW: bool = true;

    fn is_paused(&self) -> bool {
        self.pause.is_pause()
    }

    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let element = match self.advance()? {
            Ok(element) => element,
            Err(rejection) => return Some(Err(rejection)),
        };
        let reading = self.reading.as_ref()?;
        Some(Ok(Point {
            number: element.number,
            text: element.text,
            series: PointSeries::Read(&reading.sensor),
            fields: &reading.fields,
            timestamp: reading.timestamp,
            has_unit: true,
        }))
    }
}

fn reject(element: Element<'_>, reason: Reason) -> Rejection {
    Rejection::new(element.number, 0, element.text, reason)
}
