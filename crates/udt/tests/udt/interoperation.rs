// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interoperation with libudt 4.11 (Debian's libudt-dev). The peer is a program that is built here. A relay
//! between the two loses, duplicates and delays packets.

use crate::testbed::{bbr, byte, config, native};
use longhaul_testprograms::wait::wait_for_line;
use longhaul_udt::socket::{BoxedControlFactory, Socket, Stream};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    fs::File,
    io::{Read, Seek, Write},
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Time after which a test counts as hung.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Bytes sent in each transfer.
const BYTES: u64 = 2_000_000;

/// Builds the peer program; `None` if libudt is missing.
fn peer() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("libudt-peer");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/udt/libudt/peer.cpp");
        let mut compiler = Command::new("c++");
        compiler.args(["-O2", "-Wall", "-Werror", source, "-o"]);
        match compiler.arg(&to).args(["-ludt", "-lpthread"]).output() {
            Ok(output) if output.status.success() => Ok(to),
            failed => Err(format!("libudt ({failed:?})")),
        }
    });
    let missing = built.as_ref().err().map_or("", String::as_str);
    longhaul_testprograms::skip::require(built.is_ok(), missing).then(|| built.as_ref().ok())?
}

/// UDP relay between two ports, which loses, duplicates and delays packets.
struct LossyRelay {
    port: u16,
    stopped: Arc<AtomicBool>,
}

impl LossyRelay {
    /// Starts a relay between `to` and the first other address that sends to it.
    fn to(to: SocketAddr, seed: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let short = Some(Duration::from_millis(20));
        socket.set_read_timeout(short).unwrap();
        let port = socket.local_addr().unwrap().port();
        let stopped = Arc::new(AtomicBool::new(false));
        let until = stopped.clone();
        thread::spawn(move || relay_datagrams(&socket, to, seed, &until));
        Self { port, stopped }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }
}

impl Drop for LossyRelay {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
    }
}

fn relay_datagrams(socket: &UdpSocket, to: SocketAddr, seed: u64, stopped: &AtomicBool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut first, mut delayed) = (None, None);
    let mut datagram = [0; 2000];
    while !stopped.load(Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        let other = if from == to {
            first.unwrap_or(to)
        } else {
            first = Some(from);
            to
        };
        // libudt sends one shutdown only.
        let is_shutdown = datagram.starts_with(&[0x80, 5]);
        match random.random_range(0..100) {
            0 if !is_shutdown => continue,
            1 => drop(socket.send_to(&datagram[..length], other)),
            2 if delayed.is_none() && !is_shutdown => {
                delayed = Some((datagram[..length].to_vec(), other));
                continue;
            }
            _ => {}
        }
        drop(socket.send_to(&datagram[..length], other));
        if random.random_range(0..4) == 0
            && let Some((datagram, other)) = delayed.take()
        {
            drop(socket.send_to(&datagram, other));
        }
    }
}

/// Starts the libudt peer, which prints a line to standard error when it is ready for a connection.
fn start(task: &str, kind: &str, mode: &str, ports: [u16; 2]) -> Option<Child> {
    let mut command = peer_command([task, kind, mode], ports)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(spawn_ready(command))
}

fn peer_command(words: [&str; 3], ports: [u16; 2]) -> Option<Command> {
    let mut command = Command::new("timeout");
    command.arg("90").arg(peer()?).args(words);
    let [own, other] = ports.map(|port| port.to_string());
    command.args([&own, "127.0.0.1", &other]);
    Some(command)
}

fn spawn_ready(mut command: Command) -> Child {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_line(child.stderr.take().unwrap(), "ready\n");
    child
}

fn bind() -> Socket {
    bind_with(Box::new(native))
}

fn bind_with(control: BoxedControlFactory) -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap(), config(), control).unwrap()
}

