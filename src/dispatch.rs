//! Runs the command that the command line names.
//!
//! It is part of the library instead of `main.rs`, because futures are compiled where they are first polled: in the
//! binary crate, all of them would be compiled a second time.

use std::process::ExitCode;
use std::time::Duration;

use crate::app::{check_exit_code, exit_code, report_error};
use crate::cli::{
    self, AuditCommand, BackupCommand, Command, ConfigCommand, DeadLettersCommand, HealthcheckFlags, Request,
    WalCommand, with_settings, with_store,
};
use crate::telemetry::version;
use crate::{app, commands, config};

/// Parses the command line and runs its command.
#[must_use]
pub fn main() -> ExitCode {
    match cli::parse() {
        Request::Exchange(exchange) => check_exit_code(exchange.run()),
        Request::Command(command) => run(command),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(flags) => match cli::settings(flags) {
            Ok(settings) => app::run(settings),
            Err(problems) => cli::report(&problems),
        },
        Command::Demo(request) => commands::demo(&request).unwrap_or_else(|error| report_error(&error)),
        Command::Doctor(flags) => with_settings(flags, commands::examine),
        Command::Healthcheck(HealthcheckFlags { server: Some(url), ca, .. }) => {
            exit_code(commands::healthcheck_at(&url, ca.as_deref()))
        }
        Command::Healthcheck(HealthcheckFlags { serve, .. }) => match cli::settings(serve) {
            Ok(settings) => exit_code(commands::healthcheck(&settings)),
            Err(problems) => cli::report_first(&problems),
        },
        Command::Write(flags) => check_exit_code(commands::write(&flags)),
        Command::Query(flags) => check_exit_code(commands::query(&flags)),
        Command::Tail(flags) => exit_code(commands::tail(&flags)),
        Command::Import(flags) => check_exit_code(commands::import(&flags)),
        Command::Export(flags) => exit_code(commands::export(&flags)),
        Command::Completions { shell } => exit_code(cli::print_completions(shell)),
        Command::Man { folder } => exit_code(cli::write_manual(folder.as_deref())),
        Command::Verify { repair, store } => with_settings(store, |settings| commands::verify(settings, repair)),
        Command::Config { command: ConfigCommand::Check(serve) } => {
            with_settings(serve.clone(), |_| cli::print_config_valid(&serve))
        }
        Command::Config { command: ConfigCommand::ShowDefaults } => {
            print!("{}", config::default_file());
            ExitCode::SUCCESS
        }
        Command::Token { command } => cli::tokens(command),
        Command::Backup { command } => backup(command),
        Command::Wal { command: WalCommand::Flush { timeout, store } } => {
            let patience = timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
            with_settings(store, |settings| commands::flush_wal(settings, patience))
        }
        Command::Audit { command: AuditCommand::List(flags) } => {
            with_settings(flags, |settings| exit_code(commands::print_audit(settings)))
        }
        Command::Audit { command: AuditCommand::Verify(flags) } => {
            with_settings(flags, |settings| exit_code(commands::check_audit(settings)))
        }
        Command::Sensor { command } => check_exit_code(commands::sensors(&command)),
        Command::DeadLetters { command: DeadLettersCommand::List(flags) } => {
            with_settings(flags, |settings| exit_code(commands::list_dead_letters(settings)))
        }
        Command::DeadLetters { command: DeadLettersCommand::Send { service, folder } } => {
            with_settings(folder, |settings| check_exit_code(commands::send_dead_letters(settings, &service)))
        }
        Command::DeadLetters { command: DeadLettersCommand::Done { ids, folder } } => {
            with_settings(folder, |settings| exit_code(commands::dead_letters_done(settings, ids)))
        }
        Command::Version => {
            println!("hourglass {}", version::long());
            ExitCode::SUCCESS
        }
        Command::Compact(flags) => with_store(flags, commands::compact),
        Command::Job { command } => check_exit_code(commands::jobs(&command)),
        Command::Instance { command } => exit_code(commands::instances(&command)),
        Command::Rejections { command } => exit_code(commands::rejections(&command)),
        Command::Mapping { command } => exit_code(commands::mapping(&command)),
        Command::Rename { command } => exit_code(commands::rename(&command)),
    }
}

fn backup(command: BackupCommand) -> ExitCode {
    match command {
        BackupCommand::Create { request, store } => {
            let config = store.folder.config.clone();
            with_store(store, async |settings| commands::backup(settings, &request, config.as_deref()).await)
        }
        BackupCommand::Restore { folder, source, store } => {
            with_store(store, async |settings| commands::restore(settings, folder.or(source).as_deref()).await)
        }
        BackupCommand::Verify { source } => exit_code(commands::verify_backup(&source)),
        BackupCommand::Copy(flags) => match flags.settings().map(cli::settings) {
            [Ok(source), Ok(target)] => cli::on_threads(&target, async |target| commands::copy(&source, target).await),
            [Err(problems), _] | [_, Err(problems)] => cli::report(&problems),
        },
        BackupCommand::Digest { output, store } => {
            with_store(store, async |settings| commands::digest(settings, output.is_json()).await)
        }
    }
}
