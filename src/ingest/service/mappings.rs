//! Mappings of a database's own. They are kept as text in the settings of the database, so every instance has a change
//! within a second.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Ingest, check_database_name};
use crate::blocking;
use crate::bucket::DatabaseSettings;
use crate::ingest::error::IngestError;
use crate::mapping::{Mapping, MappingError, builtin};

/// Maximum number of own mappings of a database.
pub const MAPPINGS_MAX: usize = 32;
/// Maximum bytes of the texts of a database's own mappings. All settings are read and written as a whole.
pub const MAPPINGS_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the texts of parsed mappings in memory.
const PARSED_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a text that is parsed without a thread of its own.
const INLINE_BYTES_MAX: usize = 2 << 10;

/// The reason for which a mapping is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingRefusal {
    #[error("invalid mapping: {0}")]
    Invalid(String),
    #[error("name: the mapping is named {found:?}, but the path names {name:?}: use one name")]
    OtherName { name: String, found: String },
    #[error("more than {MAPPINGS_MAX} own mappings of database {database:?}: remove one first")]
    TooMany { database: String },
    #[error("{bytes} bytes of own mappings of database {database:?} exceed the limit of {MAPPINGS_BYTES_MAX}")]
    TooLong { database: String, bytes: usize },
    #[error("there is no mapping {name:?}: use {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("database {database:?} has no mapping {name:?} of its own")]
    NotOwn { name: String, database: String },
    #[error("{database:?} is a retention policy: change the mappings of its database, which the policies follow")]
    Policy { database: String },
}

impl From<MappingError> for MappingRefusal {
    fn from(error: MappingError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// Parsed mappings by their text, so that a change needs no invalidation.
#[derive(Debug, Default)]
pub(super) struct ParsedMappings(Mutex<HashMap<String, Arc<Mapping>>>);

impl ParsedMappings {
    async fn parse(&self, text: &str) -> Result<Arc<Mapping>, MappingError> {
        if let Some(mapping) = self.0.lock().get(text) {
            return Ok(mapping.clone());
        }
        let mapping = Arc::new(parse(text).await?);
        let mut parsed = self.0.lock();
        if parsed.keys().map(String::len).sum::<usize>() + text.len() > PARSED_BYTES_MAX {
            parsed.clear();
        }
        parsed.insert(text.to_owned(), mapping.clone());
        Ok(mapping)
    }
}

/// Parses a mapping. The mappings of some databases are larger than the cache together, so a long one is never parsed
/// where others wait.
async fn parse(text: &str) -> Result<Mapping, MappingError> {
    if text.len() <= INLINE_BYTES_MAX {
        return Mapping::from_text(text);
    }
    let owned = text.to_owned();
    let parsed = blocking::spawn(move || Mapping::from_text(&owned)).await;
    parsed.unwrap_or_else(|error| Err(MappingError(vec![error.to_string()])))
}

impl Ingest {
    /// Returns the mapping of this name: the database's own, or else the built-in one.
    ///
    /// # Errors
    /// If there is none, or another version stored one that this version cannot read.
    pub async fn mapping(&self, database: &str, name: &str) -> Result<Arc<Mapping>, IngestError> {
        let settings = self.retention.settings.now();
        let own = || settings.mappings(database);
        if let Some((_, text)) = own().find(|(own, _)| *own == name) {
            return Ok(self.mappings.parse(text).await.map_err(MappingRefusal::from)?);
        }
        builtin::get(name).cloned().ok_or_else(|| {
            let built_in = builtin::all().iter().map(|mapping| &*mapping.name);
            let known = own().map(|(name, _)| name).chain(built_in).map(str::to_owned).collect();
            MappingRefusal::Unknown { name: name.to_owned(), known }.into()
        })
    }

    /// Stores an own mapping, or replaces the one of the same name.
    ///
    /// # Errors
    /// If the text is invalid, a limit is exceeded, or the store does not answer.
    pub async fn set_mapping(&self, database: &str, name: &str, text: &str) -> Result<(), IngestError> {
        check_owner(database)?;
        let mapping = parse(text).await.map_err(MappingRefusal::from)?;
        if mapping.name != name {
            return Err(MappingRefusal::OtherName { name: name.to_owned(), found: mapping.name }.into());
        }
        let stamp = self.member.stamp_now();
        let set = |settings: &mut DatabaseSettings| {
            // Without room, nothing changes; the result below is then the error.
            if let Ok(mappings) = with_mapping(database, &settings.mappings, name, text)
                && settings.mappings.get(name).map(String::as_str) != Some(text)
            {
                settings.mappings = Arc::new(mappings);
                settings.set = stamp;
            }
        };
        let settings = self.retention.change(database, set).await?;
        with_mapping(database, &settings.mappings, name, text)?;
        Ok(())
    }

    /// Removes an own mapping.
    ///
    /// # Errors
    /// If the database has no such mapping, or the store does not answer.
    pub async fn remove_mapping(&self, database: &str, name: &str) -> Result<(), IngestError> {
        check_owner(database)?;
        if !self.settings_now().await?.for_database(database).mappings.contains_key(name) {
            return Err(MappingRefusal::NotOwn { name: name.to_owned(), database: database.to_owned() }.into());
        }
        let stamp = self.member.stamp_now();
        let remove = |settings: &mut DatabaseSettings| {
            if Arc::make_mut(&mut settings.mappings).remove(name).is_some() {
                settings.set = stamp;
            }
        };
        self.retention.change(database, remove).await?;
        Ok(())
    }
}

/// Returns the mappings with one more or another text, within the limits.
fn with_mapping(
    database: &str,
    mappings: &BTreeMap<String, String>,
    name: &str,
    text: &str,
) -> Result<BTreeMap<String, String>, MappingRefusal> {
    let mut mappings = mappings.clone();
    mappings.insert(name.to_owned(), text.to_owned());
    if mappings.len() > MAPPINGS_MAX {
        return Err(MappingRefusal::TooMany { database: database.to_owned() });
    }
    let bytes: usize = mappings.values().map(String::len).sum();
    if bytes > MAPPINGS_BYTES_MAX {
        return Err(MappingRefusal::TooLong { database: database.to_owned(), bytes });
    }
    Ok(mappings)
}

/// Checks that a name is that of a database, not of a retention policy.
fn check_owner(database: &str) -> Result<(), IngestError> {
    check_database_name(database)?;
    if database.contains('/') {
        return Err(MappingRefusal::Policy { database: database.to_owned() }.into());
    }
    Ok(())
}
