//! A turn: one system loads the readings, settles, and answers the questions, alone and with a fresh folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::clickhouse::ClickHouse;
use super::dialect;
use super::fleet::{Fleet, START_S};
use super::measure::seal_all;
use super::peer::Peer;
use super::question::{Asked, Question};
use super::rest::{self, Rest};
use super::results::{Answered, Turn};
use crate::client::Connection;
use crate::process;
use crate::queries::data::{Answer, difference};
use crate::sending::{Sender, send_all};
use crate::servers::http::{Configured, HttpServer, Product};
use crate::servers::mongod::Mongod;
use crate::servers::programs::Programs;
use crate::servers::spawn::{Folder, free_port};
use crate::servers::usage::Usage;
use crate::stats::to_f64;

/// Lines per POST.
const LINES: i64 = 5000;
const CONNECTIONS: usize = 8;
/// Servers rest when they have been idle for so long; they look for work every second.
const QUIET: Duration = Duration::from_secs(3);
/// The longest time to seal, merge or compact.
const LONGEST: Duration = Duration::from_secs(1800);

/// What a run has in common.
pub struct Bench {
    pub programs: Programs,
    pub python: PathBuf,
    pub folder: PathBuf,
    pub fleet: Fleet,
    /// Tries per question.
    pub tries: usize,
    pub seals_while_loading: bool,
    /// Whether questions are asked a second time with a mongod that keeps running.
    pub asks_warm_mongod: bool,
    /// Expected answers that do not depend on a sensor.
    pub expected: HashMap<&'static str, Answer>,
}

/// How hourglass seals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    Off,
    /// With a round every second.
    Fast,
    /// As rarely as it usually looks.
    Usual,
    /// As the program does it without being told, which an older one may not know how.
    Untold,
}

/// The running servers of a system.
pub struct Running {
    pub server: HttpServer,
    pub mongod: Option<Mongod>,
}

impl Running {
    pub fn pids(&self) -> Vec<u32> {
        [self.server.pid()].into_iter().chain(self.mongod.as_ref().map(Mongod::pid)).collect()
    }

    pub fn stop(self) -> Result<()> {
        self.server.stop()?;
        self.mongod.map_or(Ok(()), Mongod::stop)
    }
}

impl Bench {
    pub async fn turn(&mut self, peer: Peer) -> Result<Turn> {
        let folder = Folder::new(&self.folder, "history")?;
        match peer.product() {
            Some(product) => self.over_http(peer, product, &folder).await,
            None => self.clickhouse(peer, &folder).await,
        }
    }

