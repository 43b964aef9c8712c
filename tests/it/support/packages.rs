//! Optional programs and Python packages. Tests without theirs report it; with HOURGLASS_TEST_REQUIRE=all they fail.

use std::io::Write;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// PyPI `influxdb-client` 1.50, the client of the v2 API.
    InfluxdbClient,
    /// PyPI `influxdb` 5.3, the client of the v1 API.
    Influxdb,
    /// PyPI `opentelemetry-exporter-otlp-proto-http` 1.45, with the SDK.
    OtlpExporter,
    /// PyPI `openapi-python-client` 0.29, which makes a client of `/openapi.json`.
    OpenapiPythonClient,
    /// PyPI `zstandard` 0.25, for the decoder of sealed days.
    Zstandard,
    /// PyPI `PyYAML` 6, for the page's snippets.
    PyYaml,
    /// `g++` of the Debian package g++, for the sketches.
    Gxx,
    /// The `influx` shell 1.x of the Debian package influxdb-client.
    InfluxShell,
    /// `promtool` of the Debian package prometheus.
    Promtool,
    /// `curl` of the Debian package curl, for commands of the documents and the banner.
    Curl,
    /// `openssl` of the Debian package openssl, for certificates.
    Openssl,
    /// `mongosh` 2 of the npm package mongosh, MongoDB's shell.
    Mongosh,
    /// `chromium` of the Debian package chromium.
    Chromium,
    /// `chromedriver` of the Debian package chromium-driver.
    Chromedriver,
    /// `node` of the Debian package nodejs, for the page's modules.
    Node,
    /// `axe.min.js` of the npm package axe-core.
    AxeCore,
    /// The folder of the npm package uplot.
    Uplot,
    /// `age` of the Debian package age, for archives of backups.
    Age,
    /// `restic` of the Debian package restic.
    Restic,
    /// `rclone` of the Debian package rclone.
    Rclone,
    /// `mosquitto` 2 of the Debian package mosquitto, an MQTT broker.
    Mosquitto,
    /// `mosquitto_pub` 2 of the Debian package mosquitto-clients.
    MosquittoPub,
}

/// Returns the program, or for PyPI the Python that has the package; `None` after a line on stderr. Panics if required.
#[track_caller]
pub fn require(package: Package) -> Option<PathBuf> {
    let why = match package.find() {
        Ok(program) => return Some(program),
        Err(why) => why,
    };
    not_run(&format!("needs {} ({why})", package.name()));
    None
}

/// Reports on stderr that a test or a part of it is not run. Panics with HOURGLASS_TEST_REQUIRE=all.
#[track_caller]
pub fn not_run(needs: &str) {
    match std::env::var("HOURGLASS_TEST_REQUIRE").as_deref() {
        Ok("all") => panic!("{needs}, and HOURGLASS_TEST_REQUIRE=all"),
        Ok(other) if !other.is_empty() => panic!("HOURGLASS_TEST_REQUIRE is {other:?}, which is not `all`"),
        _ => {}
    }
    // Not eprintln!, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "NOT RUN: {}: {needs}", test_name(Location::caller()));
}

/// Finds a program by path, or by name on PATH.
pub fn on_path(program: &Path) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.components().count() > 1 {
        // Absolute, because children run in other folders.
        return std::path::absolute(program).ok().filter(|path| is_program(path));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| is_program(path))
}

