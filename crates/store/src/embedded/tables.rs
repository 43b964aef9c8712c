//! The tables of the file, the checksums of their values, and writes. All writes of a call share one transaction, and each
//! has its own compare-and-set.

use bson::RawDocument;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError,
    TransactionError, WriteTransaction,
};

use super::file::FileFailure;
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::WriteOutcome;
use crate::bucket::{DatabaseSettings, Result, StorageError};
use crate::document::{REGISTRY, decode_registry, decode_settings, registry_document, settings_document};

/// A table of pages or documents. A value is the encoded bytes, then a CRC-32 of key and bytes.
pub(super) type DocumentTable = TableDefinition<'static, &'static [u8], &'static [u8]>;
/// A snapshot of a [`DocumentTable`].
pub(super) type DocumentRows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Page key to page, as [`super::page_form`] encodes it.
pub(super) const PAGES: DocumentTable = TableDefinition::new("pages");
/// Day key to part of a day, as [`super::days`] encodes it.
pub(super) const DAYS: DocumentTable = TableDefinition::new("days");
/// Keys of the chunks in [`DAYS`], so that sealing finds them.
pub(super) const CHUNKS: TableDefinition<&[u8], ()> = TableDefinition::new("chunks");
/// Month key to the totals of a month, as [`super::months`] encodes them.
pub(super) const MONTHS: DocumentTable = TableDefinition::new("months");
/// Sensor key to sensor document, in BSON.
pub(super) const SENSORS: DocumentTable = TableDefinition::new("sensors");
/// Keys of the sensors whose documents have an outlier mark, so that listing a few outliers does not read all sensors.
pub(super) const OUTLIERS: TableDefinition<&[u8], ()> = TableDefinition::new("outliers");
/// Name of a database to the day key before which no part has an older form.
pub(super) const MIGRATED: TableDefinition<&str, &[u8]> = TableDefinition::new("migrated");
/// The names of databases.
pub(super) const DATABASES: TableDefinition<&str, ()> = TableDefinition::new("databases");
/// The registry, in BSON, under its `_id`.
const REGISTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("registry");
/// The settings of databases, in BSON, by name.
const SETTINGS: TableDefinition<&str, &[u8]> = TableDefinition::new("settings");
/// Properties of the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Version of the file format, stored under `version` in [`META`]. Incremented when a version could misread the files of
/// another one.
pub(super) const VERSION: u64 = 1;

/// The tables of one write transaction.
pub(super) struct Tables<'t> {
    pub(super) pages: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) days: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) chunks: Table<'t, &'static [u8], ()>,
    pub(super) months: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) sensors: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) outliers: Table<'t, &'static [u8], ()>,
    pub(super) databases: Table<'t, &'static str, ()>,
}

/// A compare-and-set write of a page or document.
pub(super) struct Put {
    pub(super) key: Vec<u8>,
    /// The expected rev of the stored value; 0 for none stored.
    rev: u64,
    value: Vec<u8>,
}

impl Put {
    pub(super) fn new(key: Vec<u8>, rev: u64, bytes: Vec<u8>) -> Self {
        Self { rev, value: seal(&key, bytes), key }
    }

    /// Returns the size of key and value.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// Returns true if the stored rev is the expected one. `read_rev` reads the rev of a stored value.
    pub(super) fn matches(
        &self,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        read_rev: impl Fn(&[u8], &[u8]) -> Result<u64>,
    ) -> Result<bool, FileFailure> {
        let Some(found) = table.get(&*self.key)? else { return Ok(self.rev == 0) };
        Ok(read_rev(&self.key, found.value())? == self.rev)
    }

    pub(super) fn put(&self, table: &mut Table<'_, &'static [u8], &'static [u8]>) -> Result<(), FileFailure> {
        table.insert(&*self.key, &*self.value)?;
        Ok(())
    }
}

/// Creates the tables of a new file. The inner error is the version of a file with another version than [`VERSION`]; 0 if
/// the file is older than version 1.
pub(super) fn prepare(database: &Database) -> Result<Result<(), u64>, FileFailure> {
    match database.begin_read()?.open_table(META) {
        Ok(meta) => {
            let version = meta.get("version")?.map_or(0, |version| version.value());
            return Ok(if version == VERSION { Ok(()) } else { Err(version) });
        }
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(other) => return Err(other.into()),
    }
    let transaction = begin(database)?;
    drop(Tables::open(&transaction)?);
    drop(transaction.open_table(REGISTRIES)?);
    drop(transaction.open_table(SETTINGS)?);
    transaction.open_table(META)?.insert("version", VERSION)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// The effect of a write on the list of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Adds the database unless it is listed.
    Add,
    /// Leaves the list as it is.
    Keep,
}

