//! The `hourglass` command: dispatches each subcommand to the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hourglass::app;
use hourglass::cli::{
    self, AuditCommand, BackupCommand, Command, ConfigCommand, DeadLettersCommand, JobCommand, WalCommand,
};
use hourglass::cli::{Request, with_settings};
use hourglass::config;
use hourglass_demo::Simulation;
use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it; the system allocator is several times slower
/// at that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::parse() {
        Request::Exchange(exchange) => app::exchange(&exchange),
        Request::Command(command) => run(command),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(flags) => match cli::settings(flags) {
            Ok(settings) => app::run(settings),
            Err(problems) => cli::report(&problems),
        },
        Command::Demo(flags) => app::demo(&app::DemoRequest {
            simulation: Simulation { seed: flags.seed, days: flags.days },
            store: flags.store,
            port: flags.port,
            folder: flags.data_dir,
            keeps: flags.keep,
            opens: flags.open,
        }),
        Command::Doctor(flags) => with_settings(flags, |settings| app::examine(settings, true)),
        Command::Healthcheck(flags) => match cli::settings(flags) {
            Ok(settings) => app::healthcheck(&settings),
            Err(problems) => cli::not_asked(&problems),
        },
        Command::Verify { repair, store } => with_settings(store, |settings| app::verify(settings, repair)),
        Command::Config { command: ConfigCommand::Check { probe, serve } } => {
            with_settings(serve.clone(), |settings| match probe {
                true => app::examine(settings, false),
                false => cli::config_is_sound(&serve),
            })
        }
        Command::Config { command: ConfigCommand::ShowDefaults } => {
            print!("{}", config::default_file());
            ExitCode::SUCCESS
        }
        Command::Token { command } => cli::tokens(command, app::tokens),
        Command::Backup { command } => backup(command),
        Command::Wal { command: WalCommand::Flush { timeout, store } } => {
            let patience = timeout.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
            with_settings(store, |settings| app::flush_wal(settings, patience))
        }
        Command::Audit { command: AuditCommand::List(flags) } => with_settings(flags, app::print_audit),
        Command::Audit { command: AuditCommand::Verify(flags) } => with_settings(flags, app::check_audit),
        Command::Sensor { command } => sensors(command),
        Command::DeadLetters { command: DeadLettersCommand::List(flags) } => {
            with_settings(flags, app::list_dead_letters)
        }
        Command::DeadLetters { command: DeadLettersCommand::Send(flags) } => {
            with_settings(flags.folder, |settings| app::send_dead_letters(settings, &flags.target.into()))
        }
        Command::DeadLetters { command: DeadLettersCommand::Done { ids, folder } } => {
            with_settings(folder, |settings| app::dead_letters_done(settings, ids))
        }
        Command::Version => {
            println!("hourglass {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Command::Compact(flags) => with_settings(flags, app::compact),
        Command::Job { command: JobCommand::List(flags) } => app::list_jobs(&flags.into()),
        Command::Job { command: JobCommand::Run { name, target } } => app::run_job(&target.into(), &name),
        Command::Rejections { command } => rejections(command),
        Command::Rename { command } => rename(command),
    }
}

fn backup(command: BackupCommand) -> ExitCode {
    match command {
        BackupCommand::Create(flags) => {
            let (store, request) = flags.request();
            with_settings(store, |settings| app::backup(settings, &request))
        }
        BackupCommand::Restore { folder, store } => with_settings(store, |settings| app::restore(settings, &folder)),
        BackupCommand::Copy(flags) => match flags.settings().map(cli::settings) {
            [Ok(source), Ok(target)] => app::copy(&source, &target),
            [Err(problems), _] | [_, Err(problems)] => cli::report(&problems),
        },
        BackupCommand::Digest { output, store } => {
            with_settings(store, |settings| app::digest(settings, output.is_json()))
        }
    }
}

fn rename(command: cli::RenameCommand) -> ExitCode {
    let (task, flags) = match command {
        cli::RenameCommand::Add { scope, shown, dry_run, target } => {
            let mut entry = scope.fields();
            entry.push(("to", shown));
            (app::RenameTask::Add { entry, is_dry: dry_run }, target)
        }
        cli::RenameCommand::List(flags) => (app::RenameTask::List, flags),
        cli::RenameCommand::Remove { scope, target } => (app::RenameTask::Remove(scope.fields()), target),
    };
    app::rename(&app::RenameRequest { database: flags.db, service: flags.service.into(), task })
}

fn sensors(command: cli::SensorCommand) -> ExitCode {
    let is_csv = |format| format == cli::SensorsFormat::Csv;
    let (what, flags) = match command {
        cli::SensorCommand::Import { file, format, dry_run, target } => {
            let ends = |file: &PathBuf| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            let is_csv = format.map_or_else(|| file.as_ref().is_some_and(ends), is_csv);
            (app::SensorsTask::Import { file, is_csv, is_dry: dry_run }, target)
        }
        cli::SensorCommand::Export { format, target } => (app::SensorsTask::Export { is_csv: is_csv(format) }, target),
    };
    app::sensors(&app::SensorsRequest { database: flags.db, service: flags.service.into(), what })
}

fn rejections(command: cli::RejectionsCommand) -> ExitCode {
    let (task, selection) = match command {
        cli::RejectionsCommand::List(selection) => (app::RejectionsTask::List, selection),
        cli::RejectionsCommand::Export(selection) => (app::RejectionsTask::Export, selection),
        cli::RejectionsCommand::Done { through, selection } => (app::RejectionsTask::Done(through), selection),
    };
    let cli::RejectedFlags { code, measurement, contains, from, target: flags } = selection;
    let selection = [("code", code), ("measurement", measurement), ("contains", contains), ("from", from)];
    let (database, service) = (flags.db, flags.service.into());
    app::rejections(&app::RejectionsRequest { database, selection, service, task })
}
