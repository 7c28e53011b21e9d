// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a server.

use super::{server::Server, server_files::ServerFiles};
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
    sync::OnceLock,
};

type PrepareCommand = Box<dyn Fn(&mut Command) + Send + Sync>;

/// Configuration of a server. The default listens on a Unix socket only, and may lose data if
/// the machine (not the server) crashes.
#[derive(Default)]
pub struct Setup {
    listen: Option<SocketAddr>,
    prepare: Option<PrepareCommand>,
    durable: bool,
    certificate: Option<(String, String)>,
}

impl Setup {
    /// Listens on a TCP port as well. Port 0 is a free one of this process's namespace.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Prepares the commands of its processes with `prepare`, which may move them into a network namespace.
    #[must_use]
    pub fn prepare_commands(
        mut self,
        prepare: impl Fn(&mut Command) + Send + Sync + 'static,
    ) -> Self {
        self.prepare = Some(Box::new(prepare));
        self
    }

    /// Enables `fsync`: committed data survive a power failure, too.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Enables TLS on its TCP port, with certificate and key in PEM.
    #[must_use]
    pub fn certificate(mut self, certificate: &str, key: &str) -> Self {
        self.certificate = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Starts the server, and returns when it accepts connections.
    ///
    /// # Panics
    /// If PostgreSQL is missing (run `scripts/setup`) or does not start.
    pub fn start(self) -> Server {
        let files = ServerFiles::new();
        let password = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
        files.initialise(password.trim());
        if let Some((certificate, key)) = &self.certificate {
            files.write("data/server.crt", certificate);
            files.write("data/server.key", key);
        }
        let listen = self.listen.map(with_port);
        let options = self.options(&files.directory, listen);
        let prepare = self.prepare.unwrap_or_else(|| Box::new(|_| {}));
        Server::start_at(files, listen, password.trim().to_owned(), options, prepare)
    }

    fn options(&self, directory: &Path, listen: Option<SocketAddr>) -> Vec<String> {
        let on = |yes: bool| if yes { "on" } else { "off" };
        let hosts = listen.map_or(String::new(), |address| address.ip().to_string());
        let port = listen.map_or(5432, |address| address.port());
        vec![
            format!("listen_addresses={hosts}"),
            format!("port={port}"),
            format!("unix_socket_directories={}", directory.display()),
            format!("fsync={}", on(self.durable)),
            format!("ssl={}", on(self.certificate.is_some())),
            "shared_buffers=32MB".to_owned(),
            "max_connections=100".to_owned(),
        ]
    }
}

impl Server {
    /// Starts a server for one test, with the default configuration.
    ///
    /// # Panics
    /// As [`Setup::start`].
    pub fn start() -> Self {
        Setup::default().start()
    }

    /// Returns the server that all tests of a process share; they must not stop it.
    ///
    /// # Panics
    /// As [`Setup::start`].
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }
}

fn with_port(address: SocketAddr) -> SocketAddr {
    if address.port() > 0 {
        return address;
    }
    TcpListener::bind(address).unwrap().local_addr().unwrap()
}
