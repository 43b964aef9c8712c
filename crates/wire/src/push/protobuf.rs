//! A reader of protobuf messages. It borrows from the body and allocates nothing: a decoder that makes a tree takes up
//! to 24 times the bytes of the body. Groups are not supported, as in proto3.

use hourglass_model::reading::Reason;
use hourglass_model::reading::varint::{put_bytes, put_varint, take_varint};

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    /// A message, a text, bytes, or packed numbers.
    Bytes(&'a [u8]),
    Fixed32,
}

/// The fields of one message, each with its number, in the order sent. Ends after the first error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields<'a> {
    message: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { message, position: 0 }
    }

    /// Returns the next field with this number that has bytes. Skips all others.
    pub fn next_bytes(&mut self, number: u64) -> Option<Result<&'a [u8], Reason>> {
        self.find_map(|field| match field {
            Ok((found, Value::Bytes(bytes))) if found == number => Some(Ok(bytes)),
            Ok(_) => None,
            Err(reason) => Some(Err(reason)),
        })
    }

    fn read(&mut self) -> Result<(u64, Value<'a>), Reason> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(fixed64(self.take(8)?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed32
            }
            _ => return Err(Reason::Protobuf("unknown wire type")),
        };
        Ok((key >> 3, value))
    }

    fn varint(&mut self) -> Result<u64, Reason> {
        take_varint(self.message, &mut self.position).ok_or(Reason::Protobuf("it ends within a number"))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Reason> {
        let rest = &self.message[self.position..];
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let taken = rest.get(..length).ok_or(Reason::Protobuf("it ends within a field"))?;
        self.position += length;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.message.len() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.position = self.message.len();
        }
        Some(field)
    }
}

/// Reads packed numbers of eight bytes.
pub(crate) fn packed_fixed64(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(fixed64)
}

/// Reads a number from eight bytes.
fn fixed64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Reason> {
    std::str::from_utf8(bytes).map_err(|_| Reason::NotUtf8)
}

/// Appends a field with a varint.
pub(crate) fn put_number_field(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

/// Appends a field with a message or text.
pub(crate) fn put_bytes_field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_bytes(out, bytes);
}
