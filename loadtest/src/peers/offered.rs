//! Offers every server the same rate, in an open loop: half the maximum rate of the slowest. At maximum rate, latencies
//! depend mostly on each server's queues; they compare only at the same load.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::figures::Row;
use super::stored;
use super::turn::Bench;
use super::work::Work;
use crate::run::posts::{Post, start_made};
use crate::run::recorder::Recorder;
use crate::run::schedule::Schedule;
use crate::run::senders::{Sending, send_all, with};
use crate::servers::spawn::Folder;
use crate::stats::{median, to_f64};

/// Minimum number of turns, to show how much they differ.
pub const TURNS_LEAST: usize = 3;
/// The offered rate, as a share of the maximum rate of the slowest.
const SHARE: f64 = 0.5;
/// Time before the first POST, in which connections are opened.
const HEAD_START: Duration = Duration::from_millis(500);
/// Maximum wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The figures of a turn at the offered rate, or the medians of several turns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OfferedFigures {
    /// Readings due per second.
    pub per_s: f64,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Median time from when a POST was due to its ack, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the same; if some POSTs were never acked, the maximum.
    pub p99_ms: f64,
    /// POSTs that were never acked, or never sent because earlier ones were not acked.
    pub never_acked: f64,
    /// Failed attempts, which were repeated.
    pub failed: f64,
    /// The 99th percentile of the delays that the load tester itself caused.
    pub own_lag_p99_ms: f64,
}

impl OfferedFigures {
    fn of(recorder: &Recorder, schedule: Schedule, posts: usize) -> Self {
        let never_acked = to_f64(posts - usize::try_from(recorder.acked_posts).map_or(posts, |acked| acked.min(posts)));
        let ms = |us: u64| Duration::from_micros(us).as_secs_f64() * 1000.0;
        let tail = if never_acked > 0.0 { 1.0 } else { 0.99 };
        Self {
            per_s: schedule.rate,
            seconds: schedule.duration.as_secs_f64(),
            p50_ms: ms(recorder.corrected.value_at_quantile(0.5)),
            p99_ms: ms(recorder.corrected.value_at_quantile(tail)),
            never_acked,
            failed: usize::try_from(recorder.error_count()).map_or(0.0, to_f64),
            own_lag_p99_ms: ms(recorder.own_lag.value_at_quantile(0.99)),
        }
    }

    /// Figure by figure.
    pub fn median(turns: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(turns.iter().map(figure));
        (!turns.is_empty()).then(|| Self {
            per_s: of(|turn| turn.per_s),
            seconds: of(|turn| turn.seconds),
            p50_ms: of(|turn| turn.p50_ms),
            p99_ms: of(|turn| turn.p99_ms),
            never_acked: of(|turn| turn.never_acked),
            failed: of(|turn| turn.failed),
            own_lag_p99_ms: of(|turn| turn.own_lag_p99_ms),
        })
    }
}

/// The rate for this workload, in readings per second, from the medians of the servers that take part.
pub fn rate(rows: &[Row], work: &Work) -> Option<f64> {
    let takes_part = |row: &&Row| {
        Contender::ALL.into_iter().any(|one| one.product().is_some() && row.is_of(work, one) && !row.rounds.is_empty())
    };
    let tops = rows.iter().filter(takes_part).map(|row| row.median.acked_per_s);
    tops.min_by(f64::total_cmp).map(|slowest| slowest * SHARE)
}

/// POSTs from the first bodies, due at the given rate, until there are no more.
fn posts(work: &Work, schedule: Schedule) -> Vec<Post> {
    let lines = work.lines.max(1);
    let post = |(number, body): (usize, &bytes::Bytes)| {
        let before = number * lines;
        let due = schedule.due(u64::try_from(before).ok()?)?;
        let lines = u64::try_from(lines.min(work.readings - before)).ok()?;
        Some(Post { number, lines, due, reached: 0, body: body.clone() })
    };
    work.bodies.iter().enumerate().map_while(post).collect()
}

