//! `hourglass audit`: prints the audit trail of a data folder, or checks its chains.

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::access::Audit;
use crate::config::Settings;

/// Prints all records: first those of administrators of the service, then all others, each oldest first.
pub fn print_audit(settings: &Settings) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for path in files(settings)? {
        let shown = path.display();
        let mut file = std::fs::File::open(&path).with_context(|| format!("reading {shown}"))?;
        std::io::copy(&mut file, &mut out).with_context(|| format!("printing {shown}"))?;
    }
    Ok(())
}

/// Returns the files of the audit trail. It is an error if there are none.
fn files(settings: &Settings) -> anyhow::Result<Vec<PathBuf>> {
    crate::app::data_folder::must_exist(settings)?;
    let directory = &settings.server.data_dir;
    let files = Audit::files(directory);
    if files.is_empty() {
        bail!("there is no audit trail in {}: is it the service's data folder?", directory.display());
    }
    Ok(files)
}

/// Checks the hash chains and prints their faults.
pub fn check_audit(settings: &Settings) -> anyhow::Result<()> {
    files(settings)?;
    let directory = &settings.server.data_dir;
    let reports = Audit::check(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut faulty = 0;
    for (name, report) in reports {
        let last = report.last.map_or_else(String::new, |chain| format!(", the last with the hash {chain}"));
        println!("{name}: {} records{last}", report.records);
        if report.removed > 0 {
            println!("{name}: the records 1 to {} were removed by rotation (audit.max_bytes)", report.removed);
        }
        report.faults.iter().for_each(|fault| println!("{name}: {fault}"));
        if report.faulty > report.faults.len() {
            println!("{name}: and {} more faults", report.faulty - report.faults.len());
        }
        faulty += report.faulty;
    }
    if faulty > 0 {
        bail!("the audit trail was changed: {faulty} faults");
    }
    Ok(())
}
