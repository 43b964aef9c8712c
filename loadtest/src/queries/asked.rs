//! A server that is queried over HTTP, after loading the data.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;

use super::data::{Answer, MINUTES, Question, lines};
use crate::servers::http::{HttpServer, Product};

/// Minutes of readings per POST: 5,000 lines.
const LOT: usize = 5;

/// A running server.
pub struct Asked(HttpServer);

impl Asked {
    /// Starts the server with the data in the folder, and waits until it answers. Only hourglass uses `store`.
    pub async fn start(product: Product, program: &Path, store: &str, folder: &Path) -> Result<Self> {
        Ok(Self(HttpServer::start(product, program, store, folder).await?))
    }

    /// Writes all readings, and waits until they are in its final storage.
    pub async fn load(&mut self) -> Result<()> {
        self.0.create_database().await?;
        let path = self.0.product().write_path("s");
        for from in (0..MINUTES).step_by(LOT) {
            let to = MINUTES.min(from + i64::try_from(LOT)?);
            self.0.connection().deliver(&path, Bytes::from(lines(from..to))).await?;
        }
        self.0.flush().await
    }

    /// Clears a response cache that survives restarts, so that the next answer is computed.
    pub async fn forget_answers(&mut self) -> Result<()> {
        if self.0.product() == Product::Victoria {
            self.0.connection().deliver("/internal/resetRollupResultCache", Bytes::new()).await?;
        }
        Ok(())
    }

    /// Runs a query. The time is from the first byte sent to the last byte received.
    pub async fn ask(&mut self, question: Question) -> Result<(Duration, Answer)> {
        let product = self.0.product();
        let path = product.path(question);
        let started = Instant::now();
        let (status, body) = self.0.connection().get(&path).await?;
        let took = started.elapsed();
        ensure!(status == 200, "{path} was answered {status}: {body}");
        Ok((took, product.parse(question, &body)?))
    }

    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }
}