    async fn over_http(&mut self, peer: Peer, product: Product, folder: &Folder) -> Result<Turn> {
        let port = free_port()?;
        let mongod = match peer.has_mongod() {
            true => Some(self.mongod(folder, port).await?),
            false => None,
        };
        let while_loading = if self.seals_while_loading { Sealing::Fast } else { Sealing::Off };
        let mut running = self.start(peer, product, folder, mongod, while_loading).await?;
        let mut turn = Turn::default();
        let pids = running.pids();
        let before = Usage::now(&pids)?;
        running.server.create_database().await?;
        self.load(&running.server).await?;
        running.server.reconnect().await?;
        running.server.flush().await?;
        let drained = match product {
            Product::Hourglass if while_loading == Sealing::Off || !peer.seals() => Usage::now(&pids)?,
            Product::Hourglass => {
                self.await_sealed(&running, folder).await?;
                Usage::now(&pids)?
            }
            Product::Influx | Product::Victoria => Usage::at_rest(&pids).await?,
        };
        self.add_usage(&mut turn.load_s, &mut turn.load_cpu_us, &before, &drained);
        turn.peak_mib = process::resident_mib(running.server.pid())?;

        let mongod = running.mongod.as_ref().map(Mongod::pid);
        // A process that is started to settle has used nothing before.
        let before = Usage::now(if self.restarts_to_settle(peer) { mongod.as_slice() } else { &pids })?;
        running = self.settle(peer, product, folder, running).await?;
        // A mongod is never idle; hourglass says when it has sealed.
        let settled = match product {
            Product::Hourglass => Usage::now(&running.pids())?,
            Product::Influx | Product::Victoria => Usage::at_rest_for(&running.pids(), QUIET, LONGEST).await?,
        };
        self.add_usage(&mut turn.settle_s, &mut turn.settle_cpu_us, &before, &settled);
        turn.peak_mib = turn.peak_mib.max(process::resident_mib(running.server.pid())?);
        turn.mongod_peak_mib = running.mongod.as_ref().map(|mongod| process::resident_mib(mongod.pid())).transpose()?;
        let in_mongodb = match &running.mongod {
            Some(mongod) => Some(rest::of_mongodb(mongod).await?),
            None => None,
        };
        self.check_whole(&mut running.server).await?;
        running.stop()?;
        let mut rest = rest::of_folder(product, &folder.sub("server")?, in_mongodb)?;
        if product == Product::Hourglass && in_mongodb.is_none() {
            let before = rest.data;
            rest::compact_embedded(&self.programs.hourglass, &folder.sub("server")?)?;
            rest = rest::of_folder(product, &folder.sub("server")?, None)?;
            rest.before_compaction = Some(before);
        }
        turn.rest = per_reading(rest, &self.fleet);

        for (number, question) in Question::ALL.into_iter().enumerate() {
            let mut answered = Answered { question, cold_ms: Vec::new(), warm_mongod_ms: Vec::new() };
            for again in 0..self.tries {
                let asked = self.asked(question, number, again);
                let mongod = if peer.has_mongod() { Some(self.mongod(folder, port).await?) } else { None };
                let mut running = self.start(peer, product, folder, mongod, Sealing::Usual).await?;
                self.warm_up(&mut running.server).await?;
                answered.cold_ms.push(self.ask(&mut running.server, &asked).await?);
                running.stop()?;
            }
            turn.questions.push(answered);
        }
        if peer.has_mongod() && self.asks_warm_mongod {
            self.ask_warm_mongod(peer, product, folder, port, &mut turn).await?;
        }
        Ok(turn)
    }

    /// Questions with a mongod that is asked all of them before.
    async fn ask_warm_mongod(
        &mut self,
        peer: Peer,
        product: Product,
        folder: &Folder,
        port: u16,
        turn: &mut Turn,
    ) -> Result<()> {
        let mut mongod = Some(self.mongod(folder, port).await?);
        for is_counted in [false, true] {
            for (number, question) in Question::ALL.into_iter().enumerate() {
                for again in 0..if is_counted { self.tries } else { 1 } {
                    let asked = self.asked(question, number, again);
                    let mut running = self.start(peer, product, folder, mongod.take(), Sealing::Usual).await?;
                    self.warm_up(&mut running.server).await?;
                    let ms = self.ask(&mut running.server, &asked).await?;
                    if is_counted {
                        turn.questions[number].warm_mongod_ms.push(ms);
                    }
                    running.server.stop()?;
                    mongod = running.mongod;
                }
            }
        }
        mongod.map_or(Ok(()), Mongod::stop)
    }

