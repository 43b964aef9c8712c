//! Renders results as a self-contained HTML page: the tables, and plots of those whose rows are numbers.

use super::plot::plot;
use super::{Results, Table};

/// Minimum number of rows for a plot.
const POINTS_MIN: usize = 3;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:76rem;padding:1.5rem;color:#1c2430;background:#fff}\
table{border-collapse:collapse;margin:.5rem 0 1rem}th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #dde3ea}\
th:first-child,td:first-child{text-align:left}.faint,text{color:#5b6776;fill:#5b6776}.plots{display:flex;flex-wrap:wrap;gap:1rem}\
figure{margin:0}figcaption{font-weight:600}svg{width:34rem;max-width:100%;font-size:12px}\
.grid{stroke:#dde3ea}.line{fill:none;stroke:#1769aa;stroke-width:2}.dot{fill:#1769aa}\
@media(prefers-color-scheme:dark){body{color:#e3e8ee;background:#12171d}th,td{border-color:#2c3641}.grid{stroke:#2c3641}}";

pub fn page(results: &Results) -> String {
    let mut body = String::new();
    for table in &results.tables {
        body += &format!(
            "<section>\n<h2>{}</h2>\n{}{}</section>\n",
            escape_html(&table.title),
            plots(table),
            rows(results, table)
        );
    }
    for system in &results.systems {
        let [name, version, note] = [&system.name, &system.version, &system.note].map(|text| escape_html(text));
        body += &format!("<p><b>{name}</b> {version} <span class=\"faint\">{note}</span></p>\n");
    }
    let machine = &results.machine;
    let facts = format!(
        "{} · {} cores, {}, {} GiB, Linux {} · load average before {}",
        results.began, machine.cores, machine.cpu, machine.memory_gib, machine.kernel, machine.load_average_before
    );
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p class=\"faint\">{}</p>\n{body}</body>\n</html>\n",
        escape_html(&facts),
        title = escape_html(&results.command),
    )
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn rows(results: &Results, table: &Table) -> String {
    let columns = table.columns();
    let heads: String = columns.iter().map(|column| format!("<th>{}</th>", escape_html(column))).collect();
    let mut text = format!("<table>\n<tr><th></th>{heads}</tr>\n");
    for row in &table.rows {
        let cell = |column: &&str| format!("<td>{}</td>", escape_html(&results.format_cell(table, &row.name, column)));
        let cells: String = columns.iter().map(cell).collect();
        text += &format!("<tr><td>{}</td>{cells}</tr>\n", escape_html(&row.name));
    }
    text + "</table>\n"
}

/// A plot for each column, if the names of the rows are numbers.
fn plots(table: &Table) -> String {
    let number = |name: &str| name.replace(',', "").parse::<f64>().ok();
    let all: Option<Vec<f64>> = table.rows.iter().map(|row| number(&row.name)).collect();
    let Some(all) = all.filter(|all| all.len() >= POINTS_MIN) else { return String::new() };
    let mut text = "<div class=\"plots\">\n".to_owned();
    for column in table.columns() {
        let value = |(x, row): (&f64, &super::Row)| Some((*x, table.median(&row.name, column)?));
        let points: Vec<(f64, f64)> = all.iter().zip(&table.rows).filter_map(value).collect();
        text += &format!("<figure><figcaption>{}</figcaption>{}</figure>\n", escape_html(column), plot(&points));
    }
    text + "</div>\n"
}
