// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to an endpoint through ssh, for a host that only ssh reaches: behind a jump host, or a firewall that lets
//! nothing else pass. Each connection has an ssh process of its own (`ssh -W`), so a lost segment stops one of them.

use super::ssh_process::{print_lines_except, ssh_command};
use anyhow::{Context as _, Result};
use longhaul_command::threads;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

/// Maximum number of ssh processes. Other programs of this machine can reach the listener, too.
const PROCESSES_MAX: usize = 64;

/// Messages of OpenSSH where the host refuses to forward, and where it wants a password.
const REFUSALS: [&str; 2] = ["stdio forwarding failed", "Permission denied"];

/// Listener on this machine. Its connections lead to a port of another host until it is dropped, and none of its ssh
/// processes outlives it.
#[derive(Debug)]
pub(super) struct SshTunnel {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl SshTunnel {
    /// Opens a tunnel to the address `to`, as `host` reaches it.
    /// `is_refused` becomes true if the host forwards no connection.
    pub(super) fn open(
        ssh: &[String],
        host: &str,
        to: SocketAddr,
        is_refused: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for ssh")?;
        let address = listener.local_addr()?;
        let is_closed = Arc::default();
        let acceptor = Acceptor {
            ssh: ssh.to_vec(),
            host: host.to_owned(),
            to,
            is_closed: Arc::clone(&is_closed),
            is_refused: Arc::clone(is_refused),
            processes: Vec::new(),
        };
        let acceptor = threads::spawn(move || acceptor.accept(&listener))?;
        Ok(Self {
            address,
            is_closed,
            acceptor: Some(acceptor),
        })
    }

    /// Address on this machine that leads to the other host.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for SshTunnel {
    fn drop(&mut self) {
        self.is_closed.store(true, Relaxed);
        // A connection ends the acceptor's wait for one. Without it, the wait for the acceptor could last.
        if TcpStream::connect(self.address).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

struct Acceptor {
    ssh: Vec<String>,
    host: String,
    to: SocketAddr,
    is_closed: Arc<AtomicBool>,
    is_refused: Arc<AtomicBool>,
    processes: Vec<Child>,
}

impl Acceptor {
    fn accept(mut self, listener: &TcpListener) {
        for connection in listener.incoming() {
            if self.is_closed.load(Relaxed) {
                return;
            }
            self.processes
                .retain_mut(|ssh| matches!(ssh.try_wait(), Ok(None)));
            // A connection that is not forwarded is closed: the endpoint opens another.
            if let Ok(connection) = connection
                && self.processes.len() < PROCESSES_MAX
                && let Ok(ssh) = self.forward(connection)
            {
                self.processes.push(ssh);
            }
        }
    }

    /// Starts the ssh process of a connection, which is its standard input and output.
    fn forward(&self, connection: TcpStream) -> io::Result<Child> {
        let input = OwnedFd::from(connection.try_clone()?);
        let mut ssh = ssh_command(&self.ssh);
        // Nobody would type a password for each stream.
        ssh.args(["-o", "BatchMode=yes", "-W", &self.to.to_string(), "--"]);
        ssh.arg(&self.host).stdin(input);
        let mut ssh = ssh
            .stdout(OwnedFd::from(connection))
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(lines) = ssh.stderr.take() {
            // Without its messages the copy still says that no stream can be opened.
            let is_refused = Arc::clone(&self.is_refused);
            let _ = print_lines_except(lines, move |line| {
                let refuses = REFUSALS.iter().any(|refusal| line.contains(refusal));
                is_refused.fetch_or(refuses, Relaxed);
                refuses
            });
        }
        Ok(ssh)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        for ssh in &mut self.processes {
            // It may have ended.
            let _ = ssh.kill();
            let _ = ssh.wait();
        }
    }
}
