//! Clients whose requests depend on a seed; every ack is recorded first.

use crate::support::prelude::*;

use super::super::history::{CellKey, Delete, History};
use super::world::World;
use super::{DAY, SECOND};

/// Database of the clients, and the one with expiring readings.
pub const DATABASE: &str = "h";
pub const EXPIRING: &str = "r";
const CLIENTS: usize = 2;
/// Few times, so that many are overwritten.
const STEP: i64 = 420 * SECOND;
const STEPS: i64 = DAY / STEP;
const PACE: Duration = Duration::from_millis(8);
const REST: Duration = Duration::from_millis(20);
/// Retention of the expiring database in days; its readings are at least two days younger or older.
const KEPT_DAYS: i64 = 10;

/// The clients and their history.
pub struct Clients {
    history: Mutex<History>,
    randoms: Vec<Mutex<Random>>,
    value: AtomicUsize,
    acked: AtomicUsize,
    deleted: AtomicUsize,
}

/// Number of acked requests.
pub struct Acks<'a>(&'a AtomicUsize);

impl Acks<'_> {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns all sensors with their databases.
pub fn sensors() -> Vec<(&'static str, String)> {
    let own = (0..CLIENTS).flat_map(|client| (0..2).map(move |n| (DATABASE, sensor(client, n))));
    own.chain((0..2).map(|n| (EXPIRING, expiring(n)))).collect()
}

fn sensor(client: usize, n: i64) -> String {
    format!("hot,c={client},n={n}")
}

fn expiring(n: i64) -> String {
    format!("kept,n={n}")
}

fn today() -> i64 {
    now().div_euclid(DAY) * DAY
}

/// A body and its values by cell.
#[derive(Default)]
struct Body {
    lines: String,
    cells: Vec<(CellKey, i64)>,
}

impl Body {
    /// Adds a reading with some of the fields: an integer, a quarter, a string; each is recorded as an integer.
    fn add(&mut self, sensor: &str, time: i64, value: i64, which: i64) {
        let fields: Vec<(&str, String)> =
            [("v", format!("{value}i")), ("f", format!("{}", quarter(value))), ("t", format!("\"n{value}\""))]
                .into_iter()
                .enumerate()
                .filter(|(bit, _)| which >> bit & 1 == 1)
                .map(|(_, field)| field)
                .collect();
        let text: Vec<String> = fields.iter().map(|(name, text)| format!("{name}={text}")).collect();
        self.lines.push_str(&format!("{sensor} {} {time}\n", text.join(",")));
        let cell = |name: &str| CellKey { sensor: sensor.to_owned(), time, field: name.to_owned() };
        self.cells.extend(fields.into_iter().map(|(name, _)| (cell(name), value)));
    }
}

fn quarter(value: i64) -> f64 {
    value as f64 / 4.0
}

/// Returns the integer from which a field's JSON text was made.
pub fn parse_value(field: &str, text: &str) -> i64 {
    match field {
        "v" => text.parse().expect("a whole number"),
        "f" => (text.parse::<f64>().expect("a number") * 4.0) as i64,
        _ => text.trim_matches('"').trim_start_matches('n').parse().expect("a text that was sent"),
    }
}

impl Clients {
    pub fn new(seed: u64) -> Clients {
        let randoms = (0..CLIENTS as u64).map(|client| Mutex::new(Random::new(seed * 100 + client))).collect();
        let value = AtomicUsize::new(0);
        let acked = AtomicUsize::new(0);
        let deleted = AtomicUsize::new(0);
        Clients { history: Mutex::default(), randoms, value, acked, deleted }
    }

    /// Returns the number of acked fields.
    pub fn acked(&self) -> usize {
        self.acked.load(Ordering::Relaxed)
    }