    async fn clickhouse(&mut self, peer: Peer, folder: &Folder) -> Result<Turn> {
        let path = folder.path();
        let mut turn = Turn::default();
        let mut running = ClickHouse::start(&self.python, path)?;
        let pids = [running.pid()];
        let before = Usage::now(&pids)?;
        running.load(&self.fleet, peer == Peer::ClickhouseCodecs, path).await?;
        let drained = Usage::at_rest_for(&pids, QUIET, LONGEST).await?;
        self.add_usage(&mut turn.load_s, &mut turn.load_cpu_us, &before, &drained);
        let before = Usage::now(&pids)?;
        running.run("OPTIMIZE TABLE climate FINAL")?;
        let settled = Usage::at_rest_for(&pids, QUIET, LONGEST).await?;
        self.add_usage(&mut turn.settle_s, &mut turn.settle_cpu_us, &before, &settled);
        turn.peak_mib = process::resident_mib(pids[0])?;
        let (data, indexes) = running.at_rest()?;
        turn.rest = per_reading(Rest { data, indexes, ..Rest::default() }, &self.fleet);
        for (field, expected) in Fleet::FIELDS.into_iter().zip(self.sums()) {
            let (_, found) = running.run(&format!("SELECT count(), sum({field}) FROM climate"))?;
            let found = found.split_whitespace().map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
            ensure!(found.len() == 2, "no count and sum");
            self.check_sums(field, expected, found[0], found[1])?;
        }
        running.stop()?;
        for (number, question) in Question::ALL.into_iter().enumerate() {
            let mut cold_ms = Vec::new();
            for again in 0..self.tries {
                let asked = self.asked(question, number, again);
                let mut running = ClickHouse::start(&self.python, path)?;
                let (warm_up, until) = (self.fleet.sensors - 1, START_S + 3600);
                running.run(&format!(
                    "SELECT avg(temp) FROM climate WHERE sensor = '{}' AND time < toDateTime({until})",
                    super::fleet::sensor_name(warm_up)
                ))?;
                let (took, rows) = running.run(&dialect::sql(&asked))?;
                self.check(&asked, &dialect::rows(&rows)?)?;
                cold_ms.push(took.as_secs_f64() * 1000.0);
                running.stop()?;
                tokio::task::yield_now().await;
            }
            turn.questions.push(Answered { question, cold_ms, warm_mongod_ms: Vec::new() });
        }
        Ok(turn)
    }

    /// Starts hourglass, and its mongod if it has one, in an empty folder; returns the port that this mongod must have later.
    pub async fn start_anew(&self, peer: Peer, folder: &Folder, sealing: Sealing) -> Result<(Running, u16)> {
        let port = free_port()?;
        Ok((self.start_again(peer, folder, port, sealing).await?, port))
    }

    /// The same in a folder that has been used.
    pub async fn start_again(&self, peer: Peer, folder: &Folder, port: u16, sealing: Sealing) -> Result<Running> {
        let mongod = if peer.has_mongod() { Some(self.mongod(folder, port).await?) } else { None };
        self.start(peer, Product::Hourglass, folder, mongod, sealing).await
    }

    async fn mongod(&self, folder: &Folder, port: u16) -> Result<Mongod> {
        Mongod::start(&self.programs.mongod, port, &folder.sub("mongod")?).await
    }

    async fn start(
        &self,
        peer: Peer,
        product: Product,
        folder: &Folder,
        mongod: Option<Mongod>,
        sealing: Sealing,
    ) -> Result<Running> {
        let store = mongod.as_ref().map_or_else(|| "embedded".to_owned(), |mongod| mongod.uri("hourglass"));
        let program = match product {
            Product::Hourglass => &self.programs.hourglass,
            Product::Influx => &self.programs.influxd,
            Product::Victoria => &self.programs.victoria,
        };
        let mut variables = Vec::new();
        if product == Product::Hourglass && sealing != Sealing::Untold {
            let is_off = !peer.seals() || sealing == Sealing::Off;
            variables.push(("HOURGLASS_SEAL_AFTER", if is_off { "0s" } else { "1s" }.to_owned()));
        }
        if product == Product::Influx && sealing == Sealing::Fast {
            // It compacts shards that got no writes for so long.
            variables.push(("INFLUXDB_DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION", "1s".to_owned()));
            variables.push(("INFLUXDB_DATA_COMPACT_FULL_WRITE_COLD_DURATION", "1s".to_owned()));
        }
        let configured = Configured { variables: &variables, file: "" };
        let server = HttpServer::start_with(product, program, &store, &folder.sub("server")?, configured).await?;
        Ok(Running { server, mongod })
    }

