//! The `hourglass` command: dispatches each subcommand to the library.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hourglass::cli::{
    Arguments, BackupFlags, Command, ConfigCommand, CopyFlags, CredentialFlags, DeadLettersCommand, TargetFlags,
};
use hourglass::{app, cli, config};
use mimalloc::MiMalloc;

/// Memory is often freed by another thread than the one that allocated it; the system allocator is several times slower
/// at that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Serve(flags) => match cli::settings(&flags) {
            Ok(settings) => app::run(settings),
            Err(problems) => cli::report(&problems),
        },
        Command::Demo(flags) => app::demo(&app::DemoRequest {
            seed: flags.seed,
            days: flags.days,
            port: flags.port,
            folder: flags.data_dir,
            keeps: flags.keep,
            opens: flags.open,
        }),
        Command::Verify(flags) => match cli::settings(&flags.settings()) {
            Ok(settings) => app::verify(&settings, flags.repair),
            Err(problems) => cli::report(&problems),
        },
        Command::Digest(flags) => match cli::settings(&flags.store.settings()) {
            Ok(settings) => app::digest(&settings, flags.json),
            Err(problems) => cli::report(&problems),
        },
        Command::Backup(flags) => backup(flags),
        Command::Restore(flags) => match cli::settings(&flags.store.settings()) {
            Ok(settings) => app::restore(&settings, &flags.folder),
            Err(problems) => cli::report(&problems),
        },
        Command::Copy(flags) if flags.is_running() => {
            let [_, to] = flags.settings();
            match cli::settings(&to) {
                Ok(settings) => {
                    let CopyFlags { from, by, switch: switches, every, .. } = flags;
                    let (from, every) = (service(from, by), Duration::from_secs(every.unsigned_abs()));
                    app::follow(&settings, &app::FollowRequest { from, switches, every })
                }
                Err(problems) => cli::report(&problems),
            }
        }
        Command::Copy(flags) => match flags.settings().map(|flags| cli::settings(&flags)) {
            [Ok(from), Ok(to)] => app::copy(&from, &to),
            [Err(problems), _] | [_, Err(problems)] => cli::report(&problems),
        },
        Command::FlushWal(flags) => match cli::settings(&flags.store.settings()) {
            Ok(settings) => app::flush_wal(&settings, flags.patience()),
            Err(problems) => cli::report(&problems),
        },
        Command::Compact(flags) => match cli::settings(&flags.store.settings()) {
            Ok(settings) => {
                let service = flags.to.map(|to| service(to, flags.by));
                app::compact(&settings, app::CompactRequest { service, runs: flags.run })
            }
            Err(problems) => cli::report(&problems),
        },
        Command::Explain(flags) => app::explain(&app::ExplainRequest {
            file: flags.file,
            database: flags.db,
            policy: flags.rp,
            precision: flags.precision,
            as_json: flags.json,
            service: target(flags.target),
        }),
        Command::Rejections { command } => rejections(command),
        Command::Sensors { command } => sensors(command),
        Command::Relabel { command } => relabel(command),
        Command::Indexes(flags) => app::indexes(&target(flags)),
        Command::Migrate(flags) => app::migrate(&target(flags)),
        Command::Seal(flags) => app::seal(&target(flags)),
        Command::DeadLetters { command } => dead_letters(command),
        Command::Token { command } => cli::tokens(command, app::tokens),
        Command::CheckConfig(flags) => match cli::settings(&flags.serve) {
            Ok(settings) if flags.probe => app::examine(&settings, false),
            Ok(_) => cli::config_is_sound(&flags.serve),
            Err(problems) => cli::report(&problems),
        },
        Command::Doctor(flags) => match cli::settings(&flags) {
            Ok(settings) => app::examine(&settings, true),
            Err(problems) => cli::report(&problems),
        },
        Command::Healthcheck(flags) => match cli::settings(&flags.settings()) {
            Ok(settings) => app::healthcheck(&settings),
            Err(problems) => cli::not_asked(&problems),
        },
        Command::Config { command: ConfigCommand::Default } => {
            print!("{}", config::DEFAULT);
            ExitCode::SUCCESS
        }
    }
}