/// Returns both congestion controls.
fn controls() -> [BoxedControlFactory; 2] {
    [Box::new(bbr), Box::new(native)]
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

fn stream() -> Vec<u8> {
    (0..BYTES).map(byte).collect()
}

async fn we_send(mut to: Stream) {
    to.write_all(&stream()).await.unwrap();
    to.shutdown().await.unwrap();
}

async fn we_receive(mut from: Stream) {
    let mut all = Vec::new();
    from.read_to_end(&mut all).await.unwrap();
    assert!(all == stream(), "{} bytes arrived", all.len());
}

/// Checks the bytes that libudt received.
fn they_received(mut child: Child) {
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert!(all == stream(), "{} bytes arrived", all.len());
    assert!(child.wait().unwrap().success());
}

/// Writes the bytes that libudt sends, in another thread.
fn they_send(child: &mut Child) {
    let mut to = child.stdin.take().unwrap();
    thread::spawn(move || to.write_all(&stream()).unwrap());
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let within = async { tokio::time::timeout(TIMEOUT, test).await.unwrap() };
    runtime.unwrap().block_on(within);
}

#[test]
fn libudt_receives_what_we_send_to_its_listener() {
    for control in controls() {
        let port = free_port();
        let Some(child) = start("receive", "stream", "listen", [port, 0]) else {
            return;
        };
        let relay = LossyRelay::to(([127, 0, 0, 1], port).into(), 1);
        run(async {
            let ours = bind_with(control).connect(relay.address()).await;
            we_send(ours.unwrap()).await;
        });
        they_received(child);
    }
}

/// Parameters of libudt's reads or writes: kind, bytes per call, microseconds relay two calls, and total bytes. Its
/// receive buffer holds 12 MB.
type Calls = (&'static str, usize, u32, usize);

const CALLS: [Calls; 5] = [
    ("stream", 1 << 20, 0, 20_000_000),
    ("stream", 16 << 20, 0, 20_000_000),
    ("stream", 1000, 0, 2_000_000),
    ("stream", 100_000, 10_000, 20_000_000),
    ("file", 20_000_000, 0, 20_000_000),
];

fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(byte).collect()
}

/// Creates a file for one of libudt's standard streams.
fn file(name: &str) -> File {
    let at = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    options.open(at).unwrap()
}

fn contents(mut file: File) -> Vec<u8> {
    let mut all = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn libudt_receives_whole_files_over_loopback_however_it_reads() {
    for (kind, call, pause, length) in CALLS {
        for (name, control) in ["bbr", "native"].into_iter().zip(controls()) {
            let port = free_port();
            let words = ["receive", kind, "listen"];
            let Some(mut command) = peer_command(words, [port, 0]) else {
                return;
            };
            let to = file("libudt-received");
            command.args([call.to_string(), pause.to_string()]);
            command.stdout(to.try_clone().unwrap());
            let mut child = spawn_ready(command);
            run(async {
                let at = ([127, 0, 0, 1], port).into();
                let mut ours = bind_with(control).connect(at).await.unwrap();
                ours.write_all(&bytes(length)).await.unwrap();
                // A receiver that knows the file's length closes after that many bytes.
                assert!(ours.shutdown().await.is_ok() || kind == "file");
            });
            assert!(child.wait().unwrap().success(), "{kind} {name}");
            assert!(contents(to) == bytes(length), "{kind} {call} {name}");
        }
    }
}

#[test]
fn we_receive_whole_files_over_loopback_however_libudt_writes() {
    for (kind, call, pause, length) in CALLS {
        run(async {
            let listener = bind();
            listener.listen();
            let ports = [free_port(), listener.local_addr().port()];
            let Some(mut command) = peer_command(["send", kind, "connect"], ports) else {
                return;
            };
            let mut from = file("libudt-sent");
            from.write_all(&bytes(length)).unwrap();
            from.rewind().unwrap();
            command.args([call.to_string(), pause.to_string()]);
            let mut child = spawn_ready({
                command.stdin(from);
                command
            });
            let mut all = Vec::new();
            let mut ours = listener.accept().await.unwrap();
            ours.read_to_end(&mut all).await.unwrap();
            assert!(all == bytes(length), "{kind} {call}: {} bytes", all.len());
            assert!(child.wait().unwrap().success());
        });
    }
}

/// The replies of libudt to requests on an open connection are the only sign of which packets pass.
#[test]
fn libudt_answers_path_mtu_probes() {
    let port = free_port();
    let Some(child) = start("receive", "stream", "listen", [port, 0]) else {
        return;
    };
    run(async {
        let at = ([127, 0, 0, 1], port).into();
        let mut to = bind().connect(at).await.unwrap();
        to.write_all(&stream()).await.unwrap();
        to.flush().await.unwrap();
        assert_eq!(to.packet_len(), Some(1500));
        to.shutdown().await.unwrap();
    });
    they_received(child);
}

#[test]
fn we_receive_what_libudt_sends_to_our_listener() {
    run(async {
        let listener = bind();
        listener.listen();
        let relay = LossyRelay::to(listener.local_addr(), 3);
        let started = start("send", "stream", "connect", [free_port(), relay.port]);
        let Some(mut child) = started else { return };
        they_send(&mut child);
        we_receive(listener.accept().await.unwrap()).await;
        assert!(child.wait().unwrap().success());
    });
}

/// Only byte streams are supported.
#[test]
fn refuses_message_mode_connections() {
    let listener = bind();
    listener.listen();
    let ports = [free_port(), listener.local_addr().port()];
    let Some(mut connecting) = peer_command(["send", "message", "connect"], ports) else {
        return;
    };
    let stderr = String::from_utf8(connecting.output().unwrap().stderr).unwrap();
    assert!(stderr.contains("connection rejected"), "{stderr}");
}

#[test]
fn we_receive_what_libudt_s_listener_sends() {
    let port = free_port();
    let Some(mut child) = start("send", "stream", "listen", [port, 0]) else {
        return;
    };
    they_send(&mut child);
    let relay = LossyRelay::to(([127, 0, 0, 1], port).into(), 5);
    run(async { we_receive(bind().connect(relay.address()).await.unwrap()).await });
    assert!(child.wait().unwrap().success());
}

#[test]
fn rendezvous_with_libudt() {
    run(async {
        let ours = bind();
        let port = free_port();
        let ports = [port, ours.local_addr().port()];
        let Some(mut child) = start("send", "stream", "rendezvous", ports) else {
            return;
        };
        they_send(&mut child);
        let theirs = ([127, 0, 0, 1], port).into();
        we_receive(ours.rendezvous(theirs).await.unwrap()).await;
        assert!(child.wait().unwrap().success());
    });
}
