//! Lists of tables, such as `[[meta.copy]]`. They stand in the file only, and each kind of table has a type of its own, which
//! says its keys.

use serde::Deserialize;

use super::settings::{CopySettings, GroupSettings};
use crate::kinds::{Kind, Kinds};

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
    kinds: Vec<Kind>,
    groups: Vec<GroupSettings>,
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
    check(&file).map_err(|message| (None, message))?;
    Ok(Lists { copies: file.meta.copy, kinds: Kinds::new(file.kinds), groups: file.groups })
}

fn check(ListsOfFile { meta: MetaOfFile { copy: copies }, kinds, groups }: &ListsOfFile) -> Result<(), String> {
    for (list, entries) in [("groups", groups.len()), ("kinds", kinds.len()), ("meta.copy", copies.len())] {
        if entries > ENTRIES_MAX {
            return Err(format!("[[{list}]] has {entries} entries, more than {ENTRIES_MAX}"));
        }
    }
    if copies.iter().any(|copy| copy.name.is_empty()) {
        return Err("[[meta.copy]]: name is empty; it names what is copied, such as \"site\"".to_owned());
    }
    if copies.iter().any(|copy| copy.name.contains(',')) {
        return Err("[[meta.copy]]: a name with a comma cannot be copied".to_owned());
    }
    for (place, Kind { name, .. }) in kinds.iter().enumerate() {
        if name.is_empty() {
            return Err("[[kinds]]: name is empty; metadata names the kind by it".to_owned());
        }
        if kinds[..place].iter().any(|other| other.name == *name) {
            return Err(format!("[[kinds]]: two kinds have the name {name:?}"));
        }
    }
    check_groups(groups)
}

fn check_groups(groups: &[GroupSettings]) -> Result<(), String> {
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
