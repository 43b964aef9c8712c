//! Sensor documents.

use async_trait::async_trait;

use super::Result;
use super::pages::WriteOutcome;
use hourglass_model::bucket::stored::SensorDocument;

/// Selects the sensors to list.
#[derive(Debug, Clone, Default)]
pub struct SensorFilter {
    /// Only keys after this one.
    pub after: Option<String>,
    /// Only sensors with an outlier mark.
    pub outliers: bool,
    /// Maximum number of sensors returned.
    pub limit: usize,
}

/// Sensor documents, by database.
#[async_trait]
pub trait SensorStore: Send + Sync {
    /// Reads the documents of these sensors, in any order. Sensors without a document are missing from the result.
    async fn read_sensors(&self, database: &str, keys: &[&str]) -> Result<Vec<SensorDocument>>;

    /// Lists sensor documents in key order.
    async fn list_sensors(&self, database: &str, filter: &SensorFilter) -> Result<Vec<SensorDocument>>;

    /// Writes sensor documents, each by compare-and-set on its rev. Returns the outcomes in the order given.
    async fn write_sensors(&self, database: &str, documents: &[SensorDocument]) -> Vec<WriteOutcome>;

    /// Removes the documents of these sensors. If a rev is given, the document is removed only if it still has that rev.
    async fn remove_sensors(&self, database: &str, sensors: &[(&str, Option<u64>)]) -> Result<()>;
}
