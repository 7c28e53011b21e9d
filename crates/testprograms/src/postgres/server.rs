// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running server, and the guard process that cleans up after a killed test.

use super::server_files::ServerFiles;
use crate::{
    process::{children, has_ended, kill, signal},
    wait::wait_until,
};
use rustix::process::Signal;
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Script of the guard process. The end of its standard input tells it that the test has ended, normally or not. Then
/// it ends the server and removes its files.
const GUARD: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
pid_file=$1/data/postmaster.pid
pid=$(sed -n 1p "$pid_file" 2>/dev/null)
if [ -n "$pid" ]; then
    memory=$(sed -n 7p "$pid_file")
    kill -CONT "$pid" 2>/dev/null && kill -QUIT "$pid" 2>/dev/null
    tries=500
    while [ $tries -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
        tries=$((tries - 1))
        sleep 0.02
    done
    ipcrm -m ${memory##* } 2>/dev/null
fi
rm -rf "$1"
"#;

/// Running server. Dropping it stops the server and removes its files.
pub struct Server {
    files: ServerFiles,
    listen: Option<SocketAddr>,
    password: String,
    options: Vec<String>,
    prepare: Box<dyn Fn(&mut Command) + Send + Sync>,
    postgres: Option<Child>,
    guard: Child,
    databases: AtomicU32,
}

impl Server {
    pub(crate) fn start_at(
        files: ServerFiles,
        listen: Option<SocketAddr>,
        password: String,
        options: Vec<String>,
        prepare: Box<dyn Fn(&mut Command) + Send + Sync>,
    ) -> Self {
        let mut server = Self {
            guard: start_guard(&files),
            files,
            listen,
            password,
            options,
            prepare,
            postgres: None,
            databases: AtomicU32::new(0),
        };
        server.restart();
        server
    }

    /// Creates a database and returns its URL, with the TCP address if the server has one.
    ///
    /// # Panics
    /// If the server returns an error.
    pub fn create_database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Relaxed));
        self.run_sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Returns the URL of a database, with the TCP address if the server has one.
    pub fn url(&self, database: &str) -> String {
        let Self { password, .. } = self;
        match self.listen {
            Some(address) => format!("postgresql://longhaul:{password}@{address}/{database}"),
            None => self.socket_url(database),
        }
    }

    /// Returns the URL of a database with the server's Unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let directory = self
            .files
            .directory
            .display()
            .to_string()
            .replace('/', "%2F");
        format!(
            "postgresql://longhaul@{directory}:{}/{database}",
            self.port()
        )
    }

    /// Runs SQL in a database, which is given by name (the last part of its URL). Returns the rows as lines, with `|`
    /// between fields.
    ///
    /// # Panics
    /// If the server returns an error.
    pub fn run_sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.files.command("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        let output = psql.arg(self.socket_url(database)).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {error}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// Kills the server and all its processes with SIGKILL.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn kill(&mut self) {
        let mut postgres = self.postgres.take().expect("the server runs");
        // A stopped main process starts no new processes.
        signal(postgres.id(), Signal::STOP);
        let children = children(postgres.id());
        children.iter().for_each(|child| kill(*child));
        postgres.kill().unwrap();
        postgres.wait().unwrap();
        wait_until(|| children.iter().all(|child| has_ended(*child)));
    }

    /// Stops all processes of the server (SIGSTOP). It replies to nothing, and its connections stay open.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    /// Continues the processes of the server after [`pause`](Self::pause).
    ///
    /// # Panics
    /// If the server does not run.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Starts the server again after [`kill`](Self::kill), with the data that is on disk.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&mut self) {
        assert!(self.postgres.is_none(), "the server runs");
        let log = File::create(self.files.directory.join("log")).unwrap();
        let mut command = self.files.command("postgres");
        command.arg("-D").arg(self.files.data());
        for option in &self.options {
            command.args(["-c", option]);
        }
        (self.prepare)(&mut command);
        command.stdout(Stdio::null()).stderr(log);
        let postgres = self.postgres.insert(command.spawn().unwrap());
        let directory = &self.files.directory;
        wait_until(|| {
            let ended = postgres.try_wait().unwrap();
            let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "postgres: {}", log());
            is_ready(directory, postgres.id())
        });
    }

    fn port(&self) -> u16 {
        self.listen.map_or(5432, |address| address.port())
    }

    fn signal_all(&self, number: Signal) {
        let main = self.postgres.as_ref().expect("the server runs").id();
        signal(main, number);
        for child in children(main) {
            signal(child, number);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut postgres) = self.postgres.take() {
            self.postgres = None;
            let main = postgres.id();
            for process in children(main).into_iter().chain([main]) {
                signal(process, Signal::CONT);
            }
            // SIGQUIT is PostgreSQL's immediate shutdown: it ends its processes and removes its shared memory.
            signal(main, Signal::QUIT);
            let _ = postgres.wait();
        }
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Starts the guard process.
fn start_guard(files: &ServerFiles) -> Child {
    let mut command = files.account.command(Path::new("sh"));
    command.args(["-c", GUARD, "guard"]).arg(&files.directory);
    command.stdin(Stdio::piped()).spawn().unwrap()
}

/// Returns whether the server is ready. The first line of postmaster.pid is its process ID, the eighth its state.
fn is_ready(directory: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
}