    pub fn deletions(&self) -> usize {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Runs all clients until `act` is done.
    pub fn during<T>(&self, bases: &[String], act: impl FnOnce(&Acks<'_>) -> T) -> T {
        let stop = AtomicBool::new(false);
        let acks = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // Also if `act` panics, or the scope would wait for ever.
            let _stop = StopOnDrop(&stop);
            for (client, random) in self.randoms.iter().enumerate() {
                let clients = self;
                let stop = &stop;
                let acks = &acks;
                scope.spawn(move || {
                    let mut random = random.lock().expect("no client panicked");
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(PACE);
                        let base = &random.pick(bases);
                        if clients.one(client, base, &mut random) {
                            acks.fetch_add(1, Ordering::Relaxed);
                        } else {
                            std::thread::sleep(REST);
                        }
                    }
                });
            }
            act(&Acks(&acks))
        })
    }

    /// Sends one request; returns true if it was acked.
    fn one(&self, client: usize, base: &str, random: &mut Random) -> bool {
        let sensor = sensor(client, random.below(2));
        let mut body = Body::default();
        let mut add = |time: i64, which: i64| {
            let value = self.value.fetch_add(1, Ordering::Relaxed);
            body.add(&sensor, time, i64::try_from(value).expect("a small number"), which);
        };
        match random.below(17) {
            0..6 => {
                let first = now() / STEP * STEP;
                (0..1 + random.below(8)).for_each(|n| add(first - n * STEP, 1 + random.below(7)));
            }
            // Late readings, many of them corrections of sealed ones.
            6..12 => (0..1 + random.below(6)).for_each(|_| add(late(random, 1..5), 1 + random.below(7))),
            12..14 => {
                let day = today() - (20 + random.below(4)) * DAY;
                (0..STEPS).for_each(|n| add(day + n * STEP, 7));
            }
            16 => return self.delete_by_value(&sensor, base, random),
            _ => return self.delete(&sensor, base, random),
        }
        let ack = random.pick(&["", "", "", "&ack=store"]);
        self.write(base, DATABASE, ack, &body)
    }

    /// Writes a body; returns true if it was acked.
    fn write(&self, base: &str, database: &str, ack: &str, body: &Body) -> bool {
        let number = self.lock().begin(&body.cells, base);
        let answer = request("POST", &format!("{base}/write?db={database}{ack}"), body.lines.as_bytes(), &[]);
        let mut history = self.lock();
        match answer {
            Ok(Answer { status: 204, .. }) => {
                history.end(number, Some(true));
                self.acked.fetch_add(body.cells.len(), Ordering::Relaxed);
                return true;
            }
            Ok(answer) if answer.status == 400 && database == EXPIRING => {
                assert!(answer.text().contains("beyond retention policy"), "{}", answer.text());
                history.refuse(number);
            }
            // It may be logged after the answer.
            Ok(answer) if answer.status == 503 => history.end(number, None),
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_killed) => history.end(number, Some(false)),
        }
        false
    }

    /// Deletes a range of a sensor; returns true if that was completed.
    fn delete(&self, sensor: &str, base: &str, random: &mut Random) -> bool {
        let from = if random.once_in(2) { late(random, 0..5) } else { late(random, 20..24) };
        let to = from + random.pick(&[1, 9, STEPS / 3, STEPS]) * STEP;
        let tags: Vec<&str> = sensor.split(['=', ',']).collect();
        let statement =
            format!("DELETE FROM hot WHERE c = '{}' AND n = '{}' AND time >= {from} AND time < {to}", tags[2], tags[4]);
        self.ask_to_delete(sensor, base, &statement, from..to).is_some()
    }

    /// Sends a deletion of this range of a sensor; returns the answer if it was completed.
    fn ask_to_delete(&self, sensor: &str, base: &str, statement: &str, range: Range<i64>) -> Option<String> {
        let start = Instant::now();
        let q = encode(statement);
        let answer = request("POST", &format!("{base}/query?db={DATABASE}&q={q}"), b"", &[]);
        let is_done = |answer: &Answer| answer.status == 200 && !answer.text().contains("\"error\"");
        let reply = answer.as_ref().ok().filter(|answer| is_done(answer)).map(|answer| answer.text().to_owned());
        // A killed process gives out no more stamps. A failed one may have logged the deletion and do it later.
        let done = reply.is_some();
        let end = (reply.is_some() || answer.is_err()).then(Instant::now);
        self.lock().note_deletion(Delete {
            sensor: sensor.to_owned(),
            range,
            start,
            end,
            done,
            source: base.to_owned(),
        });
        self.deleted.fetch_add(usize::from(done), Ordering::Relaxed);
        reply
    }

    /// Writes a day of rising values and deletes those above one of them; returns true if all was acked.
    fn delete_by_value(&self, sensor: &str, base: &str, random: &mut Random) -> bool {
        let day = today() - (25 + random.below(2)) * DAY;
        let first = i64::try_from(self.value.fetch_add(STEPS as usize, Ordering::Relaxed)).expect("a small number");
        let mut body = Body::default();
        let kept = random.below(STEPS);
        (0..STEPS).for_each(|n| body.add(sensor, day + n * STEP, first + n, 7));
        if !self.write(base, DATABASE, "", &body) {
            return false;
        }
        let tags: Vec<&str> = sensor.split(['=', ',']).collect();
        let statement = format!(
            "DELETE FROM hot WHERE c = '{}' AND n = '{}' AND time >= {day} AND time < {} AND v > {}",
            tags[2],
            tags[4],
            day + DAY,
            first + kept
        );
        self.ask_to_delete(sensor, base, &statement, day + (kept + 1) * STEP..day + DAY).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("no client panicked")
    }

    #[track_caller]
    pub fn check_between(&self, first: Instant, last: Instant, found: &BTreeMap<CellKey, i64>) {
        self.lock().check_between(first, last, found);
    }

    /// Returns the first difference from the history.
    pub fn find_error(&self, found: &BTreeMap<CellKey, i64>) -> Option<String> {
        let now = Instant::now();
        self.lock().find_error(now, now, found)
    }

    /// Compares the readings with the history at rest.
    #[track_caller]
    pub fn check(&self, found: BTreeMap<CellKey, i64>) {
        let mut history = self.lock();
        history.check(&found);
        history.settle(found);
    }
}

