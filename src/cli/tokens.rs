//! The flags of `token`.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{EXIT_USAGE, StoreFlags, with_store};
use crate::access::{IngestScope, NewToken, Pin, Quota, Scopes, Token, TokenChange, is_glob, parse_rate};
use crate::commands::{self, lifetime};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; it is not shown again. Databases are given as globs: `*` matches any characters,
    /// `?` matches one.
    Add(AddFlags),
    /// List all tokens and their rights. Secrets are not stored, so they cannot be shown.
    List(StoreFlags),
    /// Invalidate a token.
    Revoke {
        /// The name of the token.
        name: String,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Bind a token to client certificates: a client that presents one of them and sends no token acts as this token.
    /// The given certificates replace the earlier ones; without any, the token is bound to none.
    Bind {
        /// The name of the token.
        name: String,
        /// A client certificate, as for `token add`. You can repeat this flag.
        #[arg(long, value_name = "CERTIFICATE", value_parser = certificate)]
        certificate: Vec<String>,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Give a token a new secret and print it; it is not shown again.
    Rotate {
        /// The name of the token.
        name: String,
        /// Time for which the old secret stays valid, so that you can update the devices: 1h, 7d.
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        keep_old: Option<i64>,
        #[command(flatten)]
        store: StoreFlags,
    },
}

/// The flags of `token add`.
#[derive(Debug, Args)]
pub struct AddFlags {
    /// The name of the token: 1 to 64 letters, digits, and - _ . @ :
    #[arg(long, value_parser = token_name)]
    pub name: String,
    /// Databases that it may write to. You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub write: Vec<String>,
    /// Databases that it may read. You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub read: Vec<String>,
    /// Databases that it may create, drop, delete from, write to and read; `*` makes it an admin of the whole service.
    /// You can repeat this flag.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub admin: Vec<String>,
    /// Allow it to read /metrics, /api/v1/status and /api/v1/overview.
    #[arg(long)]
    pub metrics: bool,
    /// The only mapping that it may write through, for a webhook whose path has the token. It may do nothing else.
    #[arg(long, value_name = "MAPPING", value_parser = token_name, requires = "db", conflicts_with_all = ["write", "read", "admin", "metrics"])]
    pub ingest: Option<String>,
    /// The database of --ingest.
    #[arg(long, value_name = "NAME", value_parser = glob, requires = "ingest")]
    pub db: Option<String>,
    /// A tag and its value that every sensor it writes or reads must have. You can repeat this flag.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pin)]
    pub sensor_tag: Vec<Pin>,
    /// A client certificate that acts as this token: sha256:FINGERPRINT, as `openssl x509 -noout -fingerprint -sha256`
    /// prints it, or dns:NAME, a DNS name of the certificate. You can repeat this flag.
    #[arg(long, value_name = "CERTIFICATE", value_parser = certificate)]
    pub certificate: Vec<String>,
    /// Lifetime of the token: 12h, 90d.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    pub expires: Option<i64>,
    /// Maximum number of readings per second, averaged over a few seconds: 5000/s.
    #[arg(long, value_name = "RATE", value_parser = |text: &str| parse_rate(text, "s"))]
    pub rate: Option<u32>,
    /// Maximum number of new sensors per hour: 100/h.
    #[arg(long, value_name = "RATE", value_parser = |text: &str| parse_rate(text, "h"))]
    pub new_sensors: Option<u32>,
    /// Maximum number of sensors that it writes through one instance.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub sensors: Option<u32>,
    /// Maximum number of databases that it can write to, counted when it creates one [default: 50, or none for an admin
    /// of the whole service].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub databases: Option<u32>,
    #[command(flatten)]
    pub store: StoreFlags,
}

fn token_name(text: &str) -> Result<String, &'static str> {
    if Token::is_name(text) { Ok(text.to_owned()) } else { Err("expected 1 to 64 letters, digits, and - _ . @ :") }
}

fn certificate(text: &str) -> Result<String, &'static str> {
    let expected = "expected sha256: and 64 hexadecimal digits, or dns: and a DNS name without a wildcard";
    Token::certificate(text).ok_or(expected)
}

fn glob(text: &str) -> Result<String, &'static str> {
    if is_glob(text) { Ok(text.to_owned()) } else { Err("expected the name of a database or a glob such as climate_*") }
}

fn pin(text: &str) -> Result<Pin, &'static str> {
    let pin = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    let (key, value) = pin.ok_or("expected KEY=VALUE, for example site=lab")?;
    Ok(Pin { key: key.to_owned(), value: value.to_owned() })
}

impl AddFlags {
    /// Splits the flags into those of the store and the token to create.
    ///
    /// # Errors
    /// If the token has no rights, or could bypass its own tags.
    fn into_new_token(self) -> Result<(StoreFlags, NewToken), &'static str> {
        let Self { name, write, read, admin, metrics, sensor_tag: pins, .. } = self;
        let ingest = self.ingest.zip(self.db).map(|(mapping, database)| IngestScope { mapping, database });
        let scopes = Scopes { write, read, admin, metrics, pins, ingest };
        if scopes.is_empty() {
            return Err("the token has no rights: give --write, --read, --admin, --metrics or --ingest");
        }
        if !scopes.pins.is_empty() && !scopes.admin.is_empty() {
            return Err("--sensor-tag and --admin exclude each other: an admin can drop sensors without the tag");
        }
        let quota = Quota {
            readings_per_second: self.rate,
            new_sensors_per_hour: self.new_sensors,
            sensors: self.sensors,
            databases: self.databases,
        };
        Ok((self.store, NewToken { name, scopes, certificates: self.certificate, quota, expires_in: self.expires }))
    }
}

/// Runs a `token` command.
#[must_use]
pub fn tokens(command: TokenCommand) -> ExitCode {
    let (store, change) = match command {
        TokenCommand::List(store) => return with_store(store, commands::list_tokens),
        TokenCommand::Revoke { name, store } => (store, TokenChange::Revoke { name }),
        TokenCommand::Bind { name, certificate, store } => {
            (store, TokenChange::Bind { name, certificates: certificate })
        }
        TokenCommand::Rotate { name, keep_old, store } => {
            (store, TokenChange::Rotate { name, keep: keep_old.unwrap_or_default() })
        }
        TokenCommand::Add(flags) => match flags.into_new_token() {
            Ok((store, new)) => (store, TokenChange::Create(new)),
            Err(problem) => {
                eprintln!("hourglass: {problem}");
                return ExitCode::from(EXIT_USAGE);
            }
        },
    };
    with_store(store, async |settings| commands::tokens(settings, change).await)
}
