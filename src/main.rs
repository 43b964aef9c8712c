//! The `hourglass` command: dispatches each subcommand to the library.

use std::process::ExitCode;
use std::time::Duration;

use hourglass::cli::{
    self, AuditCommand, BackupCommand, Command, ConfigCommand, DeadLettersCommand, Request, WalCommand, with_settings,
};
use hourglass::{app, commands, config};
use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it; the system allocator is several times slower
/// at that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::parse() {
        Request::Exchange(exchange) => commands::exchange(&exchange),
        Request::Command(command) => run(command),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(flags) => match cli::settings(flags) {
            Ok(settings) => app::run(settings),
            Err(problems) => cli::report(&problems),
        },
        Command::Demo(request) => commands::demo(&request),
        Command::Doctor(flags) => with_settings(flags, |settings| commands::examine(settings, true)),
        Command::Healthcheck(flags) => match cli::settings(flags) {
            Ok(settings) => commands::healthcheck(&settings),
            Err(problems) => cli::not_asked(&problems),
        },
        Command::Verify { repair, store } => with_settings(store, |settings| commands::verify(settings, repair)),
        Command::Config { command: ConfigCommand::Check { probe, serve } } => {
            with_settings(serve.clone(), |settings| match probe {
                true => commands::examine(settings, false),
                false => cli::config_is_sound(&serve),
            })
        }
        Command::Config { command: ConfigCommand::ShowDefaults } => {
            print!("{}", config::default_file());
            ExitCode::SUCCESS
        }
        Command::Token { command } => cli::tokens(command, commands::tokens),
        Command::Backup { command } => backup(command),
        Command::Wal { command: WalCommand::Flush { timeout, store } } => {
            let patience = timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
            with_settings(store, |settings| commands::flush_wal(settings, patience))
        }
        Command::Audit { command: AuditCommand::List(flags) } => with_settings(flags, commands::print_audit),
        Command::Audit { command: AuditCommand::Verify(flags) } => with_settings(flags, commands::check_audit),
        Command::Sensor { command } => commands::sensors(&command),
        Command::DeadLetters { command: DeadLettersCommand::List(flags) } => {
            with_settings(flags, commands::list_dead_letters)
        }
        Command::DeadLetters { command: DeadLettersCommand::Send { service, folder } } => {
            with_settings(folder, |settings| commands::send_dead_letters(settings, &service))
        }
        Command::DeadLetters { command: DeadLettersCommand::Done { ids, folder } } => {
            with_settings(folder, |settings| commands::dead_letters_done(settings, ids))
        }
        Command::Version => {
            println!("hourglass {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Command::Compact(flags) => with_settings(flags, commands::compact),
        Command::Job { command } => commands::jobs(&command),
        Command::Rejections { command } => commands::rejections(&command),
        Command::Rename { command } => commands::rename(&command),
    }
}

fn backup(command: BackupCommand) -> ExitCode {
    match command {
        BackupCommand::Create { request, store } => {
            let config = store.folder.config.clone();
            with_settings(store, |settings| commands::backup(settings, &request, config.as_deref()))
        }
        BackupCommand::Restore { folder, store } => {
            with_settings(store, |settings| commands::restore(settings, &folder))
        }
        BackupCommand::Copy(flags) => match flags.settings().map(cli::settings) {
            [Ok(source), Ok(target)] => commands::copy(&source, &target),
            [Err(problems), _] | [_, Err(problems)] => cli::report(&problems),
        },
        BackupCommand::Digest { output, store } => {
            with_settings(store, |settings| commands::digest(settings, output.is_json()))
        }
    }
}
