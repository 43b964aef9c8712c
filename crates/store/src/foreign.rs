//! Reads the collections of other applications, for imports.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Cursor};

use crate::document::relaxed_json;
use crate::mongo::driver_error;

/// Maximum wait for a server.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Documents per answer of the server, which also limits an answer to 16 MiB.
const BATCH_DOCUMENTS: u32 = 2000;

/// A collection or view of another application.
pub struct ForeignCollection {
    collection: Collection<RawDocumentBuf>,
    /// The members that have the time and the metadata, of a native time-series collection.
    pub time_series: Option<(String, Option<String>)>,
}

/// A document of another application.
#[derive(Debug)]
pub struct ForeignDocument {
    /// Relaxed Extended JSON.
    pub json: String,
    /// Its place in the order of reading. Documents of a time-series collection with equal times have equal places.
    pub place: String,
}

/// A cursor over documents.
pub struct ForeignDocuments {
    cursor: Cursor<RawDocumentBuf>,
    order: String,
}

impl ForeignCollection {
    /// Connects to `mongodb://…/DATABASE` and finds a collection.
    ///
    /// # Errors
    /// A message if that is not possible. It has no credentials.
    pub async fn open(uri: &str, name: Option<&str>) -> Result<Self, String> {
        let mut options = ClientOptions::parse(uri).await.map_err(message)?;
        options.app_name.get_or_insert_with(|| "hourglass import".to_owned());
        options.server_selection_timeout.get_or_insert(SELECTION_TIMEOUT);
        let client = Client::with_options(options).map_err(message)?;
        let database = client.default_database().ok_or("the address names no database: mongodb://HOST/DATABASE")?;
        let mut names = Vec::new();
        let mut listed = database.list_collections().await.map_err(message)?;
        while listed.advance().await.map_err(message)? {
            let found = listed.current();
            let found_name = found.get_str("name").unwrap_or_default();
            if Some(found_name) == name {
                let options = found.get_document("options").and_then(|options| options.get_document("timeseries"));
                let member = |name: &str| options.as_ref().ok()?.get_str(name).ok().map(str::to_owned);
                let time_series = member("timeField").map(|time| (time, member("metaField")));
                return Ok(Self { collection: database.collection(found_name), time_series });
            }
            names.push(found_name.to_owned());
        }
        names.retain(|name| !name.starts_with("system."));
        names.sort();
        let names = names.join(", ");
        Err(match name {
            Some(name) => format!("there is no collection {name:?}, only {names}"),
            None => format!("name one with --collection: {names}"),
        })
    }

    /// Reads documents by `_id`, or by time in a native time-series collection: those after a place, or the last ones
    /// first. `limit` is their maximum number, or 0.
    ///
    /// # Errors
    /// A message.
    pub async fn documents(
        &self,
        after: Option<&str>,
        is_descending: bool,
        limit: i64,
    ) -> Result<ForeignDocuments, String> {
        let order = self.time_series.as_ref().map_or("_id", |(time, _)| time);
        let filter = match (after.map(parse_place).transpose()?, &self.time_series) {
            (None, _) => doc! {},
            (Some(place), Some(_)) => doc! { order: { "$gt": place } },
            // Unlike a plain comparison, it goes on to identifiers of other types.
            (Some(place), None) => doc! { "$expr": { "$gt": ["$_id", { "$literal": place }] } },
        };
        let sort = doc! { order: if is_descending { -1 } else { 1 } };
        // Before 6.0, the server sorts a time-series collection on disk.
        let find = self.collection.find(filter).sort(sort).limit(limit).allow_disk_use(true);
        let find = find.batch_size(BATCH_DOCUMENTS);
        Ok(ForeignDocuments { cursor: find.await.map_err(message)?, order: order.to_owned() })
    }
}

impl ForeignDocuments {
    /// Returns the next document.
    ///
    /// # Errors
    /// A message.
    pub async fn next(&mut self) -> Result<Option<ForeignDocument>, String> {
        if !self.cursor.advance().await.map_err(message)? {
            return Ok(None);
        }
        let document = self.cursor.current();
        let place = document.get(&*self.order).map_err(|error| error.to_string())?.unwrap_or(RawBsonRef::Null);
        Ok(Some(ForeignDocument { json: relaxed_json(document)?, place: format_place(place) }))
    }
}

fn message(error: Error) -> String {
    tracing::debug!(%error, "reading a collection of another application");
    driver_error(&error)
}

fn format_place(value: RawBsonRef<'_>) -> String {
    let mut place = RawDocumentBuf::new();
    place.append(cstr!(""), value);
    STANDARD.encode(place.as_bytes())
}

fn parse_place(text: &str) -> Result<bson::Bson, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let document = RawDocument::from_bytes(&bytes).and_then(Document::try_from).map_err(|error| error.to_string())?;
    document.get("").cloned().ok_or_else(|| "the progress file has no place".to_owned())
}
