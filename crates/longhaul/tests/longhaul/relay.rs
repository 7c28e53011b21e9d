// SPDX-License-Identifier: MIT OR Apache-2.0
//! A relay as a process, and what the smallest build does too: it relays.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, PipeReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

/// A relay that listens for SOCKS5.
pub(crate) struct Relay {
    child: Child,
    stderr: BufReader<PipeReader>,
    ready: String,
}

impl Relay {
    /// Starts a relay with these flags. `configure` may add to its environment; it gets the pipe of standard error.
    pub(crate) fn start(
        flags: &[&str],
        configure: impl FnOnce(&mut Command, &std::io::PipeWriter),
    ) -> Self {
        let (stderr, writer) = std::io::pipe().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        // Few connections: a low limit on descriptors would be a warning.
        command
            .args(["relay", "--socks5", "127.0.0.1:0", "--max-connections=64"])
            .args(flags);
        configure(&mut command, &writer);
        let child = command.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
        drop(command);
        let mut stderr = BufReader::new(stderr);
        let mut ready = String::new();
        stderr.read_line(&mut ready).unwrap();
        Self {
            child,
            stderr,
            ready,
        }
    }

    /// Asks the relay by SOCKS5 for a connection. Returns it, and the code of the reply.
    pub(crate) fn connect(&self, destination: SocketAddr) -> (TcpStream, u8) {
        let address = self.ready.split("listening socks5 ").nth(1).unwrap();
        let address = address
            .split(|c: char| c == '"' || c.is_whitespace())
            .next()
            .unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let SocketAddr::V4(destination) = destination else {
            panic!("{destination} is not an IPv4 address");
        };
        let mut request = b"\x05\x01\x00\x05\x01\x00\x01".to_vec();
        request.extend(destination.ip().octets());
        request.extend(destination.port().to_be_bytes());
        client.write_all(&request).unwrap();
        let mut reply = [0; 12];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..3], [5, 0, 5]);
        (client, reply[3])
    }

    /// Stops the relay and returns all lines of its log.
    pub(crate) fn stop(mut self) -> String {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut text = self.ready;
        self.stderr.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }
}

#[test]
fn carries_a_connection() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let relay = Relay::start(&[], |_, _| ());
    let (mut client, reply) = relay.connect(server.local_addr().unwrap());
    assert_eq!(reply, 0);
    let (mut accepted, _) = server.accept().unwrap();
    let mut received = [0; 4];
    client.write_all(b"ping").unwrap();
    accepted.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"ping");
    accepted.write_all(b"pong").unwrap();
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"pong");
    drop((client, accepted));
    relay.stop();
}
