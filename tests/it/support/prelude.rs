//! The names that nearly every test uses: starting servers, asking them, waiting for what is to come.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::path::{Path, PathBuf};
pub use std::process::Command;
pub use std::time::{Duration, Instant};

pub use serde_json::json;

pub use super::browser::Browser;
pub use super::http::{self, Answer, get, post, request};
pub use super::mongod::{Mongod, fresh_database_name, mongod};
pub use super::packages::{Package, require};
pub use super::pages::Stored;
pub use super::process::Folder;
pub use super::random::Random;
pub use super::raw::{PATIENCE, Raw};
pub use super::scale::scaled;
pub use super::series::{await_fed, flush, metric, readings, windows};
pub use super::server::{Launch, Server, program};
pub use super::{eventually, poll};