impl Package {
    fn name(self) -> &'static str {
        match self {
            Package::InfluxdbClient => "the PyPI package influxdb-client 1.50",
            Package::Influxdb => "the PyPI package influxdb 5.3",
            Package::OtlpExporter => "the PyPI package opentelemetry-exporter-otlp-proto-http 1.45",
            Package::OpenapiPythonClient => "the PyPI package openapi-python-client 0.29",
            Package::Zstandard => "the PyPI package zstandard 0.25",
            Package::PyYaml => "the PyPI package PyYAML 6",
            Package::Gxx => "`g++` of the Debian package g++",
            Package::InfluxShell => "`influx` of the Debian package influxdb-client",
            Package::Promtool => "`promtool` of the Debian package prometheus",
            Package::Curl => "`curl` of the Debian package curl",
            Package::Openssl => "`openssl` of the Debian package openssl",
            Package::Mongosh => "`mongosh` of the npm package mongosh",
            Package::Chromium => "`chromium` of the Debian package chromium",
            Package::Chromedriver => "`chromedriver` of the Debian package chromium-driver",
            Package::Node => "`node` of the Debian package nodejs",
            Package::AxeCore => "the npm package axe-core 4.14.1",
            Package::Uplot => "the npm package uplot 1.6.32",
            Package::Age => "`age` of the Debian package age",
            Package::Restic => "`restic` of the Debian package restic",
            Package::Rclone => "`rclone` of the Debian package rclone",
            Package::Mosquitto => "`mosquitto` of the Debian package mosquitto",
            Package::MosquittoPub => "`mosquitto_pub` of the Debian package mosquitto-clients",
        }
    }

    fn find(self) -> Result<PathBuf, String> {
        match self {
            Package::InfluxdbClient => python_with("influxdb-client", "1.50."),
            Package::Influxdb => python_with("influxdb", "5.3."),
            Package::OtlpExporter => python_with("opentelemetry-exporter-otlp-proto-http", "1.45."),
            Package::OpenapiPythonClient => python_with("openapi-python-client", "0.29."),
            Package::Zstandard => python_with("zstandard", "0.25."),
            Package::PyYaml => python_with("PyYAML", "6."),
            Package::Gxx => tool("g++", "--version", "g++"),
            // Later shells of the same name speak another language.
            Package::InfluxShell => tool("influx", "-version", "shell version: 1."),
            Package::Promtool => tool("promtool", "--version", "promtool, version"),
            Package::Curl => tool("curl", "--version", "curl "),
            Package::Openssl => tool("openssl", "version", "OpenSSL"),
            Package::Mongosh => tool("mongosh", "--version", "2."),
            Package::Chromium => tool("chromium", "--version", "Chromium"),
            Package::Chromedriver => tool("chromedriver", "--version", "ChromeDriver"),
            Package::Node => tool("node", "--version", "v"),
            Package::AxeCore => npm("axe-core", "4.14.1").map(|folder| folder.join("axe.min.js")),
            Package::Uplot => npm("uplot", "1.6.32"),
            Package::Age => tool("age", "--version", "1."),
            Package::Restic => tool("restic", "version", "restic 0."),
            Package::Rclone => tool("rclone", "version", "rclone v"),
            // In a folder for services, which is not on every PATH.
            Package::Mosquitto => program("mosquitto").or_else(|_| program("/usr/sbin/mosquitto")),
            Package::MosquittoPub => program("mosquitto_pub"),
        }
    }
}

fn python_with(distribution: &str, version: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os("HOURGLASS_TEST_PYTHON").filter(|named| !named.is_empty());
    let named = named.map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let python = on_path(&named).ok_or_else(|| format!("there is no {}", named.display()))?;
    let script = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))";
    let printed = output(Command::new(&python).args(["-c", script, distribution]));
    match printed.map(|printed| printed.trim().to_owned()) {
        Some(found) if found.starts_with(version) => Ok(python),
        Some(found) => Err(format!("{} has version {found}", python.display())),
        None => Err(format!("{} does not have it; HOURGLASS_TEST_PYTHON can name another one", python.display())),
    }
}

/// Returns the folder of an npm package.
fn npm(name: &str, version: &str) -> Result<PathBuf, String> {
    let modules = std::env::var_os("HOURGLASS_TEST_NODE_MODULES").filter(|named| !named.is_empty()).map(PathBuf::from);
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci-node/node_modules");
    let folder = modules.unwrap_or_else(default).join(name);
    let package =
        std::fs::read_to_string(folder.join("package.json")).map_err(|_| format!("no {}", folder.display()))?;
    let package: serde_json::Value = serde_json::from_str(&package).map_err(|error| error.to_string())?;
    if package["version"] == version {
        Ok(folder)
    } else {
        Err(format!("{} has version {}", folder.display(), package["version"]))
    }
}

fn program(name: &str) -> Result<PathBuf, String> {
    on_path(Path::new(name)).ok_or_else(|| "it is not on PATH".to_owned())
}

fn tool(name: &str, argument: &str, sign: &str) -> Result<PathBuf, String> {
    let program = program(name)?;
    match output(Command::new(&program).arg(argument)) {
        Some(printed) if printed.contains(sign) => Ok(program),
        _ => Err(format!("{} {argument} does not say `{sign}`", program.display())),
    }
}

/// Returns the output of a successful command, on either stream.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns the name of the test's thread, or with `--test-threads=1` the caller's location.
fn test_name(caller: &Location<'_>) -> String {
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", caller.file(), caller.line()),
    }
}
