//! Makes JSON text safe to show. Characters that control a terminal or hide text become `\u` escapes, which JSON
//! parsers decode to the same characters.

use std::fmt::Write;

/// Returns the text with escapes. In valid JSON, such characters occur only within strings, where escapes are allowed.
#[must_use]
pub fn escape_control_characters(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if is_control_or_invisible(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns true if a character is a control character (C0, delete, C1), ends a line, changes the direction of text, or
/// is invisible.
#[must_use]
pub fn is_control_or_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_to_the_same_characters() {
        let evil = "a\u{9b}2J\u{7f}\u{85}\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}\u{e0041}\u{1b}[2Jé😀";
        let json = serde_json::to_string(evil).unwrap();
        let shown = escape_control_characters(&json);
        assert!(!shown.chars().any(is_control_or_invisible), "{shown:?}");
        assert!(shown.contains('é') && shown.contains('😀'), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), evil);
    }
}
