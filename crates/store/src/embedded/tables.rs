//! The tables of the file, the checksum of every value, and writing: all writes of a call in one transaction, each with
//! its own compare-and-set.

use bson::RawDocument;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError,
    TransactionError, WriteTransaction,
};

use super::file::FileFailure;
use crate::bucket::registry::MemberRegistry;
use crate::bucket::store::Written;
use crate::bucket::{DatabaseSettings, Result, StorageError};
use crate::document::{REGISTRY, decode_registry, decode_settings, registry_document, settings_document};

/// A table of pages or sensor documents: the value is the bytes, then a checksum of key and bytes.
pub(super) type DocumentTable = TableDefinition<'static, &'static [u8], &'static [u8]>;
/// Such a table at one moment.
pub(super) type DocumentRows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Page key to page, in the forms of [`super::form`].
pub(super) const PAGES: DocumentTable = TableDefinition::new("pages");
/// Day key to sealed day, in the form of [`super::days`].
pub(super) const DAYS: DocumentTable = TableDefinition::new("days");
/// Keys of the chunks in [`DAYS`], so that sealing finds them.
pub(super) const CHUNKS: TableDefinition<&[u8], ()> = TableDefinition::new("chunks");
/// Month key to the totals of a month, in the form of [`super::months`].
pub(super) const MONTHS: DocumentTable = TableDefinition::new("months");
/// Sensor key to sensor document, in BSON.
pub(super) const SENSORS: DocumentTable = TableDefinition::new("sensors");
/// Keys of the sensors whose documents have an outlier mark, so that listing a few outliers does not read all sensors.
pub(super) const OUTLIERS: TableDefinition<&[u8], ()> = TableDefinition::new("outliers");
/// The names of databases.
pub(super) const DATABASES: TableDefinition<&str, ()> = TableDefinition::new("databases");
/// The registry, in BSON, under its `_id`.
const REGISTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("registry");
/// The settings of databases, in BSON, by name.
const SETTINGS: TableDefinition<&str, &[u8]> = TableDefinition::new("settings");
/// Facts about the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Version of the file, under `version` in [`META`]. It grows where one version would misread a file of another one.
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

/// A page or document to be written under a key by compare-and-set.
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

    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// Whether the stored rev is the expected one. `held` reads the rev of a stored value.
    pub(super) fn fits(
        &self,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        held: impl Fn(&[u8], &[u8]) -> Result<u64>,
    ) -> Result<bool, FileFailure> {
        let Some(found) = table.get(&*self.key)? else { return Ok(self.rev == 0) };
        Ok(held(&self.key, found.value())? == self.rev)
    }

    pub(super) fn put(&self, table: &mut Table<'_, &'static [u8], &'static [u8]>) -> Result<(), FileFailure> {
        table.insert(&*self.key, &*self.value)?;
        Ok(())
    }
}

/// Makes the tables of a new file. Returns the version of a file of another one as the inner error; 0 for one from before
/// version 1.
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
    drop((transaction.open_table(REGISTRIES)?, transaction.open_table(SETTINGS)?));
    transaction.open_table(META)?.insert("version", VERSION)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Runs all `writes` in one transaction, and lists the database if it is new and `lists` says so. `write` returns false if the rev differs
/// and nothing was changed. If no write succeeded, nothing is committed.
pub(super) fn write_each<W>(
    database: &Database,
    (name, lists): (&str, bool),
    writes: &[W],
    write: impl Fn(&mut Tables<'_>, &W) -> Result<bool, FileFailure>,
) -> Result<Vec<Written>, FileFailure> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    let mut outcomes = Vec::with_capacity(writes.len());
    for one in writes {
        outcomes.push(match write(&mut tables, one) {
            Ok(true) => Written::Yes,
            Ok(false) => Written::Conflict,
            Err(FileFailure::Document(error)) => Written::Failed(error),
            Err(failure) => return Err(failure),
        });
    }
    let done = outcomes.contains(&Written::Yes);
    if done && lists && tables.databases.get(name)?.is_none() {
        tables.databases.insert(name, ())?;
    }
    drop(tables);
    if done {
        transaction.commit()?
    } else {
        transaction.abort()?
    }
    Ok(outcomes)
}

/// Reads the registry; an empty one if there is none.
pub(super) fn read_registry(database: &Database) -> Result<MemberRegistry, FileFailure> {
    let table = database.begin_read()?.open_table(REGISTRIES)?;
    let Some(value) = table.get(REGISTRY)? else { return Ok(MemberRegistry::default()) };
    Ok(registry_of(value.value())?)
}

