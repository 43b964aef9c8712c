//! The system under test, and its writers.

use anyhow::{Result, ensure};
use mongodb::Collection;
use mongodb::bson::Document;

use super::reading::{Reading, lines};
use crate::client::Connection;
use crate::servers::http::Product;
use crate::servers::system::System;

/// A system under test.
pub struct Subject<'a> {
    pub system: System<'a>,
    /// True if queries to VictoriaMetrics use its response cache, which is the default. It drops the cache some seconds
    /// after old samples arrive.
    pub is_cached: bool,
}

/// A writer with its own connection, or through the driver.
pub enum Writer {
    /// Line protocol, to a path.
    Http(Connection, &'static str),
    Native(Collection<Document>),
}

impl Subject<'_> {
    pub async fn writer(&self) -> Result<Writer> {
        Ok(match self.system.peer.product() {
            Some(product) => Writer::Http(self.system.connect().await?, product.write_path()),
            None => Writer::Native(self.system.collection()?),
        })
    }

    /// Writes all readings, a thousand at a time.
    pub async fn write(&self, readings: &[Reading]) -> Result<()> {
        let mut writer = self.writer().await?;
        for readings in readings.chunks(1000) {
            writer.write(readings).await?;
        }
        Ok(())
    }

    /// Makes acked readings visible to queries, for systems whose ack does not imply that.
    pub async fn make_visible(&self) -> Result<()> {
        if self.system.peer.product() == Some(Product::Victoria) {
            self.system.flush().await?;
        }
        Ok(())
    }
}

impl Writer {
    /// Writes readings, and returns when they are acked.
    pub async fn write(&mut self, readings: &[Reading]) -> Result<()> {
        match self {
            Self::Http(connection, path) => {
                connection.deliver(path, lines(readings)).await?;
            }
            Self::Native(collection) => {
                let inserted = collection.insert_many(readings.iter().map(Reading::document)).ordered(false).await?;
                ensure!(inserted.inserted_ids.len() == readings.len(), "a batch was inserted in part");
            }
        }
        Ok(())
    }
}
