//! The results of a command: tables of figures, as JSON, as Markdown, and as an HTML page with plots.

mod page;
mod plot;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::stats::{median, three_digits};

/// Maximum number of rows of a table in Markdown. Longer tables are only on the HTML page.
const ROWS_MAX: usize = 40;

/// Flags for the files of the results.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// File for the results as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// File for the results as an HTML page with plots.
    #[arg(long)]
    pub html: Option<PathBuf>,
}

/// Print the tables of results, or compare several results of the same command.
#[derive(Debug, Args)]
pub struct Show {
    /// Files that a command wrote with --json. The figures of the later ones are compared with those of the first.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File for an HTML page with plots.
    #[arg(long)]
    html: Option<PathBuf>,
}

/// The results of a command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// The command line.
    pub command: String,
    /// The time when the run began, in RFC 3339.
    pub began: String,
    pub machine: Machine,
    pub systems: Vec<SystemRow>,
    /// The rows or columns that all others are compared with.
    #[serde(default)]
    pub against: Vec<String>,
    pub tables: Vec<Table>,
}

/// The machine of the load tester.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Number of available cores.
    pub cores: usize,
    /// The CPU model.
    pub cpu: String,
    pub memory_gib: u64,
    /// The kernel version.
    pub kernel: String,
    pub load_average_before: String,
}

/// A system that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SystemRow {
    pub name: String,
    pub version: String,
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub cells: Vec<Cell>,
}

/// The values of a figure, one per round. Tables show the median.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub column: String,
    pub values: Vec<f64>,
}

impl Machine {
    /// Describes this machine. Unknown values are empty.
    fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim_start_matches([' ', '\t', ':']).trim_end_matches(" kB").to_owned()
        };
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            memory_gib: field(&read("/proc/meminfo"), "MemTotal").parse::<u64>().unwrap_or(0) >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average_before: load_average(),
        }
    }
}

/// Returns the load average of one, five and fifteen minutes.
pub fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

impl Results {
    /// Returns the empty results of this process.
    pub fn new() -> Self {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let began = format!("{:.0}", jiff::Timestamp::now());
        let command = format!("hourglass-loadtest {}", command.join(" "));
        Self { command, began, machine: Machine::this(), ..Self::default() }
    }

    /// Adds a value to a cell. Tables, rows and columns are in the order of their first value.
    pub fn add(&mut self, table: &str, row: &str, column: &str, value: f64) {
        let table = find(&mut self.tables, |one| one.title == table, || Table::new(table));
        let row = find(&mut table.rows, |one| one.name == row, || Row { name: row.to_owned(), cells: Vec::new() });
        let cell = || Cell { column: column.to_owned(), values: Vec::new() };
        find(&mut row.cells, |one| one.column == column, cell).values.push(value);
    }

