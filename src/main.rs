//! The `hourglass` command: dispatches each subcommand to the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hourglass::cli::{Arguments, BackupFlags, Command, ConfigCommand, CopyFlags, DeadLettersCommand};
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
                    let CopyFlags { from, token, token_file, switch: switches, every, .. } = flags;
                    let every = Duration::from_secs(every.unsigned_abs());
                    app::follow(&settings, &app::FollowRequest { from, token, token_file, switches, every })
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
                let (to, token, token_file, runs) = (flags.to, flags.token, flags.token_file, flags.run);
                app::compact(&settings, app::CompactRequest { to, token, token_file, runs })
            }
            Err(problems) => cli::report(&problems),
        },
        Command::Undo(flags) => app::undo(flags.id.as_deref(), &flags.to, flags.token, flags.token_file.as_deref()),
        Command::Explain(flags) => app::explain(&app::ExplainRequest {
            file: flags.file,
            database: flags.db,
            policy: flags.rp,
            precision: flags.precision,
            as_json: flags.json,
            to: flags.to,
            token: flags.token,
            token_file: flags.token_file,
        }),
        Command::Sensors { command } => sensors(command),
        Command::Migrate(flags) => app::migrate(&flags.to, flags.token, flags.token_file.as_deref()),
        Command::Seal(flags) => app::seal(&flags.to, flags.token, flags.token_file.as_deref()),
        Command::DeadLetters { command } => dead_letters(&command),
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

fn backup(flags: BackupFlags) -> ExitCode {
    let settings = match cli::settings(&flags.store.settings()) {
        Ok(settings) => settings,
        Err(problems) => return cli::report(&problems),
    };
    let request = app::BackupRequest {
        folder: flags.folder,
        from: (!flags.stopped).then_some(flags.from),
        token: flags.token,
        token_file: flags.token_file,
        config: flags.store.config,
        patience: Duration::from_secs(flags.patience.unsigned_abs()),
        prove: flags.prove,
    };
    app::backup(&settings, &request)
}

fn dead_letters(command: &DeadLettersCommand) -> ExitCode {
    let folder = match command {
        DeadLettersCommand::List(folder) => folder,
        DeadLettersCommand::Send(flags) => &flags.folder,
    };
    match (cli::settings(&folder.settings()), command) {
        (Ok(settings), DeadLettersCommand::List(_)) => app::list_dead_letters(&settings),
        (Ok(settings), DeadLettersCommand::Send(flags)) => {
            app::send_dead_letters(&settings, &flags.to, flags.token.clone(), flags.token_file.as_deref())
        }
        (Err(problems), _) => cli::report(&problems),
    }
}

fn sensors(command: cli::SensorsCommand) -> ExitCode {
    let (what, target) = match command {
        cli::SensorsCommand::Import { file, dry_run, target } => {
            (app::SensorsTask::Import { file, is_dry: dry_run }, target)
        }
        cli::SensorsCommand::Export(target) => (app::SensorsTask::Export, target),
    };
    let cli::TargetFlags { db: database, to, token, token_file } = target;
    app::sensors(&app::SensorsRequest { database, to, token, token_file, what })
}
