//! `hourglass import`: brings the rows of a file into a running service. It can be interrupted and run again, keeps the
//! refused rows in a file, and compares what it read with what the service has at the end.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::balance::{Balance, quote};
use super::batch::{Batch, Place, Position, Refusal};
use super::columns::RowsFormat;
use super::state::StateFile;
use super::{BatchSource, InfluxSource, MongoSource, RowFlags, RowReader, Sender, open_source};
use crate::commands::lifetime;
use crate::commands::post::{Service, Target, url_encode};
use crate::commands::progress::Progress;
use crate::config::{StoreUri, redact_uri};
use crate::reading::Precision;

/// Batches that are read ahead of the one that is being sent.
const BATCHES_AHEAD: usize = 2;
/// The minimum time between two states of a progress file.
const STATE_PAUSE: Duration = Duration::from_millis(200);

/// The flags of `import`.
#[derive(Debug, Args)]
pub struct ImportFlags {
    /// A file, which may be compressed with gzip or zstd; `-` for the standard input; a database of a running InfluxDB
    /// 1.x: influx://[USER:PASSWORD@]HOST:PORT/DATABASE; or a database of MongoDB:
    /// mongodb://[USER:PASSWORD@]HOST/DATABASE.
    pub source: PathBuf,
    /// MongoDB: the collection. Names of columns are dotted paths in its documents.
    #[arg(long, value_name = "NAME", help_heading = "MongoDB")]
    pub collection: Option<String>,
    /// MongoDB: the path of the array that has a document per reading [default: guessed].
    #[arg(long, value_name = "PATH", help_heading = "MongoDB")]
    pub readings: Option<String>,
    #[command(flatten)]
    pub rows: RowFlags,
    /// Only read the rows, and print how they would be written.
    #[arg(long)]
    pub dry_run: bool,
    /// The file for refused rows, with reasons [default: SOURCE.refused].
    #[arg(long, value_name = "FILE")]
    pub refused: Option<PathBuf>,
    /// The file by which an interrupted import continues. It is removed at the end [default: SOURCE.progress].
    #[arg(long, value_name = "FILE")]
    pub progress: Option<PathBuf>,
    /// Give up if the service is busy or away for longer.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
    /// Print no progress.
    #[arg(long)]
    pub quiet: bool,
    /// The database, in place of those that the source names [default: default].
    #[arg(long, value_name = "NAME", env = "HOURGLASS_DB")]
    pub db: Option<String>,
    #[command(flatten)]
    pub service: Service,
}

impl ImportFlags {
    /// Returns the source if it is a URL of InfluxDB.
    fn url(&self) -> Option<&str> {
        self.source.to_str().filter(|source| InfluxSource::is_url(source))
    }

    /// Returns the source if it is an address of MongoDB.
    fn mongodb(&self) -> Option<&str> {
        self.source.to_str().filter(|source| MongoSource::is_address(source))
    }

    /// Returns true if the source is a file or the standard input.
    fn is_file(&self) -> bool {
        self.url().is_none() && self.mongodb().is_none()
    }

    /// Returns the name of the source for files beside it. It has no password and no slash of a URL.
    fn name(&self) -> PathBuf {
        match self.url() {
            Some(url) => url.rsplit(['@', '/']).next().unwrap_or_default().into(),
            None if self.mongodb().is_some() => self.collection.as_deref().unwrap_or_default().into(),
            None if self.source == Path::new("-") => "stdin".into(),
            None => self.source.clone(),
        }
    }
}

/// The state of an import.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct State {
    position: Position,
    rows: u64,
    refused: u64,
    /// The size of the file for refused rows.
    refused_bytes: u64,
    balance: Balance,
}

/// Runs the command. Returns true if no row was refused.
pub fn import(flags: &ImportFlags) -> anyhow::Result<bool> {
    let mut reader = open_reader(flags)?;
    let description = reader.describe().unwrap_or_default();
    eprint!("{description}");
    if flags.dry_run {
        return dry_run(&mut *reader);
    }
    let target = Target::from_flags(&flags.service)?;
    let mut import = Import::new(flags, &target, &description)?;
    import.resume(&mut *reader)?;
    let (batches, received) = mpsc::sync_channel::<anyhow::Result<Batch>>(BATCHES_AHEAD);
    thread::scope(|scope| {
        // Moved into the scope, so that the reader ends when the import fails.
        let received = received;
        scope.spawn(move || {
            while let Some(batch) = reader.next_batch().transpose() {
                let is_error = batch.is_err();
                if batches.send(batch).is_err() || is_error {
                    break;
                }
            }
        });
        for batch in &received {
            import.take(batch?)?;
        }
        anyhow::Ok(())
    })?;
    import.finish()
}

