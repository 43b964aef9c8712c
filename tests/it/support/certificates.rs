//! Certificates made by `openssl`: a signer, and servers and clients that it signed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::packages::{Package, require};

/// A signer with a folder for its certificates.
pub struct Certificates {
    openssl: PathBuf,
    folder: tempfile::TempDir,
}

impl Certificates {
    /// Creates a signer; `None` without `openssl`.
    #[track_caller]
    pub fn new() -> Option<Certificates> {
        Certificates::named("signer")
    }

    /// Creates a signer with another name than `signer`.
    #[track_caller]
    pub fn named(name: &str) -> Option<Certificates> {
        let name = name.replace(' ', "-");
        let openssl = require(Package::Openssl)?;
        let made = Certificates { openssl, folder: tempfile::tempdir().expect("a folder can be made") };
        made.run(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN={name}"
        ));
        Some(made)
    }

    /// Returns the path of `ca.pem`, `NAME.pem` or `NAME.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a pair `NAME.pem` and `NAME.key` for 127.0.0.1 and these other names.
    #[track_caller]
    pub fn sign(&self, name: &str, subject: &str, names: &str) {
        let extension = format!("subjectAltName=IP:127.0.0.1{names}\n");
        std::fs::write(self.file("extension"), extension).expect("a file can be written");
        self.run(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN={subject}"
        ));
        self.run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile extension"
        ));
    }

    /// As [`Certificates::sign`], but valid until this Unix second, and revocable.
    #[track_caller]
    pub fn sign_until(&self, name: &str, subject: &str, names: &str, end: i64) {
        self.sign(name, subject, names);
        let end = jiff::Timestamp::from_second(end).expect("a time").strftime("%y%m%d%H%M%SZ").to_string();
        self.authority(&format!("-notext -in {name}.csr -out {name}.pem -extfile extension -enddate {end}"));
    }

    /// Revokes a pair that [`Certificates::sign_until`] made.
    #[track_caller]
    pub fn revoke(&self, name: &str) {
        self.authority(&format!("-revoke {name}.pem"));
    }

    /// Writes the current revocation list to `crl.pem` atomically.
    #[track_caller]
    pub fn list_revoked(&self) -> PathBuf {
        self.authority("-gencrl -out fresh.crl");
        std::fs::rename(self.file("fresh.crl"), self.file("crl.pem")).expect("a file can be moved");
        self.file("crl.pem")
    }

    /// Returns the SHA-256 fingerprint as `openssl` shows it: 32 bytes with colons.
    #[track_caller]
    pub fn fingerprint(&self, name: &str) -> String {
        let mut command = Command::new(&self.openssl);
        command.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(self.file(&format!("{name}.pem")));
        let printed = String::from_utf8(command.output().expect("openssl can be run").stdout).expect("text");
        printed.trim().split_once('=').expect("NAME=FINGERPRINT").1.to_owned()
    }

    #[track_caller]
    fn authority(&self, arguments: &str) {
        let config = self.file("ca.cnf");
        if !config.exists() {
            let text = "[ca]\ndefault_ca = d\n[d]\ndatabase = index.txt\nrand_serial = yes\nnew_certs_dir = .\n\
                        certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\ndefault_days = 2\n\
                        default_crl_days = 2\ncrlnumber = crlnumber\nunique_subject = no\npolicy = p\n\
                        [p]\ncommonName = supplied\n";
            for (name, text) in [("index.txt", ""), ("crlnumber", "01\n"), ("ca.cnf", text)] {
                std::fs::write(self.file(name), text).expect("a file can be written");
            }
        }
        self.run(&format!("ca -batch -config ca.cnf {arguments}"));
    }

    /// Replaces the files of one pair with another's, as a renewal does.
    pub fn replace(&self, pair: &str, replacement: &str) {
        for end in ["pem", "key"] {
            let fresh = self.file(&format!("fresh.{end}"));
            std::fs::copy(self.file(&format!("{replacement}.{end}")), &fresh).expect("a file can be copied");
            std::fs::rename(fresh, self.file(&format!("{pair}.{end}"))).expect("a file can be moved");
        }
    }

    /// Returns the config section that serves with the pair `server`.
    pub fn config(&self, more: &str) -> String {
        let path = |name: &str| shown(&self.file(name));
        format!(
            "[tls]\nlisten = \"127.0.0.1:0\"\ncert_file = {}\nkey_file = {}\n{more}\n",
            path("server.pem"),
            path("server.key")
        )
    }

    /// Returns success and output of `openssl s_client` for an address.
    pub fn look(&self, address: std::net::SocketAddr, arguments: &str) -> (bool, String) {
        let mut command = Command::new(&self.openssl);
        command.args(["s_client", "-connect", &address.to_string()]).args(arguments.split_whitespace());
        let output = command.stdin(std::process::Stdio::null()).output().expect("openssl can be run");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    fn run(&self, arguments: &str) {
        let mut command = Command::new(&self.openssl);
        let output = command.args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl can be run");
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Formats a path as a TOML string.
pub fn shown(path: &Path) -> String {
    format!("{:?}", path.to_str().expect("a path is text"))
}
