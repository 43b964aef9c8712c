//! Completions for shells, and manual pages.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use super::whole_command;

/// Prints the completions of a shell.
pub fn print_completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole_command(), "hourglass", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Prints the manual page, or writes the pages of all commands to a folder.
pub fn write_manual(folder: Option<&Path>) -> anyhow::Result<()> {
    match folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            clap_mangen::generate_to(whole_command(), folder).with_context(|| format!("writing {}", folder.display()))
        }
        None => Ok(clap_mangen::Man::new(whole_command()).render(&mut io::stdout())?),
    }
}
