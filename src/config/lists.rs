//! Lists of tables, such as `[[meta.copy]]`. They can be set in the file only.

use serde::Deserialize;

use super::mqtt::{self, MqttSettings};
use super::settings::{CopySettings, GroupSettings};
use crate::kinds::{Kind, Kinds};

/// Maximum number of entries of a list.
const ENTRIES_MAX: usize = 64;

/// The dotted names of the lists.
pub const LISTS: [&str; 5] = ["groups", "kinds", "meta.copy", "meta.text", "mqtt"];

/// Values that are lists of tables.
#[derive(Debug, Clone, Default)]
pub struct Lists {
    pub copies: Vec<CopySettings>,
    pub text: Vec<String>,
    pub kinds: Kinds,
    pub groups: Vec<GroupSettings>,
    pub mqtt: Vec<MqttSettings>,
}

/// The lists in a file. `layers` reads everything else.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileLists {
    meta: FileMeta,
    kinds: Vec<Kind>,
    groups: Vec<GroupSettings>,
    mqtt: Vec<MqttSettings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileMeta {
    copy: Vec<CopySettings>,
    text: Vec<String>,
}

/// An error in the lists of a file.
pub struct ListError {
    /// The place in the text, if it is known.
    pub span: Option<std::ops::Range<usize>>,
    pub message: String,
}

/// Reads the lists of a file that is valid TOML.
///
/// # Errors
/// If an entry is invalid.
pub fn read(text: &str) -> Result<Lists, ListError> {
    let file: FileLists = toml::from_str(text).map_err(|error| {
        let message = error.message();
        let message =
            format!("in one of the lists [[groups]], [[kinds]], [[meta.copy]], [[mqtt]] and meta.text: {message}");
        ListError { span: error.span(), message }
    })?;
    check(&file).map_err(|message| ListError { span: None, message })?;
    let FileMeta { copy: copies, text } = file.meta;
    Ok(Lists { copies, text, kinds: Kinds::new(file.kinds), groups: file.groups, mqtt: file.mqtt })
}

fn check(lists: &FileLists) -> Result<(), String> {
    let FileLists { meta: FileMeta { copy: copies, text }, kinds, groups, mqtt } = lists;
    let lengths = [
        ("groups", groups.len()),
        ("kinds", kinds.len()),
        ("meta.copy", copies.len()),
        ("meta.text", text.len()),
        ("mqtt", mqtt.len()),
    ];
    for (list, entries) in lengths {
        if entries > ENTRIES_MAX {
            return Err(format!("[[{list}]] has {entries} entries, more than {ENTRIES_MAX}"));
        }
    }
    if text.iter().any(String::is_empty) {
        return Err("meta.text: a name is empty: set metadata names, such as \"name\"".to_owned());
    }
    if copies.iter().any(|copy| copy.name.is_empty()) {
        return Err("[[meta.copy]]: name is empty: set the metadata name to copy, such as \"site\"".to_owned());
    }
    if copies.iter().any(|copy| copy.name.contains(',')) {
        return Err("[[meta.copy]]: name contains a comma: such metadata cannot be copied".to_owned());
    }
    for copy in copies {
        let inside = format!("{}.", copy.name);
        if let Some(part) = copies.iter().find(|other| other.name.starts_with(&inside)) {
            return Err(format!("[[meta.copy]]: {:?} is a part of {:?}: copy one of them", part.name, copy.name));
        }
    }
    for (index, Kind { name, unique, .. }) in kinds.iter().enumerate() {
        if name.is_empty() {
            return Err("[[kinds]]: name is empty: set the name that metadata uses for the kind".to_owned());
        }
        if kinds[..index].iter().any(|other| other.name == *name) {
            return Err(format!("[[kinds]]: two kinds have the name {name:?}"));
        }
        let is_inside = |path: &String| unique.iter().any(|other| other.starts_with(&format!("{path}.")));
        if let Some(path) = unique.iter().find(|path| path.is_empty() || path.contains(':') || is_inside(path)) {
            return Err(format!("[[kinds]] {name:?}: unique: {path:?} is empty, has a colon, or contains another one"));
        }
    }
    check_groups(groups)?;
    mqtt::check(mqtt)
}

fn check_groups(groups: &[GroupSettings]) -> Result<(), String> {
    for (index, GroupSettings { name, by, database }) in groups.iter().enumerate() {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            return Err(format!("[[groups]]: name = {name:?} is invalid: use letters, digits, _ and -"));
        }
        if matches!(&**by, "" | "meta.") {
            return Err(format!("[[groups]] {name:?}: by is empty: set a tag, or metadata such as \"meta.site\""));
        }
        if groups[..index].iter().any(|other| other.name == *name && other.database == *database) {
            return Err(format!("[[groups]]: two groups have the name {name:?}"));
        }
    }
    Ok(())
}
