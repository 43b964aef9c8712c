//! Names that nearly every test uses.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt::Write as _;
pub use std::fs::{self, File};
pub use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
pub use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
pub use std::ops::Range;
pub use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
pub use std::os::unix::process::ExitStatusExt as _;
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Output, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex, OnceLock};
pub use std::thread::JoinHandle;
pub use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use mongodb::bson::{Bson, Document, doc};
pub use serde_json::{Value, json};

pub use super::broker::Broker;
pub use super::browser::Browser;
pub use super::certificates::{Certificates, shown};
pub use super::exact::Exact;
pub use super::halt::Halt;
pub use super::http::{self, Answer, encode, get, post, request};
pub use super::influxd::Influxd;
pub use super::jobs::{ask_job, job, progress, run_job, run_url, seal};
pub use super::mongod::{Mongod, find, fresh_database_name, in_mongo, mongod, run_command, stores, write_document};
pub use super::packages::{Package, not_run, on_path, require};
pub use super::pages::{Kind, Sensor, Stored, millis};
pub use super::process::{Folder, Process, file_bytes, forget_peak, last_lines, peak_bytes, resident_bytes};
pub use super::programs::{CommandOutput, digest, hourglass, path, run_program, run_with_input, verify};
pub use super::proxy::{Fault, Proxy};
pub use super::random::Random;
pub use super::raw::{PATIENCE, Raw};
pub use super::replica_set::{Front, ReplicaSet};
pub use super::scale::{scaled, seed};
pub use super::series::{
    ReadingTexts, Window, await_dispatched, describe, execute, flush, influxql, metric, readings, readings_for, sample,
    sensor_keys, windows, write, write_flushed, write_to,
};
pub use super::server::{Launch, Server, program};
pub use super::{
    DAY, HOUR, MINUTE, SECOND, START, StopOnDrop, TIMEOUT, block_on, eventually, now, pause_client, poll, root, shared,
    wait_until,
};