    /// Returns the median of a cell.
    pub fn median(&self, table: &str, row: &str, column: &str) -> Option<f64> {
        self.tables.iter().find(|one| one.title == table)?.median(row, column)
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Writes the files that the flags name. It can be called repeatedly.
    pub fn write(&self, output: &Output) -> Result<()> {
        if let Some(path) = &output.json {
            let text = serde_json::to_string_pretty(self)? + "\n";
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        if let Some(path) = &output.html {
            std::fs::write(path, page::page(self)).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Prints the tables, and writes the files that the flags name.
    pub fn finish(&self, output: &Output) -> Result<()> {
        println!("\n{}", self.markdown());
        self.write(output)
    }

    /// Returns all tables in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "**{}**\n", table.title);
            if table.rows.len() > ROWS_MAX {
                let _ = writeln!(text, "{} rows, on the page of --html only\n", table.rows.len());
                continue;
            }
            let columns = table.columns();
            let _ = writeln!(text, "| | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
            for row in &table.rows {
                let cells: Vec<String> =
                    columns.iter().map(|column| self.format_cell(table, &row.name, column)).collect();
                let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
            }
            text.push('\n');
        }
        if !self.systems.is_empty() {
            text += "| | version | |\n|---|---|---|\n";
        }
        for SystemRow { name, version, note } in &self.systems {
            let _ = writeln!(text, "| {name} | {version} | {note} |");
        }
        text
    }

    /// Formats a figure with its ratios to the compared ones.
    fn format_cell(&self, table: &Table, row: &str, column: &str) -> String {
        let Some(value) = table.median(row, column) else { return "–".to_owned() };
        let mut ratios = Vec::new();
        for other in &self.against {
            let is_row = table.rows.iter().any(|one| one.name == *other);
            let compared = if is_row { table.median(other, column) } else { table.median(row, other) };
            let is_itself = *other == if is_row { row } else { column };
            let ratio = compared.filter(|compared| !is_itself && *compared > 0.0).map(|compared| value / compared);
            ratios.push(ratio.map_or_else(|| "–".to_owned(), three_digits));
        }
        let is_compared = ratios.iter().any(|ratio| ratio != "–");
        if is_compared { format!("{} ({})", three_digits(value), ratios.join("; ")) } else { three_digits(value) }
    }

    /// Combines several results. Each file has a column, and each cell a row.
    fn compare(files: &[PathBuf]) -> Result<Self> {
        let name = |path: &PathBuf| path.with_extension("").display().to_string();
        let mut compared = Self { against: files.iter().take(1).map(name).collect(), ..Self::default() };
        for path in files {
            let results = Self::read(path)?;
            for (table, row, cell) in results.cells() {
                let figure = format!("{row}: {}", cell.column);
                cell.values.iter().for_each(|value| compared.add(&table, &figure, &name(path), *value));
            }
        }
        ensure!(compared.tables.iter().all(|table| table.columns().len() > 1), "these results have different tables");
        Ok(compared)
    }

    fn cells(&self) -> impl Iterator<Item = (String, String, &Cell)> {
        let names = |table: &Table, row: &'_ Row| (table.title.clone(), row.name.clone());
        self.tables.iter().flat_map(move |table| {
            let rows = table.rows.iter().map(move |row| (names(table, row), row));
            rows.flat_map(|((title, name), row)| row.cells.iter().map(move |cell| (title.clone(), name.clone(), cell)))
        })
    }
}

impl Table {
    fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    /// Returns the columns of all rows.
    fn columns(&self) -> Vec<&str> {
        let mut columns = Vec::new();
        for cell in self.rows.iter().flat_map(|row| &row.cells) {
            if !columns.contains(&&*cell.column) {
                columns.push(&*cell.column);
            }
        }
        columns
    }

    fn median(&self, row: &str, column: &str) -> Option<f64> {
        let row = self.rows.iter().find(|one| one.name == row)?;
        let cell = row.cells.iter().find(|one| one.column == column)?;
        Some(median(cell.values.iter().copied()))
    }
}

/// Returns an item of a list. Appends a new one if it is missing.
fn find<T>(list: &mut Vec<T>, is_wanted: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let index = list.iter().position(is_wanted).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[index]
}

/// Shows the tables of files.
pub fn show(options: &Show) -> Result<()> {
    let results = match options.files.as_slice() {
        [file] => Results::read(file)?,
        files => Results::compare(files)?,
    };
    print!("{}", results.markdown());
    results.write(&Output { json: None, html: options.html.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut results = Results { against: vec!["B".to_owned()], ..Results::new() };
        for (row, column, value) in
            [("A", "acked/s", 300.0), ("A", "acked/s", 100.0), ("B", "acked/s", 50.0), ("B", "p99 ms", 1.0)]
        {
            results.add("work <1>", row, column, value);
        }
        (1..=3).for_each(|at| results.add("sensors", &format!("{at},000"), "CPU µs", f64::from(at)));
        results
    }

    #[test]
    fn tables_show_medians_and_ratios_of_rows_and_columns() {
        let results = results();
        let text = results.markdown();
        assert!(
            text.contains("| | acked/s | p99 ms |\n|---|---|---|\n| A | 200 (4) | – |\n| B | 50 | 1 |\n"),
            "{text}"
        );
        assert_eq!(results.median("work <1>", "A", "acked/s"), Some(200.0));
        let mut by_column = Results { against: vec!["old".to_owned()], ..Results::new() };
        by_column.add("t", "bytes", "new", 1.0);
        by_column.add("t", "bytes", "old", 2.0);
        assert!(by_column.markdown().contains("| bytes | 1 (0.50) | 2 |"), "{}", by_column.markdown());
    }

    #[test]
    fn the_page_needs_nothing_else_and_plots_rows_that_are_numbers() {
        let page = page::page(&results());
        assert!(page.contains("work &lt;1&gt;") && page.matches("<svg").count() == 1);
        assert!(!["http:", "https:", "src=", "url(", "<script", "NaN"].iter().any(|outside| page.contains(outside)));
    }

    #[test]
    fn files_are_read_back_and_compared() {
        let folder = crate::servers::spawn::Folder::new(&std::env::temp_dir()).unwrap();
        let write = |name: &str, results: &Results| {
            let path = folder.path().join(name);
            results.write(&Output { json: Some(path.clone()), html: None }).unwrap();
            path
        };
        let old = results();
        let mut new = old.clone();
        new.tables[0].rows[0].cells[0].values = vec![400.0];
        let files = [write("old.json", &old), write("new.json", &new)];
        assert_eq!(Results::read(&files[0]).unwrap().markdown(), old.markdown());
        let text = Results::compare(&files).unwrap().markdown();
        assert!(text.contains("| A: acked/s | 200 | 400 (2) |"), "{text}");
    }
}
