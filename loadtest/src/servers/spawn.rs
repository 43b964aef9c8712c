//! Spawned programs and temporary folders. Both are cleaned up when their owner is dropped.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Maximum time for a program to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// A running program. Dropping it kills it.
pub struct Spawned {
    child: Child,
    name: String,
}

impl Spawned {
    /// Starts a program with its output in a file of the folder.
    pub fn start(command: &mut Command, folder: &Path) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let log = || File::options().create(true).append(true).open(folder.join("output.log"));
        let child = command.stdin(Stdio::null()).stdout(log()?).stderr(log()?).spawn();
        Ok(Self { child: child.with_context(|| format!("starting {name}"))?, name })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the program has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Sends SIGTERM, and waits until the program ends.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().context("asking a program to end")?;
        let deadline = Instant::now() + STOP_MAX;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("{} did not end within {STOP_MAX:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Sends SIGKILL, and waits until the program ends. Fails if it had ended before.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("killing {}", self.name))?;
        match self.child.wait()?.signal() {
            Some(SIGKILL) => Ok(()),
            _ => bail!("{} had ended by itself", self.name),
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // Ignore errors, because it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new folder. Dropping it removes it.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder inside `parent`.
    pub fn new(parent: &Path) -> Result<Self> {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let path = std::path::absolute(parent)?.join(format!("loadtest-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a subfolder, and creates it if missing.
    pub fn sub(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// Returns a loopback port that is currently free.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Awaits the work, or drops it at SIGINT or SIGTERM, which stops everything that it started.
pub async fn until_signal(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            bail!("interrupted")
        }
        _ = terminated.recv() => bail!("terminated"),
    }
}