/// Returns a random time some days ago.
fn late(random: &mut Random, days: Range<i64>) -> i64 {
    let ago = days.start + random.below(days.end - days.start);
    today() - ago * DAY + random.below(STEPS) * STEP
}

/// The database with expiring readings and a single client.
#[derive(Default)]
pub struct ExpiringDatabase {
    began: Option<Instant>,
    change: Option<JoinHandle<()>>,
    expiries: usize,
}

impl ExpiringDatabase {
    pub fn expiries(&self) -> usize {
        self.expiries
    }

    /// Keeps everything, and writes old and new readings.
    pub fn fill(&mut self, world: &World, clients: &Clients) {
        put(&world.bases()[0], "inf");
        for (base, n) in world.bases().iter().cycle().zip(0..4) {
            let mut body = Body::default();
            for day in [1, 2, KEPT_DAYS + 3, KEPT_DAYS + 20] {
                for step in 0..9 {
                    let value = clients.value.fetch_add(1, Ordering::Relaxed);
                    let time = today() - day * DAY + (n / 2 * 100 + step) * STEP;
                    body.add(&expiring(n % 2), time, i64::try_from(value).expect("small"), 1 + step % 7);
                }
            }
            // An instance learns of the retention within a second.
            wait_until("old readings are accepted", || clients.write(base, EXPIRING, "", &body));
        }
    }

    /// Sets a short retention; an instance that is down is told later.
    pub fn expire(&mut self, world: &World) {
        self.began = Some(Instant::now());
        let base = world.bases().swap_remove(0);
        self.change = Some(std::thread::spawn(move || put(&base, &format!("{KEPT_DAYS}d"))));
    }

    /// Waits until expired readings are no longer visible.
    pub fn await_expired(&mut self, world: &World, clients: &Clients) {
        self.change.take().expect("a change runs").join().expect("the retention is set");
        let cutoff = today() - (KEPT_DAYS + 1) * DAY;
        for n in 0..2 {
            let range = i64::MIN..cutoff;
            for server in &world.servers {
                let gone =
                    || world.readings(server, EXPIRING, &expiring(n), Some((cutoff - 90 * DAY, cutoff))).is_empty();
                wait_until("old readings expire", gone);
            }
            let start = self.began.expect("a change runs");
            let end = Some(Instant::now());
            clients.lock().note_deletion(Delete {
                sensor: expiring(n),
                range,
                start,
                end,
                done: true,
                source: "expiry".to_owned(),
            });
        }
        self.expiries += 1;
    }
}

/// Sets the retention of readings.
#[track_caller]
fn put(base: &str, kept: &str) {
    let url = format!("{base}/api/v1/databases/{EXPIRING}");
    let body = format!("{{\"readings\":\"{kept}\"}}");
    let put = || request("PATCH", &url, body.as_bytes(), &[]).is_ok_and(|answer| answer.status == 200);
    wait_until("the retention is set", put);
}
