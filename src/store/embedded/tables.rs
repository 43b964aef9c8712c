//! The tables of the file, the checksum on every value, and the one way to write: all of a call's
//! writes in one transaction, each by compare-and-set on its own.

use bson::raw::{RawBsonRef, RawDocument};
use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, TransactionError,
    WriteTransaction,
};

use super::file::Failure;
use crate::bucket::StorageError;
use crate::bucket::store::Written;
use crate::store::document::SCHEMA_VERSION;

/// A table of documents: BSON and the checksum over key and document.
pub(super) type Documents = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Page key to page document.
pub(super) const PAGES: Documents = TableDefinition::new("pages");
/// Sensor key to sensor document.
pub(super) const SENSORS: Documents = TableDefinition::new("sensors");
/// The keys of the sensors whose documents have an outlier mark, so that a list of few among
/// many need not read them all.
pub(super) const OUTLIERS: TableDefinition<&[u8], ()> = TableDefinition::new("outliers");
/// Database name to incarnation: 0, since nobody else is there who would have to learn of a drop.
pub(super) const DATABASES: TableDefinition<&str, u64> = TableDefinition::new("databases");
/// What is known of the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The version of all this, under `format` in [`META`].
pub(super) const FORMAT: u64 = 1;

/// The tables of one write transaction.
pub(super) struct Tables<'t> {
    pub(super) pages: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) sensors: Table<'t, &'static [u8], &'static [u8]>,
    pub(super) outliers: Table<'t, &'static [u8], ()>,
    pub(super) databases: Table<'t, &'static str, u64>,
}

/// A document to be put under a key by compare-and-set.
pub(super) struct Put {
    pub(super) key: Vec<u8>,
    /// The rev that the stored document must have; 0 for none stored.
    rev: u64,
    value: Vec<u8>,
}

impl Put {
    pub(super) fn new(key: Vec<u8>, rev: u64, document: Vec<u8>) -> Self {
        Self { rev, value: seal(&key, document), key }
    }

    /// Whether the table holds just the rev that this was made from.
    pub(super) fn fits(&self, table: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<bool, Failure> {
        let Some(held) = table.get(&*self.key)? else { return Ok(self.rev == 0) };
        Ok(rev(unseal(&self.key, held.value(), || self.id())?)? == self.rev)
    }

    pub(super) fn put(&self, table: &mut Table<'_, &'static [u8], &'static [u8]>) -> Result<(), Failure> {
        table.insert(&*self.key, &*self.value)?;
        Ok(())
    }

    fn id(&self) -> String {
        let document = self.value.split_last_chunk::<4>().and_then(|(bytes, _)| RawDocument::from_bytes(bytes).ok());
        document.and_then(|d| d.get_str("_id").ok()).unwrap_or_default().to_owned()
    }
}

/// Makes the tables of a new file; of another one, tells its format when this program does not know it.
pub(super) fn prepare(database: &Database) -> Result<Result<(), u64>, Failure> {
    match database.begin_read()?.open_table(META) {
        Ok(meta) => {
            let found = meta.get("format")?.map_or(0, |format| format.value());
            return Ok(if found == FORMAT { Ok(()) } else { Err(found) });
        }
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

/// The names of all databases, in order.
pub(super) fn databases(database: &Database) -> Result<Vec<String>, Failure> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(DATABASES)?;
    table.iter()?.map(|row| Ok(row?.0.value().to_owned())).collect()
}

/// A document that a table holds, checked.
pub(super) fn unseal<'v>(
    key: &[u8],
    value: &'v [u8],
    id: impl Fn() -> String,
) -> Result<&'v RawDocument, StorageError> {
    let unreadable = |detail: String| StorageError::Unreadable { id: id(), detail };
    let (document, sum) = value.split_last_chunk::<4>().ok_or_else(|| unreadable("it has no checksum".into()))?;
    if u32::from_le_bytes(*sum) != checksum(key, document) {
        return Err(unreadable("its checksum is another one than when it was written".into()));
    }
    RawDocument::from_bytes(document).map_err(|e| unreadable(e.to_string()))
}

/// The checksum stands behind the document, so that sealing moves no bytes. It covers the key too:
/// a value that turns up under another key is as wrong as one with a changed byte.
fn seal(key: &[u8], mut document: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &document);
    document.extend_from_slice(&sum.to_le_bytes());
    document
}

fn checksum(key: &[u8], document: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(document);
    hasher.finalize()
}

/// The rev of a stored document of the version known here; another one is never written over.
fn rev(document: &RawDocument) -> Result<u64, StorageError> {
    let whole = |name: &str| match document.get(name) {
        Ok(Some(RawBsonRef::Int32(value))) => u64::try_from(value).ok(),
        Ok(Some(RawBsonRef::Int64(value))) => u64::try_from(value).ok(),
        _ => None,
    };
    let unreadable = |detail: String| {
        let id = document.get_str("_id").unwrap_or("without an _id").to_owned();
        StorageError::Unreadable { id, detail }
    };
    match whole("schemaVersion") {
        Some(SCHEMA_VERSION) => whole("rev").ok_or_else(|| unreadable("it has no rev".into())),
        other => Err(unreadable(format!("it is of schema version {other:?}, this program knows {SCHEMA_VERSION}"))),
    }
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
