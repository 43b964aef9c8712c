use super::*;
use crate::access::Allowance;
use crate::bucket::SensorDocument;
use crate::buffer::memtable::Load;
use crate::catalog::{Catalog, LookupResult, WantedSensor};
use crate::reading::Sensor;

/// Regression: a flush that began before this instance learned of another instance's DROP, and ended after it, left its
/// page without a sensor document until the next round a minute later. Until then, no query found the readings.
#[test]
fn a_page_without_a_document_gets_one_soon() {
    let catalog = Catalog::new(&crate::config::one_shard());
    let database = catalog.enlist_database("d");
    let sensor = Sensor::new("m", Vec::<(&str, &str)>::new()).expect("no tags");
    let wanted = WantedSensor { sensor, allowance: Allowance::default() };
    catalog.add_sensors(&database, vec![wanted], LookupResult::default(), usize::MAX);
    let known = catalog.sensor(&database, "m").expect("known");
    let flushed = || {
        let load = Load {
            known: known.clone(),
            database: database.clone(),
            hour: Hour(10),
            rows: Arc::default(),
            bytes: 0,
            first: 1,
            failures: 0,
            is_transient: false,
        };
        let mut run = BucketFlush::new(load, None, false);
        run.in_chunk = Some((Hour(10).start_ns(), Hour(10).start_ns()));
        run
    };
    let metrics = Metrics::new("0", "test").expect("fixed bounds");
    let cache = BucketCache::new(0);
    let registry = RegistryView::unshared();
    let now = Instant::now();
    let mut writer = SensorDocumentWriter::new(10);
    let written_soon = |writer: &mut SensorDocumentWriter| {
        writer.begin_urgent_round(now);
        let Some((_, outdated)) = writer.next(&cache, &registry, |_| true) else { return 0 };
        let done = outdated.iter().map(|outdated| outdated.known.id).collect();
        writer.complete(&database, DocumentsOutcome { done, ..DocumentsOutcome::default() }, now, &metrics);
        outdated.len()
    };

    known.adopt(&SensorDocument::new(known.sensor.clone()));
    writer.note(&database, &flushed(), None);
    assert_eq!(written_soon(&mut writer), 0, "it has a document");
    catalog.doubt("d", None);
    assert_eq!(written_soon(&mut writer), 1, "it may have none");
    writer.note(&database, &flushed(), None);
    assert_eq!(written_soon(&mut writer), 1, "the flush began before");
    assert_eq!(written_soon(&mut writer), 0);
}
