//! BSON as text: relaxed extended JSON, version 2 (<https://github.com/mongodb/specifications/blob/master/source/extended-json/extended-json.md>).
//! The fields stay in their order.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::raw::{RawBsonRef, RawDocument};

use super::decode::Detail;

/// Renders a document.
///
/// # Errors
/// If the document is malformed.
pub fn relaxed_json(document: &RawDocument) -> Result<String, Detail> {
    let mut out = String::with_capacity(2 * document.as_bytes().len());
    put_document(&mut out, document)?;
    Ok(out)
}

fn put_document(out: &mut String, document: &RawDocument) -> Result<(), Detail> {
    out.push('{');
    for (index, element) in document.iter().enumerate() {
        let (name, value) = element.map_err(|e| e.to_string())?;
        if index > 0 {
            out.push(',');
        }
        put_text(out, name.as_str());
        out.push(':');
        put_value(out, value)?;
    }
    out.push('}');
    Ok(())
}

fn put_value(out: &mut String, value: RawBsonRef<'_>) -> Result<(), Detail> {
    match value {
        RawBsonRef::Document(document) => return put_document(out, document),
        RawBsonRef::Array(array) => {
            out.push('[');
            for (index, item) in array.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                put_value(out, item.map_err(|e| e.to_string())?)?;
            }
            out.push(']');
        }
        RawBsonRef::String(text) => put_text(out, text),
        RawBsonRef::Double(number) if number.is_finite() => put(out, format_args!("{number:?}")),
        RawBsonRef::Double(number) => put(out, format_args!("{{\"$numberDouble\":\"{number}\"}}")),
        RawBsonRef::Int32(number) => put(out, format_args!("{number}")),
        RawBsonRef::Int64(number) => put(out, format_args!("{number}")),
        RawBsonRef::Decimal128(number) => put(out, format_args!("{{\"$numberDecimal\":\"{number}\"}}")),
        RawBsonRef::Boolean(truth) => put(out, format_args!("{truth}")),
        RawBsonRef::Null => out.push_str("null"),
        RawBsonRef::DateTime(time) => match time.try_to_rfc3339_string() {
            Ok(text) if time.timestamp_millis() >= 0 => put(out, format_args!("{{\"$date\":\"{text}\"}}")),
            _ => put(out, format_args!("{{\"$date\":{{\"$numberLong\":\"{}\"}}}}", time.timestamp_millis())),
        },
        RawBsonRef::Binary(binary) => {
            let bytes = STANDARD.encode(binary.bytes);
            let kind = u8::from(binary.subtype);
            put(out, format_args!("{{\"$binary\":{{\"base64\":\"{bytes}\",\"subType\":\"{kind:02x}\"}}}}"));
        }
        // Written by another program.
        RawBsonRef::ObjectId(id) => put(out, format_args!("{{\"$oid\":\"{id}\"}}")),
        other => put_text(out, &format!("{other:?}")),
    }
    Ok(())
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A text takes everything.
    let _ = out.write_fmt(text);
}

fn put_text(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use bson::{Binary, Bson, DateTime, RawDocumentBuf, doc, spec::BinarySubtype};

    use super::*;

    #[test]
    fn every_type_is_relaxed_extended_json_in_its_order() {
        let document = doc! {
            "z\"": "a\n", "whole": 2.0, "fraction": 0.1, "nan": f64::NAN, "int": 5, "long": i64::MAX, "on": true,
            "none": Bson::Null, "at": DateTime::from_millis(1_768_485_600_123), "old": DateTime::from_millis(-1),
            "packed": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] }, "list": [1, { "a": [] }], "id": bson::oid::ObjectId::from_bytes([7; 12]),
        };
        let raw = RawDocumentBuf::try_from(&document).expect("a document");
        assert_eq!(
            relaxed_json(&raw).expect("well formed"),
            r#"{"z\"":"a\n","whole":2.0,"fraction":0.1,"nan":{"$numberDouble":"NaN"},"int":5,"long":9223372036854775807,"on":true,"none":null,"at":{"$date":"2026-01-15T14:00:00.123Z"},"old":{"$date":{"$numberLong":"-1"}},"packed":{"$binary":{"base64":"AQI=","subType":"00"}},"list":[1,{"a":[]}],"id":{"$oid":"070707070707070707070707"}}"#
        );
    }
}
