//! Reads a MongoDB collection of another application, in an order in which an interrupted import can continue.

use std::collections::HashSet;

use anyhow::{Context, anyhow};
use tokio::runtime::{Builder, Runtime};

use super::batch::{Batch, Position};
use super::columns::RowFlags;
use super::documents::{DocumentRows, DocumentSource};
use super::reader::BatchSource;
use crate::config::StoreUri;
use crate::store::foreign::{ForeignCollection, ForeignDocument, ForeignDocuments};

/// Size in bytes at which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;
/// Number of refused readings at which a batch ends.
const BATCH_REFUSALS: usize = 1000;
/// Documents from each end of the collection by which members are guessed, and their maximum size.
const SAMPLE_DOCUMENTS: i64 = 200;
const SAMPLE_BYTES: usize = 512 << 10;

pub struct MongoSource {
    runtime: Runtime,
    collection: ForeignCollection,
    rows: DocumentRows,
    /// `None` before the first document is read.
    documents: Option<ForeignDocuments>,
    /// A document that is for the next batch.
    next: Option<ForeignDocument>,
    /// The place of the last document that was read.
    place: Option<String>,
    /// Readings before.
    readings: u64,
    /// The position of the last batch.
    position: Position,
}

impl MongoSource {
    /// Returns true if a source is an address of MongoDB.
    pub fn is_address(source: &str) -> bool {
        StoreUri::parse(source).is_some_and(|address| !address.is_embedded())
    }

    /// Connects to `mongodb://…/DATABASE`, and guesses the members of a collection.
    pub fn new(
        address: &str,
        collection: Option<&str>,
        readings: Option<&str>,
        flags: &RowFlags,
    ) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let opened = runtime.block_on(ForeignCollection::open(address, collection)).map_err(failed)?;
        let mut sample = Vec::new();
        let mut seen = HashSet::new();
        for is_descending in [false, true] {
            let documents = opened.documents(None, is_descending, SAMPLE_DOCUMENTS);
            let mut documents = runtime.block_on(documents).map_err(failed)?;
            let mut bytes = 0;
            while bytes < SAMPLE_BYTES {
                let Some(document) = runtime.block_on(documents.next()).map_err(failed)? else { break };
                bytes += document.json.len();
                sample.push(serde_json::from_str(&document.json).context("a document of MongoDB")?);
                if !seen.insert(document.json) {
                    sample.pop();
                }
            }
        }
        let time_series = opened.time_series.as_ref();
        let source = DocumentSource { name: collection.unwrap_or_default(), time_series, readings };
        let rows = DocumentRows::new(flags, &source, &sample)?;
        Ok(Self {
            runtime,
            collection: opened,
            rows,
            documents: None,
            next: None,
            place: None,
            readings: 0,
            position: Position::default(),
        })
    }

    fn next_document(&mut self) -> anyhow::Result<Option<ForeignDocument>> {
        if self.next.is_some() {
            return Ok(self.next.take());
        }
        if self.documents.is_none() {
            let after = self.position.place_in_collection.as_deref();
            let opened = self.runtime.block_on(self.collection.documents(after, false, 0)).map_err(failed)?;
            self.documents = Some(opened);
        }
        let Some(documents) = &mut self.documents else { return Ok(None) };
        self.runtime.block_on(documents.next()).map_err(failed)
    }
}

impl BatchSource for MongoSource {
    fn describe(&self) -> Option<String> {
        Some(self.rows.description().to_owned())
    }

    fn resume(&mut self, position: Position) -> anyhow::Result<()> {
        self.readings = position.lines;
        self.place.clone_from(&position.place_in_collection);
        self.position = position;
        Ok(())
    }

    fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch::default();
        loop {
            let next = self.next_document()?;
            let has_moved = next.as_ref().is_none_or(|next| Some(&next.place) != self.place.as_ref());
            // Many sensors have readings of one time, and reading can only continue after all of them.
            let size = if has_moved { BATCH_BYTES } else { 4 * BATCH_BYTES };
            let is_full = batch.lines.len() >= size || batch.refusals.len() >= BATCH_REFUSALS;
            if is_full || next.is_none() {
                self.next = next;
                if has_moved {
                    self.position.lines = self.readings;
                    self.position.place_in_collection.clone_from(&self.place);
                }
                batch.end = self.position.clone();
                return Ok((!batch.is_empty()).then_some(batch));
            }
            if let Some(document) = next {
                self.rows.read(&document.json, &mut self.readings, &mut batch)?;
                self.place = Some(document.place);
            }
        }
    }
}

fn failed(message: String) -> anyhow::Error {
    anyhow!("MongoDB: {message}")
}
