//! The tables of the file, the checksum on every value, and the one way to write: all of a call's
//! writes in one transaction, each by compare-and-set on its own.

use bson::RawDocument;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, TransactionError,
    WriteTransaction,
};

use super::file::Failure;
use crate::bucket::StorageError;
use crate::bucket::registry::Registry;
use crate::bucket::store::Written;
use crate::store::document::{REGISTRY, decode_registry, registry_document};

/// A table of pages or of sensors' documents: bytes, and the checksum over key and bytes.
pub(super) type Documents = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Page key to page, in the forms of [`super::form`].
pub(super) const PAGES: Documents = TableDefinition::new("pages");
/// Sensor key to sensor document, in BSON.
pub(super) const SENSORS: Documents = TableDefinition::new("sensors");
/// The keys of the sensors whose documents have an outlier mark, so that a list of few among
/// many need not read them all.
pub(super) const OUTLIERS: TableDefinition<&[u8], ()> = TableDefinition::new("outliers");
/// Database name to incarnation: 0, since nobody else is there who would have to learn of a drop.
pub(super) const DATABASES: TableDefinition<&str, u64> = TableDefinition::new("databases");
/// The registry, in BSON, under its `_id`.
const REGISTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("registry");
/// What is known of the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The version of all this, under `format` in [`META`].
pub(super) const FORMAT: u64 = 3;
/// Files in which every page is a document, and in which pages have no stamps. Pages are read in every form, so a file of
/// these formats becomes one of [`FORMAT`] when it is opened, and its pages are written anew when they change.
const FORMATS_BEFORE: [u64; 2] = [1, 2];

/// The tables of one write transaction.
pub(super) struct Tables<'t> {
    pub(super) pages: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) sensors: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) outliers: Table<'t, &'static [u8], ()>,
    pub(super) databases: Table<'t, &'static str, u64>,
}

/// A page or a document to be put under a key by compare-and-set.
pub(super) struct Put {
    pub(super) key: Vec<u8>,
    /// The rev that the stored one must have; 0 for none stored.
    rev: u64,
    value: Vec<u8>,
}

impl Put {
    pub(super) fn new(key: Vec<u8>, rev: u64, bytes: Vec<u8>) -> Self {
        Self { rev, value: seal(&key, bytes), key }
    }

    /// Whether the table holds just the rev that this was made from. `held` tells the rev of what it holds.
    pub(super) fn fits(
        &self,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        held: impl Fn(&[u8], &[u8]) -> Result<u64, StorageError>,
    ) -> Result<bool, Failure> {
        let Some(found) = table.get(&*self.key)? else { return Ok(self.rev == 0) };
        Ok(held(&self.key, found.value())? == self.rev)
    }

    pub(super) fn put(&self, table: &mut Table<'_, &'static [u8], &'static [u8]>) -> Result<(), Failure> {
        table.insert(&*self.key, &*self.value)?;
        Ok(())
    }
}

/// Makes the tables of a new file; of another one, tells its format when this program does not know it.
pub(super) fn prepare(database: &Database) -> Result<Result<(), u64>, Failure> {
    match database.begin_read()?.open_table(META) {
        Ok(meta) => match meta.get("format")?.map_or(0, |format| format.value()) {
            FORMAT => return Ok(Ok(())),
            before if FORMATS_BEFORE.contains(&before) => {}
            other => return Ok(Err(other)),
        },
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(other) => return Err(other.into()),
    }
    let transaction = begin(database)?;
    drop(Tables::open(&transaction)?);
    transaction.open_table(META)?.insert("format", FORMAT)?;
    transaction.commit()?;
    Ok(Ok(()))
}

/// Does all `writes` in one transaction and makes the database known with them. `write` tells
/// whether it was done, or met another rev and changed nothing. Without anything done there is
/// no commit.
pub(super) fn write_each<W>(
    database: &Database,
    name: &str,
    writes: &[W],
    write: impl Fn(&mut Tables<'_>, &W) -> Result<bool, Failure>,
) -> Result<Vec<Written>, Failure> {
    let transaction = begin(database)?;
    let mut tables = Tables::open(&transaction)?;
    let mut outcomes = Vec::with_capacity(writes.len());
    for one in writes {
        outcomes.push(match write(&mut tables, one) {
            Ok(true) => Written::Yes,
            Ok(false) => Written::Conflict,
            Err(Failure::Document(error)) => Written::Failed(error),
            Err(failure) => return Err(failure),
        });
    }
    let done = outcomes.contains(&Written::Yes);
    if done && tables.databases.get(name)?.is_none() {
        tables.databases.insert(name, 0)?;
    }
    drop(tables);
    if done {
        transaction.commit()?
    } else {
        transaction.abort()?
    }
    Ok(outcomes)
}

/// The registry as it is.
pub(super) fn read_registry(database: &Database) -> Result<Registry, Failure> {
    let table = match database.begin_read()?.open_table(REGISTRIES) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Registry::default()),
        Err(other) => return Err(other.into()),
    };
    let Some(value) = table.get(REGISTRY)? else { return Ok(Registry::default()) };
    Ok(registry_of(value.value())?)
}

