//! Lists of tables, such as `[[meta.copy]]`. They stand in the file only, and each kind of table has a type of its own, which
//! says its keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::settings::{CopySettings, GroupSettings};
use super::units::parse_duration;
use crate::kinds::{Kind, KindAction, Kinds, Schema};

/// Most entries of a list.
const ENTRIES_MAX: usize = 64;

/// The dotted names of the lists.
pub const LISTS: [&str; 3] = ["groups", "kinds", "meta.copy"];

/// Values that are lists of tables.
#[derive(Debug, Clone, Default)]
pub struct Lists {
    pub copies: Vec<CopySettings>,
    pub kinds: Kinds,
    pub groups: Vec<GroupSettings>,
}

/// The lists of a file; everything else in it is left to `layers`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListsOfFile {
    meta: MetaOfFile,
    kinds: Vec<KindOfFile>,
    groups: Vec<GroupSettings>,
}

/// `[[kinds]]` as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindOfFile {
    name: String,
    measurement: Option<String>,
    #[serde(default)]
    action: ActionOfFile,
    interval: Option<String>,
    #[serde(default)]
    index: bool,
    #[serde(default)]
    units: BTreeMap<String, String>,
    fields: Option<Value>,
    meta: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionOfFile {
    #[default]
    Warn,
    Reject,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetaOfFile {
    copy: Vec<CopySettings>,
}

/// Reads the lists of a file that is valid TOML.
///
/// # Errors
/// What is wrong, and where in the text that is, if it is known.
pub fn read(text: &str) -> Result<Lists, (Option<std::ops::Range<usize>>, String)> {
    let file: ListsOfFile = toml::from_str(text).map_err(|error| {
        let message = format!("in one of the lists [[groups]], [[kinds]] and [[meta.copy]]: {}", error.message());
        (error.span(), message)
    })?;
    let whole = |message| (None, message);
    let kinds = kinds(file.kinds).map_err(whole)?;
    let lists = Lists { copies: file.meta.copy, kinds, groups: file.groups };
    check(&lists).map_err(whole)?;
    Ok(lists)
}

fn kinds(written: Vec<KindOfFile>) -> Result<Kinds, String> {
    if written.len() > ENTRIES_MAX {
        return Err(format!("[[kinds]] has {} entries, more than {ENTRIES_MAX}", written.len()));
    }
    let mut kinds: Vec<Kind> = Vec::with_capacity(written.len());
    for one in written {
        let kind = kind(one)?;
        if kinds.iter().any(|other| other.name == kind.name) {
            return Err(format!("[[kinds]]: two kinds have the name {:?}", kind.name));
        }
        kinds.push(kind);
    }
    Ok(Kinds::new(kinds))
}

fn kind(written: KindOfFile) -> Result<Kind, String> {
    let KindOfFile { name, measurement, action, interval, index, units, fields, meta } = written;
    if name.is_empty() {
        return Err("[[kinds]]: name is empty; metadata names the kind by it".to_owned());
    }
    let schema = |part: &str, json: Option<Value>| {
        let schema = json.map(|json| Schema::parse(&json)).transpose();
        schema.map_err(|fault| format!("[[kinds]] {name:?}, {part}: {fault}"))
    };
    let interval = interval.map(|text| {
        let interval = parse_duration(&text).ok().filter(|interval| !interval.is_zero());
        interval.ok_or_else(|| format!("[[kinds]] {name:?}: interval = {text:?} is no duration such as \"1m\""))
    });
    Ok(Kind {
        measurement,
        action: match action {
            ActionOfFile::Warn => KindAction::Warn,
            ActionOfFile::Reject => KindAction::Reject,
        },
        fields: schema("fields", fields)?,
        meta: schema("meta", meta)?,
        units,
        interval: interval.transpose()?,
        index,
        name,
    })
}

fn check(lists: &Lists) -> Result<(), String> {
    let copies = &lists.copies;
    if copies.len() > ENTRIES_MAX {
        return Err(format!("[[meta.copy]] has {} entries, more than {ENTRIES_MAX}", copies.len()));
    }
    if copies.iter().any(|copy| copy.name.is_empty()) {
        return Err("[[meta.copy]]: name is empty; it names what is copied, such as \"site\"".to_owned());
    }
    if copies.iter().any(|copy| copy.name.contains(',')) {
        return Err("[[meta.copy]]: a name with a comma cannot be copied".to_owned());
    }
    check_groups(&lists.groups)
}

fn check_groups(groups: &[GroupSettings]) -> Result<(), String> {
    if groups.len() > ENTRIES_MAX {
        return Err(format!("[[groups]] has {} entries, more than {ENTRIES_MAX}", groups.len()));
    }
    for (place, GroupSettings { name, by, database }) in groups.iter().enumerate() {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
            return Err(format!("[[groups]]: name = {name:?} is not made of letters, digits, _ and -"));
        }
        if matches!(&**by, "" | "meta.") {
            return Err(format!("[[groups]] {name:?}: by is empty; it names a tag, or metadata such as \"meta.site\""));
        }
        if groups[..place].iter().any(|other| other.name == *name && other.database == *database) {
            return Err(format!("[[groups]]: two groups have the name {name:?}"));
        }
    }
    Ok(())
}
