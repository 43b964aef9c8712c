//! A server that is loaded with the questions' data and asked over HTTP.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;

use super::data::{Answer, MINUTES, Question, lines};
use crate::servers::http::{HttpServer, Product};

/// Minutes of readings per POST: 5,000 lines.
const LOT: usize = 5;

/// A running one.
pub struct Asked(HttpServer);

impl Asked {
    /// Starts it on what is in the folder and waits until it answers. `store` is for hourglass alone.
    pub async fn start(product: Product, program: &Path, store: &str, folder: &Path) -> Result<Self> {
        Ok(Self(HttpServer::start(product, program, store, folder).await?))
    }

    /// Gives it all readings, and waits until they are where it keeps them.
    pub async fn load(&mut self) -> Result<()> {
        self.0.create_database().await?;
        let path = self.0.product().write_path("s");
        for from in (0..MINUTES).step_by(LOT) {
            let to = MINUTES.min(from + i64::try_from(LOT)?);
            self.0.connection().deliver(&path, Bytes::from(lines(from..to))).await?;
        }
        self.0.flush().await
    }

    /// Has it forget answers that it has kept on disk over its restart, where it does that: the next one is worked out.
    pub async fn forget_answers(&mut self) -> Result<()> {
        if self.0.product() == Product::Victoria {
            self.0.connection().deliver("/internal/resetRollupResultCache", Bytes::new()).await?;
        }
        Ok(())
    }

    /// Asks once. The time is from the first byte sent to the last one received.
    pub async fn ask(&mut self, question: Question) -> Result<(Duration, Answer)> {
        let product = self.0.product();
        let path = product.path(question);
        let started = Instant::now();
        let (status, body) = self.0.connection().get(&path).await?;
        let took = started.elapsed();
        ensure!(status == 200, "{path} was answered {status}: {body}");
        Ok((took, product.parse(question, &body)?))
    }

    /// Stops it.
    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }
}