impl Bench {
    /// Starts the server, offers the workload at this rate for a limited time, checks that the server has what it
    /// acked, and stops it.
    pub async fn offered_turn(
        &self,
        contender: Contender,
        work: &Work,
        rate: f64,
        longest: Duration,
    ) -> Result<Option<OfferedFigures>> {
        let Some(product) = contender.product() else { return Ok(None) };
        let bodies_last = Duration::from_secs_f64(to_f64(work.readings) / rate);
        let schedule = Schedule { rate, duration: longest.min(bodies_last) };
        let posts = posts(work, schedule);
        ensure!(!posts.is_empty(), "nothing is due");
        let folder = Folder::new(&self.folder, "peers")?;
        let mut started = self.start(contender, product, &folder).await?;
        let begin = Instant::now() + HEAD_START;
        let sending = Sending {
            target: started.server.address().to_owned(),
            path: product.write_path("ns"),
            gzip: false,
            connections: work.connections,
            timeout: PATIENCE,
            reconnect_every: None,
            begin,
            duration: schedule.duration,
        };
        let shared = Arc::new(Mutex::new(Recorder::new(begin, schedule.duration, 0)));
        let (count, readings): (usize, u64) = (posts.len(), posts.iter().map(|post| post.lines).sum());
        send_all(&sending, start_made(posts, begin), &shared).await?;
        let figures = with(&shared, |recorder| OfferedFigures::of(recorder, schedule, count));
        if figures.never_acked == 0.0 {
            started.server.flush().await?;
            stored::check(&mut started.server, work, usize::try_from(readings)?).await?;
        }
        started.stop()?;
        Ok(Some(figures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bodies::Fleet;
    use crate::peers::figures::Figures;
    use crate::peers::work::Shape;

    fn work(readings: usize, lines: usize) -> Work {
        let fleet = Fleet { sensors: 10, interval_s: 60 };
        let bodies = Arc::new(fleet.bodies(readings, lines));
        let shape = Shape::GatewayBatches;
        Work { shape, fleet, readings, lines, connections: 1, native_readings: readings, bodies }
    }

    #[test]
    fn half_of_the_slowest_is_offered_and_the_native_collection_does_not_count() {
        let work = work(100, 10);
        let row = |contender, acked_per_s| {
            let mut row = Row::new(&work, contender);
            row.rounds = vec![Figures { acked_per_s, ..Figures::default() }];
            row.settle();
            row
        };
        let mut rows = vec![row(Contender::Native, 10.0), row(Contender::Influx, 300.0)];
        rows.push(row(Contender::HourglassEmbedded, 200.0));
        rows.push(Row::new(&work, Contender::Victoria));
        assert_eq!(rate(&rows, &work), Some(100.0));
        assert_eq!(rate(&rows[..1], &work), None);
    }

    #[test]
    fn bodies_are_due_by_the_readings_before_them_until_the_time_is_over_or_they_are() {
        let work = work(95, 10);
        let due = |rate, seconds| {
            let duration = Duration::from_secs(seconds);
            let posts = posts(&work, Schedule { rate, duration });
            let lines: u64 = posts.iter().map(|post| post.lines).sum();
            (posts.len(), lines, posts.last().unwrap().due)
        };
        assert_eq!(due(10.0, 3), (3, 30, Duration::from_secs(2)));
        assert_eq!(due(10.0, 60), (10, 95, Duration::from_secs(9)));
    }

    #[test]
    fn figures_are_of_when_posts_were_due_and_the_longest_counts_where_one_was_never_acked() {
        let begin = Instant::now();
        let schedule = Schedule { rate: 1.0, duration: Duration::from_secs(200) };
        let mut recorder = Recorder::new(begin, schedule.duration, 0);
        for number in 0..200_u64 {
            let due = Duration::from_secs(number);
            let place = usize::try_from(number).unwrap();
            let post = Post { number: place, lines: 1, due, reached: 0, body: bytes::Bytes::new() };
            // Sent 10 s late; POST number n is acked n milliseconds after that.
            let tried = begin + due + Duration::from_secs(10);
            recorder.acked(&post, tried, tried + Duration::from_millis(number));
        }
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.002;
        let figures = OfferedFigures::of(&recorder, schedule, 200);
        assert!(near(figures.p50_ms, 10_099.0) && near(figures.p99_ms, 10_197.0), "{figures:?}");
        let figures = OfferedFigures::of(&recorder, schedule, 201);
        assert!(figures.never_acked == 1.0 && near(figures.p99_ms, 10_199.0), "{figures:?}");
        let turns = [1.0, 5.0, 3.0].map(|p99_ms| OfferedFigures { p99_ms, ..OfferedFigures::default() });
        assert_eq!(OfferedFigures::median(&turns).map(|figures| figures.p99_ms), Some(3.0));
        assert!(OfferedFigures::median(&[]).is_none());
    }
}
