//! Pages and sensors as they lie in a store, for whoever checks them: all that a document says of
//! itself stands beside its readings, nothing is made anew, and what cannot be read is a value.

use std::sync::Arc;

use super::readings::Reading;
use super::stamps::Order;
use super::store::{SensorDocument, StorageError};
use super::summary::Figures;
use crate::reading::{Hour, Sensor};

/// A place among a store's keys. It means something only to the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub Vec<u8>);

/// A part of a walk through all documents of a kind.
#[derive(Debug, Clone)]
pub struct Walked<T> {
    /// What was found, in the order of the store's keys.
    pub found: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

impl<T> Default for Walked<T> {
    fn default() -> Self {
        Self { found: Vec::new(), next: None }
    }
}

/// All pages that the store finds under one bucket's keys.
#[derive(Debug, Clone)]
pub struct KeptBucket {
    /// Where it begins: a walk from here meets it again.
    pub from: Cursor,
    /// In the order of their keys. One that cannot be read is an error of its own.
    pub pages: Vec<Result<KeptPage, StorageError>>,
}

/// One page's document.
#[derive(Debug, Clone)]
pub struct KeptPage {
    /// The id that the key gives it under which the store finds it.
    pub key: String,
    /// Whether it stands among the further pages, where a store keeps these apart.
    pub in_overflow: Option<bool>,
    /// Its `_id`.
    pub id: String,
    /// The id that its sensor, its start and its number make.
    pub own_id: String,
    /// Its sensor's key.
    pub sensor_key: Box<str>,
    /// The sensor that its measurement and tags make.
    pub sensor: Arc<Sensor>,
    /// The start of its hour, in milliseconds.
    pub start_ms: i64,
    /// The end of its hour, in milliseconds.
    pub end_ms: i64,
    /// Its number in the bucket.
    pub number: u32,
    /// Grows by one with every write.
    pub rev: u64,
    /// Takes no new timestamps any more.
    pub closed: bool,
    /// On page 0: the bucket has, or is about to have, further pages.
    pub has_overflow: bool,
    /// How many readings it says it has; `None` where it says nothing that is a number.
    pub count: Option<u64>,
    /// When it says the first one is, in milliseconds.
    pub first_ms: Option<i64>,
    /// When it says the last one is, in milliseconds.
    pub last_ms: Option<i64>,
    /// Its readings, in the order in which they stand there.
    pub readings: Vec<Reading>,
    /// What it says of each field; `None` for what is no summary.
    pub summary: Vec<(Arc<str>, Option<Figures>)>,
    /// What it says of its stamps: nothing where a version without stamps wrote it last, and the trouble where that cannot
    /// be read.
    pub order: Result<Option<Order<'static>>, String>,
    /// Of a page that a version without stamps wrote: the highest sequence merged into it, per log.
    pub applied: Vec<(Arc<str>, u64)>,
}

impl KeptPage {
    /// The hour that its start lies in.
    #[must_use]
    pub fn hour(&self) -> Hour {
        Hour::of_ms(self.start_ms)
    }
}

/// One sensor's document.
#[derive(Debug, Clone)]
pub struct KeptSensor {
    /// The key under which the store finds it.
    pub key: String,
    /// What it says.
    pub document: Result<SensorDocument, StorageError>,
}