fn open_reader(flags: &ImportFlags) -> anyhow::Result<Box<dyn BatchSource>> {
    if let Some(url) = flags.url() {
        return Ok(Box::new(InfluxSource::new(url, flags.db.as_deref())?));
    }
    let rows = RowFlags { needs_time: true, ..flags.rows.clone() };
    if let Some(address) = flags.mongodb() {
        let source = MongoSource::new(address, flags.collection.as_deref(), flags.readings.as_deref(), &rows);
        return Ok(Box::new(source.with_context(|| redact_uri(address))?));
    }
    Ok(Box::new(RowReader::new(open_source(Some(&flags.source))?, &rows, Some(&flags.source), false)?))
}

/// Reads everything and prints the numbers of rows and of those that cannot be sent.
fn dry_run(reader: &mut dyn BatchSource) -> anyhow::Result<bool> {
    let mut rows = 0;
    let mut refused = 0;
    while let Some(batch) = reader.next_batch()? {
        rows += batch.rows.len() + batch.refusals.len();
        refused += batch.refusals.len();
        for refusal in &batch.refusals {
            println!("line {}: {}", refusal.number, refusal.reason);
        }
    }
    println!("{rows} rows read, {refused} refused; nothing was sent");
    Ok(refused == 0)
}

struct Import<'a> {
    flags: &'a ImportFlags,
    sender: Sender<'a>,
    /// `None` for the standard input, which cannot be read again.
    state_file: Option<StateFile>,
    /// The text that tells this import from others.
    request: String,
    state: State,
    refused: Option<File>,
    /// The databases with retention policies that exist.
    policies: BTreeSet<String>,
    written_state: Instant,
    progress: Option<Progress>,
    began: Instant,
    /// Rows of this run.
    rows: u64,
}

impl<'a> Import<'a> {
    /// `description` says how the rows are read.
    fn new(flags: &'a ImportFlags, target: &'a Target, description: &str) -> anyhow::Result<Self> {
        let mut sender = Sender::new(target, flags.db.as_deref().unwrap_or("default"))?;
        sender.patience = Duration::from_secs(flags.patience.unsigned_abs());
        sender.is_repeatable = true;
        if flags.is_file() && flags.rows.format(Some(&flags.source)) == RowsFormat::Lp {
            sender.precision = flags.rows.precision(Precision::Nanoseconds)?.name();
        }
        let name = flags.name();
        let is_input = flags.source == Path::new("-");
        let state_file =
            (!is_input || flags.progress.is_some()).then(|| StateFile::new(flags.progress.as_deref(), &name));
        let source = match flags.mongodb() {
            // With other members, tags or types, readings that were sent would not be equal to those that follow.
            Some(address) => {
                let address = StoreUri::parse(address).map(|address| address.identity()).unwrap_or_default();
                format!("of {address}, with the guess {:08x},", crc32c::crc32c(description.as_bytes()))
            }
            None if is_input || !flags.is_file() => "of 0 bytes".to_owned(),
            None => format!("of {} bytes", flags.source.metadata()?.len()),
        };
        let database = flags.db.as_deref().unwrap_or("its databases");
        let request = format!("{} {source} to {database} of {}", name.display(), target.url());
        Ok(Self {
            flags,
            sender,
            state_file,
            request,
            state: State::default(),
            refused: None,
            policies: BTreeSet::new(),
            written_state: Instant::now(),
            progress: (!flags.quiet).then(|| Progress::new("import")),
            began: Instant::now(),
            rows: 0,
        })
    }

    /// Continues where an earlier run ended.
    fn resume(&mut self, reader: &mut dyn BatchSource) -> anyhow::Result<()> {
        let Some(file) = &self.state_file else { return Ok(()) };
        if let Some(state) = file.read::<State>(&self.request)? {
            eprintln!("hourglass: continuing after {} rows, as {} says", state.rows, file.path().display());
            reader.resume(state.position.clone())?;
            self.state = state;
        }
        Ok(())
    }

