// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server is to be like.

use super::{account::Account, programs, server::Server};
use std::{
    fs::{self, OpenOptions, Permissions},
    io::Write,
    net::{SocketAddr, TcpListener},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

type Within = Box<dyn Fn(&mut Command) + Send + Sync>;

/// What a server is to be like. The default listens on a Unix socket only, and forgets what it was told if
/// the machine (not the server) dies.
#[derive(Default)]
pub struct Setup {
    listen: Option<SocketAddr>,
    within: Option<Within>,
    durable: bool,
    certificate: Option<(String, String)>,
}

impl Setup {
    /// On a TCP port as well. Port 0 is a free one of this process's namespace.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Its processes are made by commands that went through `prepare`, which may put them into a network namespace.
    #[must_use]
    pub fn within(mut self, prepare: impl Fn(&mut Command) + Send + Sync + 'static) -> Self {
        self.within = Some(Box::new(prepare));
        self
    }

    /// With `fsync`: what it acknowledged survives a power failure, too.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// With TLS on its TCP port: certificate and key, PEM.
    #[must_use]
    pub fn certificate(mut self, certificate: &str, key: &str) -> Self {
        self.certificate = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Starts it, and returns when it answers.
    ///
    /// # Panics
    /// If PostgreSQL is missing (run `scripts/setup`) or does not start.
    pub fn start(self) -> Server {
        let place = Place::new();
        let password = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        place.initialise(password.trim());
        if let Some((certificate, key)) = &self.certificate {
            place.write("data/server.crt", certificate);
            place.write("data/server.key", key);
        }
        let listen = self.listen.map(with_port);
        let options = self.options(&place.folder, listen);
        let within = self.within.unwrap_or_else(|| Box::new(|_| {}));
        Server::start_at(place, listen, password.trim().to_owned(), options, within)
    }

    fn options(&self, folder: &Path, listen: Option<SocketAddr>) -> Vec<String> {
        let on = |yes: bool| if yes { "on" } else { "off" };
        let hosts = listen.map_or(String::new(), |address| address.ip().to_string());
        let port = listen.map_or(5432, |address| address.port());
        vec![
            format!("listen_addresses={hosts}"),
            format!("port={port}"),
            format!("unix_socket_directories={}", folder.display()),
            format!("fsync={}", on(self.durable)),
            format!("ssl={}", on(self.certificate.is_some())),
            "shared_buffers=32MB".to_owned(),
            "max_connections=100".to_owned(),
        ]
    }
}

fn with_port(address: SocketAddr) -> SocketAddr {
    if address.port() > 0 {
        return address;
    }
    TcpListener::bind(address).unwrap().local_addr().unwrap()
}

/// A server's directory, and the account that it belongs to.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) account: Account,
    pub(crate) programs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let programs = programs::folder();
        let account = Account::choose();
        let folder = tempfile::Builder::new().prefix("longhaul-pg-").tempdir();
        // Its guard removes it.
        let folder = folder.unwrap().keep();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        account.give(&folder);
        Self {
            folder,
            account,
            programs,
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(&self.programs.join(program));
        command
            .current_dir(&self.folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    fn initialise(&self, password: &str) {
        self.write("password", password);
        let mut command = self.command("initdb");
        command.args([
            "-U",
            "longhaul",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
        ]);
        command.args([
            "--pwfile=password",
            "--no-sync",
            "--no-locale",
            "-E",
            "UTF8",
            "-D",
        ]);
        let made = command.arg(self.data()).output().unwrap();
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("pg_hba.conf"))
            .and_then(|mut file| file.write_all(b"host all all all scram-sha-256\n"))
            .unwrap();
    }

    /// A file that only the server may read.
    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
        self.account.give(&path);
    }
}