/// Runs all `writes` in one transaction. `write` returns false, without a change, if the stored rev is not the expected
/// one. If no write succeeds, nothing is committed and the database is not listed.
pub(super) fn write_each<W>(
    database: &Database,
    name: &str,
    listing: Listing,
    writes: &[W],
    write: impl Fn(&mut Tables<'_>, &W) -> Result<bool, FileFailure>,
) -> Result<Vec<WriteOutcome>, FileFailure> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    let mut outcomes = Vec::with_capacity(writes.len());
    for item in writes {
        outcomes.push(match write(&mut tables, item) {
            Ok(true) => WriteOutcome::Applied,
            Ok(false) => WriteOutcome::Conflict,
            Err(FileFailure::Document(error)) => WriteOutcome::Failed(error),
            Err(failure) => return Err(failure),
        });
    }
    let has_changes = outcomes.contains(&WriteOutcome::Applied);
    if has_changes && listing == Listing::Add && tables.databases.get(name)?.is_none() {
        tables.databases.insert(name, ())?;
    }
    drop(tables);
    if has_changes {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(outcomes)
}

/// Reads the registry. Returns an empty one if none is stored.
pub(super) fn read_registry(database: &Database) -> Result<MemberRegistry, FileFailure> {
    let table = database.begin_read()?.open_table(REGISTRIES)?;
    let Some(value) = table.get(REGISTRY)? else { return Ok(MemberRegistry::default()) };
    Ok(parse_registry(value.value())?)
}

fn parse_registry(bytes: &[u8]) -> Result<MemberRegistry> {
    decode_registry(&decode_bson(REGISTRY, bytes)?)
}

/// Decodes a BSON document that has no checksum.
fn decode_bson(id: &str, bytes: &[u8]) -> Result<bson::Document> {
    let unreadable = |e: bson::error::Error| StorageError::Unreadable { id: id.to_owned(), detail: e.to_string() };
    bson::Document::from_reader(bytes).map_err(unreadable)
}

/// Writes the registry by compare-and-set on its rev.
pub(super) fn write_registry(database: &Database, registry: &MemberRegistry) -> Result<WriteOutcome, FileFailure> {
    let rev = |bytes: &[u8]| Ok(parse_registry(bytes)?.rev);
    write_document(database, REGISTRIES, REGISTRY, registry.rev, rev, Some(registry_document(registry)))
}

/// Replaces or removes a document by compare-and-set on its rev. The expected rev is 0 if none is stored.
fn write_document(
    database: &Database,
    table: TableDefinition<'static, &'static str, &'static [u8]>,
    id: &str,
    expected_rev: u64,
    read_rev: impl Fn(&[u8]) -> Result<u64>,
    document: Option<bson::Document>,
) -> Result<WriteOutcome, FileFailure> {
    let transaction = begin(database)?;
    let is_expected;
    {
        let mut table = transaction.open_table(table)?;
        let stored = table.get(id)?.map_or(Ok(0), |value| read_rev(value.value()))?;
        is_expected = stored == expected_rev;
        match document {
            Some(document) if is_expected => {
                let unwritable = |e: bson::error::Error| StorageError::Refused(e.to_string());
                table.insert(id, &*document.to_vec().map_err(unwritable)?)?;
            }
            None if is_expected => drop(table.remove(id)?),
            _ => {}
        }
    }
    transaction.commit()?;
    Ok(if is_expected { WriteOutcome::Applied } else { WriteOutcome::Conflict })
}

/// Reads the settings of all databases.
pub(super) fn read_settings(database: &Database) -> Result<Vec<(String, DatabaseSettings)>, FileFailure> {
    let table = database.begin_read()?.open_table(SETTINGS)?;
    table.iter()?.map(|row| Ok(parse_settings(row?.1.value())?)).collect()
}

fn parse_settings(bytes: &[u8]) -> Result<(String, DatabaseSettings)> {
    decode_settings(&decode_bson("settings", bytes)?)
}

/// Replaces or removes the settings of a database by compare-and-set.
pub(super) fn write_settings(
    database: &Database,
    name: &str,
    held: u64,
    settings: Option<&DatabaseSettings>,
) -> Result<WriteOutcome, FileFailure> {
    let rev = |bytes: &[u8]| Ok(parse_settings(bytes)?.1.rev);
    let document = settings.map(|settings| settings_document(name, settings));
    write_document(database, SETTINGS, name, held, rev, document)
}

/// The names of all databases, in order.
pub(super) fn databases(database: &Database) -> Result<Vec<String>, FileFailure> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(DATABASES)?;
    table.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
}

/// Verifies the checksum of a stored value and returns its bytes.
pub(super) fn unseal<'v>(key: &[u8], value: &'v [u8], id: impl Fn() -> String) -> Result<&'v [u8]> {
    let unreadable = |detail: &str| StorageError::Unreadable { id: id(), detail: detail.to_owned() };
    let (bytes, sum) = value.split_last_chunk::<4>().ok_or_else(|| unreadable("it has no checksum"))?;
    if u32::from_le_bytes(*sum) != checksum(key, bytes) {
        return Err(unreadable("its checksum does not match; the stored bytes are damaged"));
    }
    Ok(bytes)
}

/// As [`unseal`], for a BSON document.
pub(super) fn unseal_document<'v>(key: &[u8], value: &'v [u8], id: impl Fn() -> String) -> Result<&'v RawDocument> {
    let bytes = unseal(key, value, &id)?;
    RawDocument::from_bytes(bytes).map_err(|e| StorageError::Unreadable { id: id(), detail: e.to_string() })
}

/// Appends the checksum. It also covers the key, so that a value under the wrong key is invalid.
fn seal(key: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

pub(super) fn checksum(key: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn begin(database: &Database) -> Result<WriteTransaction, TransactionError> {
    let mut transaction = database.begin_write()?;
    // Without quick repair, redb reads the whole file when it opens it after a kill.
    transaction.set_quick_repair(true);
    // Acks depend on this default. Setting it fails only in a transaction with savepoints, and this one has none.
    let _ = transaction.set_durability(Durability::Immediate);
    Ok(transaction)
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            pages: transaction.open_table(PAGES)?,
            days: transaction.open_table(DAYS)?,
            chunks: transaction.open_table(CHUNKS)?,
            months: transaction.open_table(MONTHS)?,
            sensors: transaction.open_table(SENSORS)?,
            outliers: transaction.open_table(OUTLIERS)?,
            databases: transaction.open_table(DATABASES)?,
        })
    }
}
