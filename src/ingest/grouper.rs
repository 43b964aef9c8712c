//! Keeps groups' documents as the sensors' documents say. The store notes which of these it writes; what is known only there
//! would be lost with the process, and a walk at the start and every hour looks at all sensors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::refreshing::Refreshing;
use crate::bucket::store::MongoExtras;
use crate::bucket::{Regrouped, StorageError};

/// How often it is looked for sensors whose documents were written.
const PAUSE: Duration = Duration::from_millis(200);
/// The wait between two walks through all sensors, and before a failed one is tried again.
const WALK: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(30);
/// The wait after a step that failed: another instance may have been faster, or the store is away.
const AGAIN: Duration = Duration::from_secs(1);
/// Sensors that are looked at together, in one transaction. A step of 256 took 0.1 s in an unoptimized build on two shared cores.
const TOGETHER: usize = 256;
/// The longest rest after a step.
const REST_MAX: Duration = Duration::from_secs(5);
/// How often a step of a walk is tried.
const TRIES: usize = 5;

pub struct Grouper {
    pub store: Arc<dyn MongoExtras>,
    /// What it has done.
    pub grouping: Refreshing,
}

/// What comes after a step.
struct Stepped {
    pause: Duration,
    /// Whether a walk must find sensors that were not noted.
    is_incomplete: bool,
}

impl Grouper {
    /// Runs until it is aborted.
    pub async fn run(self) {
        let mut next_walk = Instant::now();
        loop {
            if next_walk <= Instant::now() {
                let walked = self.walk().await;
                self.note(&walked);
                next_walk = Instant::now()
                    + match walked {
                        Ok(false) => WALK,
                        Ok(true) => PAUSE,
                        Err(_) => RETRY,
                    };
            }
            let Stepped { pause, is_incomplete } = self.noted().await;
            if is_incomplete {
                next_walk = Instant::now();
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// A store that is away is reported by those who need it, and others are faster now and then.
    fn note<T>(&self, tried: &Result<T, StorageError>) {
        if let Err(error) = tried {
            if !error.is_away() && !error.is_transient() {
                tracing::warn!(%error, "groups' documents could not be set; it is tried again");
            }
            self.grouping.failed(error);
        }
    }

    /// Looks at some sensors whose documents were written.
    async fn noted(&self) -> Stepped {
        let began = Instant::now();
        let step = self.store.regroup(TOGETHER).await;
        self.note(&step);
        let Ok(done) = step else { return Stepped { pause: AGAIN, is_incomplete: false } };
        if done.sensors > 0 {
            self.grouping.stepped(&done);
        }
        // Flushes and queries have the store for as long as this had it.
        let pause = if done.left > 0 { began.elapsed().min(REST_MAX) } else { PAUSE };
        Stepped { pause, is_incomplete: done.is_incomplete }
    }

    /// Looks at all sensors, and in between at those whose documents were written meanwhile. Returns whether another walk is needed.
    async fn walk(&self) -> Result<bool, StorageError> {
        let mut is_incomplete = false;
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(from) = after.take() {
                let began = Instant::now();
                let (done, last) = self.step(&database, &from).await?;
                self.grouping.stepped(&done);
                after = last;
                is_incomplete |= self.noted().await.is_incomplete;
                tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
            }
        }
        self.grouping.walked();
        Ok(is_incomplete)
    }

    async fn step(&self, database: &str, from: &str) -> Result<(Regrouped, Option<String>), StorageError> {
        for _ in 1..TRIES {
            match self.store.regroup_after(database, from, TOGETHER).await {
                Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
                done => return done,
            }
        }
        self.store.regroup_after(database, from, TOGETHER).await
    }
}
