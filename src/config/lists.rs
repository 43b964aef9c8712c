//! Lists of tables, such as `[[meta.copy]]`. They stand in the file only, and each kind of table has a type of its own, which
//! says its keys.

use serde::Deserialize;

use super::layers::Lists;
use super::settings::{CopySettings, MetaSettings};

/// Most entries of a list.
const ENTRIES_MAX: usize = 64;

/// The dotted names of the lists.
pub const LISTS: [&str; 1] = ["meta.copy"];

/// The lists of a file; everything else in it is left to `layers`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ListsOfFile {
    meta: MetaOfFile,
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
    let file: ListsOfFile = toml::from_str(text).map_err(|error| (error.span(), error.message().to_owned()))?;
    let lists = Lists { meta: MetaSettings { copy: file.meta.copy } };
    check(&lists).map_err(|message| (None, message))?;
    Ok(lists)
}

fn check(lists: &Lists) -> Result<(), String> {
    let copies = &lists.meta.copy;
    if copies.len() > ENTRIES_MAX {
        return Err(format!("[[meta.copy]] has {} entries, more than {ENTRIES_MAX}", copies.len()));
    }
    if copies.iter().any(|copy| copy.name.is_empty()) {
        return Err("[[meta.copy]]: name is empty; it names what is copied, such as \"site\"".to_owned());
    }
    if copies.iter().any(|copy| copy.name.contains(',')) {
        return Err("[[meta.copy]]: a name with a comma cannot be copied".to_owned());
    }
    Ok(())
}
