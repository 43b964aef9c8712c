//! Random native and InfluxQL questions beside a plain model in Python with exact fractions, `oracle/oracle.py`. It is
//! written from docs/reference and InfluxQL's rules. `HOURGLASS_TEST_SEED` sets the seed.

use crate::support::prelude::*;

/// Small pages, so that hours have several. Days are flushed and sealed on request, and backfill is kept in chunks.
const CONFIG: &str = r#"
[page]
max_readings = 10
[flush]
interval = "1h"
quiet = "10m"
[seal]
after = "1s"
interval = "1h"
quiet = "1h"
[sensors]
write_interval = "100ms"
[retention]
interval = "100ms"
[clock]
max_offset = "1s"
"#;
/// Forms of readings that questions must reach on any store. `months` counts totals of days.
const FORMS: [&str; 12] = [
    "memtable",
    "buckets",
    "overflow",
    "chunk",
    "packed",
    "wide",
    "months",
    "renamed",
    "drifted",
    "corrected",
    "deleted",
    "retention",
];
/// Forms that only many questions reach, or only MongoDB has.
const FORMS_OF_MANY: [&str; 2] = ["expired", "plain"];
const FORMS_OF_MONGODB: [&str; 1] = ["columns"];

tests! {
    fn a_model_in_python_gives_the_same_answers_embedded() => ask("embedded".to_owned(), scaled(150, 5000));
    fn a_model_in_python_gives_the_same_answers_in_mongodb() =>
        ask(mongod().uri(&fresh_database_name()), scaled(0, 5000));
}

fn ask(store: String, questions: usize) {
    if questions == 0 {
        // Only the long form asks this store.
        return;
    }
    let Some(python) = python() else { return };
    let is_small = questions < 1000;
    let is_embedded = store == "embedded";
    let server = Launch::with_store(store).config(CONFIG).start();
    let script = root().join("tests/it/oracle/oracle.py");
    let numbers = [questions.to_string(), seed().to_string()];
    let mut command = Command::new(python);
    command.arg("-B").arg(script).args(["--server", &server.url("")]).env("NO_PROXY", "*");
    command.args(["--questions", &numbers[0], "--seed", &numbers[1]]).args(is_small.then_some("--small"));
    let output = run_program(&mut command);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, last_part(&output.stderr));
    let balance: Value = serde_json::from_str(output.stdout.lines().last().expect("a line")).expect("JSON");
    eprintln!("{balance}");
    assert_eq!((&balance["questions"], &balance["mismatches"]), (&json!(questions), &json!(0)), "{balance}");
    assert!(
        balance["empty"].as_u64().expect("a number") < questions as u64 / 2,
        "too few that show anything: {balance}"
    );
    let many: &[&str] = if is_small { &[] } else { &FORMS_OF_MANY };
    let only: &[&str] = if is_embedded { &[] } else { &FORMS_OF_MONGODB };
    for form in FORMS.iter().chain(many).chain(only) {
        assert!(balance["forms"][form].as_u64() > Some(0), "no question reaches {form}: {balance}");
    }
}

/// Returns a Python without packages.
fn python() -> Option<PathBuf> {
    let named = std::env::var("HOURGLASS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = on_path(Path::new(&named));
    if found.is_none() {
        not_run("needs python3");
    }
    found
}

/// Returns the end of a long text.
fn last_part(text: &str) -> &str {
    let start = text.len().saturating_sub(2000);
    text.get(start..).unwrap_or(text)
}