    /// Sends a batch and notes the progress.
    fn take(&mut self, mut batch: Batch) -> anyhow::Result<()> {
        if let Some(database) = self.flags.db.as_ref().filter(|_| self.flags.url().is_none()) {
            batch.place.database = Some(database.clone());
            batch.statements.clear();
        }
        for statement in &batch.statements {
            self.execute(statement)?;
        }
        if let Some(policy) = &batch.place.policy {
            self.create_policy(&batch.place, policy)?;
        }
        let answered = self.sender.send(&batch)?;
        let rows = (batch.rows.len() + batch.refusals.len()) as u64;
        batch.refusals.extend(answered);
        self.state.balance.add(&self.sender.database_of(&batch.place), &batch.totals);
        self.refuse(&batch.refusals)?;
        self.state.rows += rows;
        self.state.refused += batch.refusals.len() as u64;
        self.rows += rows;
        // A part of a step is repeated with the step.
        let has_moved = self.state.position != batch.end;
        self.state.position = batch.end;
        if let Some(progress) = &mut self.progress {
            let rate = self.rows as f64 / self.began.elapsed().as_secs_f64().max(0.001);
            progress.show(|| format!("{} rows, {} refused, {rate:.0} rows/s", self.state.rows, self.state.refused));
        }
        // A row that is sent again is stored once, so the progress may lag behind.
        if let Some(file) = &self.state_file
            && has_moved
            && self.written_state.elapsed() >= STATE_PAUSE
        {
            file.write(&self.request, &self.state)?;
            self.written_state = Instant::now();
        }
        Ok(())
    }

    /// Executes a statement of an export, which creates a database or a retention policy.
    fn execute(&self, statement: &str) -> anyhow::Result<()> {
        if !["CREATE ", "ALTER "].iter().any(|verb| statement.to_ascii_uppercase().starts_with(verb)) {
            bail!("{statement:?}: only CREATE and ALTER are executed");
        }
        let answer = self.sender.target.post(&format!("/query?q={}", url_encode(statement)), b"")?;
        let error =
            if answer.status == 200 { answer.json()?["results"][0]["error"].clone() } else { answer.text.into() };
        match error.as_str() {
            None => Ok(()),
            // An earlier run created it, or somebody else with other settings, which stay.
            Some(error) if error.contains("already exists") => Ok(()),
            Some(error) => bail!("{statement}: {error}"),
        }
    }

    /// Creates the database and the retention policy of rows, unless they exist. It keeps readings for ever.
    fn create_policy(&mut self, place: &Place, policy: &str) -> anyhow::Result<()> {
        let name = self.sender.database_of(place);
        if self.policies.contains(&name) {
            return Ok(());
        }
        let database = quote(place.database.as_deref().unwrap_or(self.sender.database));
        self.execute(&format!("CREATE DATABASE {database}"))?;
        if policy != "autogen" {
            let policy = quote(policy);
            self.execute(&format!("CREATE RETENTION POLICY {policy} ON {database} DURATION INF REPLICATION 1"))?;
        }
        self.policies.insert(name);
        Ok(())
    }

    /// Appends refused rows to their file, as line protocol below comments with the reasons.
    fn refuse(&mut self, refusals: &[Refusal]) -> anyhow::Result<()> {
        if refusals.is_empty() {
            return Ok(());
        }
        let path = self.refused_path();
        let write = |state: &mut State, refused: &mut Option<File>| {
            if refused.is_none() {
                let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(&path)?;
                // What an interrupted run wrote after its last state comes again.
                file.set_len(state.refused_bytes)?;
                file.seek(SeekFrom::End(0))?;
                *refused = Some(file);
            }
            let Some(file) = refused else { return Ok(()) };
            let mut text = String::new();
            for refusal in refusals {
                let Refusal { number, reason, text: row, is_line_protocol } = refusal;
                text += &format!("# line {number}: {}\n", reason.replace('\n', " "));
                text += if *is_line_protocol { "" } else { "# " };
                text += &if *is_line_protocol { row.clone() } else { row.replace('\n', "\n# ") };
                text.push('\n');
            }
            file.write_all(text.as_bytes())?;
            state.refused_bytes += text.len() as u64;
            Ok::<_, std::io::Error>(())
        };
        write(&mut self.state, &mut self.refused).with_context(|| format!("writing {}", path.display()))
    }

    fn refused_path(&self) -> PathBuf {
        let beside = || {
            let mut name = self.flags.name().into_os_string();
            name.push(".refused");
            PathBuf::from(name)
        };
        self.flags.refused.clone().unwrap_or_else(beside)
    }

    /// Prints the totals. Returns true if no row was refused.
    fn finish(self) -> anyhow::Result<bool> {
        let seconds = self.began.elapsed().as_secs_f64();
        let State { rows, refused, balance, .. } = &self.state;
        println!("{rows} rows read, {} written, {refused} refused, in {seconds:.1} s", rows - refused);
        if *refused > 0 {
            println!("refused rows are in {}", self.refused_path().display());
        }
        balance.compare(self.sender.target)?;
        if let Some(file) = &self.state_file {
            file.remove()?;
        }
        Ok(*refused == 0)
    }
}