fn registry_of(bytes: &[u8]) -> Result<Registry, StorageError> {
    let unreadable =
        |e: bson::error::Error| StorageError::Unreadable { id: REGISTRY.to_owned(), detail: e.to_string() };
    decode_registry(&bson::Document::from_reader(bytes).map_err(unreadable)?)
}

/// Writes the registry, if the stored one still has its rev; whether it had.
pub(super) fn write_registry(database: &Database, registry: &Registry) -> Result<Vec<Written>, Failure> {
    let transaction = begin(database)?;
    let fits;
    {
        let mut table = transaction.open_table(REGISTRIES)?;
        let held = match table.get(REGISTRY)? {
            Some(value) => registry_of(value.value())?.rev,
            None => 0,
        };
        fits = held == registry.rev;
        if fits {
            let unwritable = |e: bson::error::Error| StorageError::Refused { detail: e.to_string() };
            table.insert(REGISTRY, &*registry_document(registry).to_vec().map_err(unwritable)?)?;
        }
    }
    transaction.commit()?;
    Ok(vec![if fits { Written::Yes } else { Written::Conflict }])
}

/// Makes a database known, unless it is.
pub(super) fn create_database(database: &Database, name: &str) -> Result<(), Failure> {
    if database.begin_read()?.open_table(DATABASES)?.get(name)?.is_some() {
        return Ok(());
    }
    let transaction = begin(database)?;
    {
        let mut databases = transaction.open_table(DATABASES)?;
        if databases.get(name)?.is_none() {
            databases.insert(name, 0)?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Makes a database known no more; what is left in it stays.
pub(super) fn unlist_database(database: &Database, name: &str) -> Result<(), Failure> {
    let transaction = begin(database)?;
    transaction.open_table(DATABASES)?.remove(name)?;
    transaction.commit()?;
    Ok(())
}

/// The names of all databases, in order.
pub(super) fn databases(database: &Database) -> Result<Vec<String>, Failure> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(DATABASES)?;
    table.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
}

/// The bytes that a table holds under a key, checked.
pub(super) fn unseal<'v>(key: &[u8], value: &'v [u8], id: impl Fn() -> String) -> Result<&'v [u8], StorageError> {
    let unreadable = |detail: &str| StorageError::Unreadable { id: id(), detail: detail.to_owned() };
    let (bytes, sum) = value.split_last_chunk::<4>().ok_or_else(|| unreadable("it has no checksum"))?;
    if u32::from_le_bytes(*sum) != checksum(key, bytes) {
        return Err(unreadable("its checksum is another one than when it was written"));
    }
    Ok(bytes)
}

/// A document that a table holds, checked.
pub(super) fn unseal_document<'v>(
    key: &[u8],
    value: &'v [u8],
    id: impl Fn() -> String,
) -> Result<&'v RawDocument, StorageError> {
    let bytes = unseal(key, value, &id)?;
    RawDocument::from_bytes(bytes).map_err(|e| StorageError::Unreadable { id: id(), detail: e.to_string() })
}

/// The checksum stands behind the bytes, so that sealing moves none. It covers the key too:
/// a value that turns up under another key is as wrong as one with a changed byte.
fn seal(key: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn checksum(key: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn begin(database: &Database) -> Result<WriteTransaction, TransactionError> {
    let mut transaction = database.begin_write()?;
    // Without quick repair redb reads the whole file at its next opening after a kill.
    transaction.set_quick_repair(true);
    // This is the default already, said here because the acks rest on it; a transaction without
    // savepoints is never refused it.
    let _ = transaction.set_durability(Durability::Immediate);
    Ok(transaction)
}

impl<'t> Tables<'t> {
    pub(super) fn open(transaction: &'t WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            pages: transaction.open_table(PAGES)?,
            sensors: transaction.open_table(SENSORS)?,
            outliers: transaction.open_table(OUTLIERS)?,
            databases: transaction.open_table(DATABASES)?,
        })
    }
}
