//! Statements of `statements/*.txt`, one per line; `#` starts a comment, and `[…]` holds options of the request.

use crate::support::prelude::*;

/// A line of a statement file.
pub struct Statement {
    /// File name without `.txt`.
    pub topic: String,
    /// The whole line, which identifies the statement.
    pub key: String,
    pub options: Options,
    pub text: String,
}

#[derive(Debug, Default, Clone, PartialEq)]
pub struct Options {
    /// Parameters of the URL or form, beside `q`: `epoch=ms`, `chunked=true`, `db=other` and so on.
    pub parameters: Vec<(String, String)>,
    /// Accept header; `csv` is short for `accept=application/csv`.
    pub accept: Option<String>,
    /// POST with a form, not GET.
    pub post: bool,
    /// With the other parameters in the URL and only `q` in the form, as Grafana sends it.
    pub mixed: bool,
    /// Without `db`.
    pub nodb: bool,
}

/// A step of a sequence with its own database.
pub enum Step {
    Write {
        key: String,
        lines: String,
    },
    /// Flushes hourglass; InfluxDB is not asked.
    Flush,
    Ask(Statement),
}

/// A sequence of `deletes.txt`; the line `= name` starts it and names its database.
pub struct Sequence {
    pub database: String,
    pub steps: Vec<Step>,
}

/// File of the sequences.
pub const DELETES: &str = "deletes";

/// Returns all statements except the sequences, by file.
pub fn all() -> Vec<Statement> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder().join("statements"))
        .expect("the folder of the statements")
        .map(|entry| entry.expect("an entry of that folder").path())
        .filter(|path| path.file_stem().is_some_and(|stem| stem != DELETES))
        .collect();
    files.sort();
    let mut statements = Vec::new();
    for file in files {
        let topic = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        statements.extend(lines(&file).iter().map(|line| statement(&topic, line)));
    }
    statements
}

/// Returns the sequences of `deletes.txt`.
pub fn sequences() -> Vec<Sequence> {
    let mut sequences: Vec<Sequence> = Vec::new();
    for line in lines(&folder().join("statements/deletes.txt")) {
        if let Some(name) = line.strip_prefix("= ") {
            sequences.push(Sequence { database: name.to_owned(), steps: Vec::new() });
            continue;
        }
        let sequence = sequences.last_mut().expect("a sequence begins with its name");
        // The same statement follows each change.
        let key = format!("{} {}: {line}", sequence.database, sequence.steps.len() + 1);
        sequence.steps.push(match (line.as_str(), line.strip_prefix("write ")) {
            ("flush", _) => Step::Flush,
            (_, Some(lines)) => Step::Write { key, lines: lines.replace(" | ", "\n") },
            (line, None) => {
                let mut statement = statement(DELETES, line);
                statement.options.post = true;
                statement.key = key;
                Step::Ask(statement)
            }
        });
    }
    sequences
}

/// Returns the accepted differences in `differences.txt`: lines `statement -> reason`.
pub fn accepted() -> Vec<(String, String)> {
    let split = |line: &String| {
        let (key, reason) = line.rsplit_once(" -> ").unwrap_or_else(|| panic!("`{line}` has no ` -> ` and a reason"));
        (key.to_owned(), reason.to_owned())
    };
    lines(&folder().join("differences.txt")).iter().map(split).collect()
}

pub fn statement(topic: &str, line: &str) -> Statement {
    let (options, text) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((words, text)) => (options(words), text),
        None => (Options::default(), line),
    };
    Statement { topic: topic.to_owned(), key: line.to_owned(), options, text: text.to_owned() }
}

fn options(words: &str) -> Options {
    let mut options = Options::default();
    for word in words.split(' ') {
        match word.split_once('=') {
            Some(("accept", media)) => options.accept = Some(media.to_owned()),
            Some((key @ ("epoch" | "db" | "rp" | "chunked" | "chunk_size" | "pretty" | "params"), value)) => {
                options.parameters.push((key.to_owned(), value.to_owned()));
            }
            _ if word == "csv" => options.accept = Some("application/csv".to_owned()),
            _ if word == "post" => options.post = true,
            _ if word == "mixed" => {
                options.post = true;
                options.mixed = true;
            }
            _ if word == "nodb" => options.nodb = true,
            _ => panic!("no option: {word}"),
        }
    }
    options
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/influxql")
}