fn registry_of(bytes: &[u8]) -> Result<MemberRegistry> {
    decode_registry(&whole(REGISTRY, bytes)?)
}

/// Decodes a document that has no checksum.
fn whole(id: &str, bytes: &[u8]) -> Result<bson::Document> {
    let unreadable = |e: bson::error::Error| StorageError::Unreadable { id: id.to_owned(), detail: e.to_string() };
    bson::Document::from_reader(bytes).map_err(unreadable)
}

/// Writes the registry by compare-and-set on its rev.
pub(super) fn write_registry(database: &Database, registry: &MemberRegistry) -> Result<Written, FileFailure> {
    let rev = |bytes: &[u8]| Ok(registry_of(bytes)?.rev);
    write_whole(database, REGISTRIES, REGISTRY, (registry.rev, rev), Some(registry_document(registry)))
}

/// Replaces or removes a whole document by compare-and-set on its rev; 0 for none stored.
fn write_whole(
    database: &Database,
    table: TableDefinition<'static, &'static str, &'static [u8]>,
    id: &str,
    (held, rev): (u64, impl Fn(&[u8]) -> Result<u64>),
    document: Option<bson::Document>,
) -> Result<Written, FileFailure> {
    let transaction = begin(database)?;
    let fits;
    {
        let mut table = transaction.open_table(table)?;
        let stored = table.get(id)?.map_or(Ok(0), |value| rev(value.value()))?;
        fits = stored == held;
        match document {
            Some(document) if fits => {
                let unwritable = |e: bson::error::Error| StorageError::Refused(e.to_string());
                table.insert(id, &*document.to_vec().map_err(unwritable)?)?;
            }
            None if fits => drop(table.remove(id)?),
            _ => {}
        }
    }
    transaction.commit()?;
    Ok(if fits { Written::Yes } else { Written::Conflict })
}

/// Reads the settings of all databases.
pub(super) fn read_settings(database: &Database) -> Result<Vec<(String, DatabaseSettings)>, FileFailure> {
    let table = database.begin_read()?.open_table(SETTINGS)?;
    table.iter()?.map(|row| Ok(settings_of(row?.1.value())?)).collect()
}

fn settings_of(bytes: &[u8]) -> Result<(String, DatabaseSettings)> {
    decode_settings(&whole("settings", bytes)?)
}

/// Replaces or removes the settings of a database by compare-and-set.
pub(super) fn write_settings(
    database: &Database,
    name: &str,
    held: u64,
    settings: Option<&DatabaseSettings>,
) -> Result<Written, FileFailure> {
    let rev = |bytes: &[u8]| Ok(settings_of(bytes)?.1.rev);
    let document = settings.map(|settings| settings_document(name, settings));
    write_whole(database, SETTINGS, name, (held, rev), document)
}

/// The names of all databases, in order.
pub(super) fn databases(database: &Database) -> Result<Vec<String>, FileFailure> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(DATABASES)?;
    table.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
}

/// The bytes of a stored value, with its checksum verified.
pub(super) fn unseal<'v>(key: &[u8], value: &'v [u8], id: impl Fn() -> String) -> Result<&'v [u8]> {
    let unreadable = |detail: &str| StorageError::Unreadable { id: id(), detail: detail.to_owned() };
    let (bytes, sum) = value.split_last_chunk::<4>().ok_or_else(|| unreadable("it has no checksum"))?;
    if u32::from_le_bytes(*sum) != checksum(key, bytes) {
        return Err(unreadable("its checksum does not match; it was changed or damaged since it was written"));
    }
    Ok(bytes)
}

/// A stored document, with its checksum verified.
pub(super) fn unseal_document<'v>(key: &[u8], value: &'v [u8], id: impl Fn() -> String) -> Result<&'v RawDocument> {
    let bytes = unseal(key, value, &id)?;
    RawDocument::from_bytes(bytes).map_err(|e| StorageError::Unreadable { id: id(), detail: e.to_string() })
}

/// Appends the checksum; at the end it moves no bytes. It covers the key too, so a value under the wrong key is as
/// invalid as one with a changed byte.
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
    // Without quick repair redb reads the whole file when it is opened after a kill.
    transaction.set_quick_repair(true);
    // The default, set explicitly because acks depend on it. It fails only for a transaction with savepoints, of which
    // there are none.
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
