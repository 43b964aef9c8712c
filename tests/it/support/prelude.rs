//! The names that nearly every test uses: starting servers, asking them, waiting for what is to come.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt::Write as _;
pub use std::io::{Read as _, Write as _};
pub use std::net::{SocketAddr, TcpListener, TcpStream};
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::{Duration, Instant};

pub use mongodb::bson::{Document, doc};
pub use serde_json::{Value, json};

pub use super::browser::Browser;
pub use super::halt::Halt;
pub use super::http::{self, Answer, encode, get, post, request};
pub use super::mongod::{Mongod, find, fresh_database_name, in_mongo, mongod, run_command, stores, write_document};
pub use super::packages::{Package, require};
pub use super::pages::Stored;
pub use super::process::{Folder, peak_bytes};
pub use super::ran::{Ran, digest, hourglass, path, ran, ran_with, verify};
pub use super::random::Random;
pub use super::raw::{PATIENCE, Raw};
pub use super::scale::scaled;
pub use super::series::{
    await_fed, describe, execute, flush, influxql, keep, metric, readings, sample, sensor_keys, windows, write,
    write_to,
};
pub use super::server::{Launch, Server, program};
pub use super::{StopAtEnd, block_on, eventually, now, poll, root, wait_until};