/// The service that flags name.
fn target(flags: TargetFlags) -> app::Service {
    service(flags.to, flags.by)
}

fn service(url: String, by: CredentialFlags) -> app::Service {
    let CredentialFlags { token, token_file, ca, cert, key } = by;
    app::Service { url, token, token_file, tls: app::TlsFiles { ca, cert, key } }
}

fn backup(flags: BackupFlags) -> ExitCode {
    let settings = match cli::settings(&flags.store.settings()) {
        Ok(settings) => settings,
        Err(problems) => return cli::report(&problems),
    };
    let request = app::BackupRequest {
        folder: flags.folder,
        from: (!flags.stopped).then(|| service(flags.from, flags.by)),
        config: flags.store.config,
        patience: Duration::from_secs(flags.patience.unsigned_abs()),
        prove: flags.prove,
    };
    app::backup(&settings, &request)
}

fn dead_letters(command: DeadLettersCommand) -> ExitCode {
    let folder = match &command {
        DeadLettersCommand::List(folder) | DeadLettersCommand::Done { folder, .. } => folder,
        DeadLettersCommand::Send(flags) => &flags.folder,
    };
    match (cli::settings(&folder.settings()), command) {
        (Ok(settings), DeadLettersCommand::List(_)) => app::list_dead_letters(&settings),
        (Ok(settings), DeadLettersCommand::Send(flags)) => app::send_dead_letters(&settings, &target(flags.target)),
        (Ok(settings), DeadLettersCommand::Done { ids, .. }) => app::dead_letters_done(&settings, ids),
        (Err(problems), _) => cli::report(&problems),
    }
}

fn relabel(command: cli::RelabelCommand) -> ExitCode {
    let (what, flags) = match command {
        cli::RelabelCommand::Make(flags) => {
            let body = flags.body();
            (app::RelabelTask::Make { body, is_dry: flags.dry_run }, flags.target)
        }
        cli::RelabelCommand::List(flags) => (app::RelabelTask::List, flags),
        cli::RelabelCommand::Undo { id, target } => (app::RelabelTask::Undo(id), target),
        cli::RelabelCommand::Finalize { id, target } => (app::RelabelTask::Finalize(id), target),
    };
    app::relabel(&app::RelabelRequest { database: flags.db, service: target(flags.service), what })
}

fn sensors(command: cli::SensorsCommand) -> ExitCode {
    let is_csv = |format| format == cli::SensorsFormat::Csv;
    let (what, flags) = match command {
        cli::SensorsCommand::Import { file, format, dry_run, target } => {
            let ends = |file: &PathBuf| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            let is_csv = format.map_or_else(|| file.as_ref().is_some_and(ends), is_csv);
            (app::SensorsTask::Import { file, is_csv, is_dry: dry_run }, target)
        }
        cli::SensorsCommand::Export { format, target } => (app::SensorsTask::Export { is_csv: is_csv(format) }, target),
    };
    app::sensors(&app::SensorsRequest { database: flags.db, service: target(flags.service), what })
}

fn rejections(command: cli::RejectionsCommand) -> ExitCode {
    let (task, selection) = match command {
        cli::RejectionsCommand::List(selection) => (app::RejectionsTask::List, selection),
        cli::RejectionsCommand::Export(selection) => (app::RejectionsTask::Export, selection),
        cli::RejectionsCommand::Done { through, selection } => (app::RejectionsTask::Done(through), selection),
    };
    let cli::RejectedFlags { code, measurement, contains, from, target: flags } = selection;
    let selection = [("code", code), ("measurement", measurement), ("contains", contains), ("from", from)];
    let (database, service) = (flags.db, target(flags.service));
    app::rejections(&app::RejectionsRequest { database, selection, service, task })
}