    async fn load(&self, server: &HttpServer) -> Result<()> {
        let path = server.product().write_path("s");
        let mut loaders = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = Connection::open(server.address()).await?;
            loaders.push(Loader { connection, path: path.clone(), fleet: self.fleet });
        }
        let posts = usize::try_from(self.fleet.readings())?.div_ceil(usize::try_from(LINES)?);
        send_all(loaders, posts).await.map(drop)
    }

    /// Lets a system reach the form in which it keeps old readings.
    async fn settle(&self, peer: Peer, product: Product, folder: &Folder, mut running: Running) -> Result<Running> {
        match product {
            Product::Hourglass => {
                if self.restarts_to_settle(peer) {
                    running.server.stop()?;
                    running = self.start(peer, product, folder, running.mongod, Sealing::Fast).await?;
                }
                if peer.seals() {
                    // Days that came as chunks would wait for ten minutes. Months are added up once all days are sealed.
                    seal_all(&mut running).await?;
                }
                if self.restarts_to_settle(peer) {
                    self.await_sealed(&running, folder).await?;
                }
            }
            Product::Influx => {
                running.server.stop()?;
                running = self.start(peer, product, folder, None, Sealing::Fast).await?;
            }
            Product::Victoria => {
                running.server.reconnect().await?;
                let (status, said) = running.server.connection().get("/internal/force_merge").await?;
                ensure!(status == 200, "force_merge was answered {status}: {said}");
            }
        }
        Ok(running)
    }

    fn restarts_to_settle(&self, peer: Peer) -> bool {
        peer == Peer::Influxdb || peer.seals() && !self.seals_while_loading
    }

    /// Waits until all days are sealed, by the log, and on MongoDB until no hour page is left.
    async fn await_sealed(&self, running: &Running, folder: &Folder) -> Result<()> {
        let deadline = Instant::now() + LONGEST;
        let expected = u64::try_from(self.fleet.days * self.fleet.sensors)?;
        loop {
            let mut is_sealed = days_sealed(&folder.sub("server")?)? >= expected;
            if let (true, Some(mongod)) = (is_sealed, &running.mongod) {
                is_sealed = rest::hour_pages(mongod).await? == 0;
            }
            if is_sealed {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "not all days were sealed within {LONGEST:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn add_usage(&self, seconds: &mut f64, cpu_us: &mut f64, before: &Usage, after: &Usage) {
        let readings = to_f64(usize::try_from(self.fleet.readings()).unwrap_or(1));
        *seconds = (after.at - before.at).as_secs_f64();
        *cpu_us = (after.cpu_s - before.cpu_s) * 1e6 / readings;
    }

    /// Another sensor for each question and try, and never the one of [`Self::warm_up`].
    pub fn asked(&self, question: Question, number: usize, again: usize) -> Asked {
        let numbers = i64::try_from(number * 11 + again * 37 + 5).unwrap_or_default();
        Asked { question, sensor: numbers % (self.fleet.sensors - 1), fleet: self.fleet }
    }

    /// A question about an hour of a sensor that no other question is about: it opens connections and files.
    pub async fn warm_up(&self, server: &mut HttpServer) -> Result<()> {
        let (from, to) = (START_S, START_S + 3600);
        let sensor = self.fleet.sensors - 1;
        let (name, site) = (super::fleet::sensor_name(sensor), super::fleet::site_name(sensor % super::fleet::SITES));
        let path = match server.product() {
            Product::Hourglass => format!(
                "/api/v1/summary?db=bench&sensor=climate%2Csensor%3D{name}%2Csite%3D{site}&from={from}&to={to}&precision=s"
            ),
            Product::Influx => format!(
                "/query?db=bench&q=SELECT%20mean(temp)%20FROM%20climate%20WHERE%20sensor='{name}'%20AND%20time%20%3C%20{to}s"
            ),
            Product::Victoria => {
                format!(
                    "/api/v1/query?nocache=1&time={to}&query=avg_over_time(climate_temp%7Bsensor=%22{name}%22%7D%5B1h%5D)"
                )
            }
        };
        let (status, said) = server.connection().get(&path).await?;
        ensure!(status == 200, "{path} was answered {status}: {said}");
        Ok(())
    }

    /// Asks, checks the answer, and returns the milliseconds from the first byte sent to the last byte received.
    pub async fn ask(&mut self, server: &mut HttpServer, asked: &Asked) -> Result<f64> {
        let product = server.product();
        let path = dialect::path(product, asked);
        let started = Instant::now();
        let (status, body) = server.connection().get(&path).await?;
        let took = started.elapsed();
        ensure!(status == 200, "{path} was answered {status}: {body}");
        let answer =
            dialect::parse(product, asked, &body).with_context(|| format!("{path} was answered {body:.500}"))?;
        self.check(asked, &answer)?;
        Ok(took.as_secs_f64() * 1000.0)
    }

    fn check(&mut self, asked: &Asked, found: &Answer) -> Result<()> {
        let name = asked.question.name();
        let difference = if asked.question.is_of_one() {
            difference(&asked.expected(), found)
        } else {
            difference(self.expected.entry(name).or_insert_with(|| asked.expected()), found)
        };
        difference.map_or(Ok(()), |difference| bail!("a wrong answer to {name:?}: {difference}"))
    }

    /// Checks that every reading is there: the count and the sum of both fields.
    async fn check_whole(&self, server: &mut HttpServer) -> Result<()> {
        server.reconnect().await?;
        for (field, expected) in Fleet::FIELDS.into_iter().zip(self.sums()) {
            let mut found = [0.0; 2];
            for (found, function) in found.iter_mut().zip(["count", "sum"]) {
                let path = dialect::whole_path(server.product(), &self.fleet, function, field);
                let (status, body) = server.connection().get(&path).await?;
                ensure!(status == 200, "{path} was answered {status}: {body}");
                *found = dialect::whole_value(server.product(), &body)?;
            }
            self.check_sums(field, expected, found[0], found[1])?;
        }
        Ok(())
    }

    fn check_sums(&self, field: &str, expected: f64, count: f64, sum: f64) -> Result<()> {
        let readings = to_f64(usize::try_from(self.fleet.readings())?);
        ensure!((count - readings).abs() < 0.5, "{count} values of {field} instead of {readings}");
        ensure!((sum - expected).abs() <= 1e-9 * expected, "the sum of {field} is {sum} instead of {expected}");
        Ok(())
    }

    /// The sums of both fields.
    fn sums(&self) -> [f64; 2] {
        let (mut temp, mut humidity) = (0_usize, 0_usize);
        for sensor in 0..self.fleet.sensors {
            for tick in 0..self.fleet.ticks() {
                let reading = self.fleet.reading(sensor, tick);
                temp += usize::try_from(reading.temp_hundredths).unwrap_or_default();
                humidity += usize::try_from(reading.humidity).unwrap_or_default();
            }
        }
        [to_f64(temp) / 100.0, to_f64(humidity)]
    }
}

/// Sends numbered POSTs, which it makes itself.
struct Loader {
    connection: Connection,
    path: String,
    fleet: Fleet,
}

impl Sender for Loader {
    async fn send(&mut self, number: usize) -> Result<usize> {
        let first = i64::try_from(number)? * LINES;
        self.connection.deliver(&self.path, self.fleet.lines(first, LINES)).await
    }
}

/// The days that hourglass says it has sealed.
fn days_sealed(folder: &Path) -> Result<u64> {
    let log = std::fs::read_to_string(folder.join("output.log")).context("reading hourglass's log")?;
    let lines = log.lines().filter(|line| line.contains("days sealed"));
    let of_line = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["days"].as_u64();
    Ok(lines.filter_map(of_line).sum())
}

fn per_reading(rest: Rest, fleet: &Fleet) -> Rest {
    let readings = to_f64(usize::try_from(fleet.readings()).unwrap_or(1));
    let share = |bytes: f64| bytes / readings;
    Rest {
        data: share(rest.data),
        indexes: share(rest.indexes),
        log: share(rest.log),
        reusable: rest.reusable.map(share),
        before_compaction: rest.before_compaction.map(share),
    }
}
