// SPDX-License-Identifier: MIT OR Apache-2.0
//! Against libudt 4.11 (Debian's libudt-dev): a program of ours, built here, is the other end, and between the two are losses,
//! packets that come twice, and some that come late.

use crate::testbed::{bbr, byte, config, native};
use longhaul_udt::socket::{BoxedControlFactory, Socket, Stream};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, Write},
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

/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(100);

/// What goes one way.
const BYTES: u64 = 2_000_000;

/// The program, or nothing if libudt is not here.
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
    longhaul_testbed::skip::unless(built.is_ok(), missing).then(|| built.as_ref().ok())?
}

/// A path of UDP between two ports, on which losses, doubles and late packets are.
struct Between {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Between {
    /// Who writes to it first is the one end, `to` the other.
    fn to(to: SocketAddr, seed: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let short = Some(Duration::from_millis(20));
        socket.set_read_timeout(short).unwrap();
        let port = socket.local_addr().unwrap().port();
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        thread::spawn(move || pass(&socket, to, seed, &until));
        Self { port, over }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

fn pass(socket: &UdpSocket, to: SocketAddr, seed: u64, over: &AtomicBool) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut first, mut late) = (None, None);
    let mut datagram = [0; 2000];
    while !over.load(Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        let other = match from == to {
            true => first.unwrap_or(to),
            false => {
                first = Some(from);
                to
            }
        };
        // libudt says once that a connection is over.
        let is_over = datagram.starts_with(&[0x80, 5]);
        match random.random_range(0..100) {
            0 if !is_over => continue,
            1 => drop(socket.send_to(&datagram[..length], other)),
            2 if late.is_none() && !is_over => {
                late = Some((datagram[..length].to_vec(), other));
                continue;
            }
            _ => {}
        }
        drop(socket.send_to(&datagram[..length], other));
        if random.random_range(0..4) == 0
            && let Some((datagram, other)) = late.take()
        {
            drop(socket.send_to(&datagram, other));
        }
    }
}

/// libudt's end. It says on standard error when it may be connected to.
fn start(task: &str, kind: &str, how: &str, ports: [u16; 2]) -> Option<Child> {
    let mut command = theirs([task, kind, how], ports)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(started(command))
}

fn theirs(words: [&str; 3], ports: [u16; 2]) -> Option<Command> {
    let mut command = Command::new("timeout");
    command.arg("90").arg(peer()?).args(words);
    let [own, other] = ports.map(|port| port.to_string());
    command.args([&own, "127.0.0.1", &other]);
    Some(command)
}

fn started(mut command: Command) -> Child {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn bind() -> Socket {
    controlled(Box::new(native))
}

fn controlled(control: BoxedControlFactory) -> Socket {
    Socket::bind("127.0.0.1:0".parse().unwrap(), config(), control).unwrap()
}

/// Both rate controls.
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
    assert!(all == stream(), "{} bytes came", all.len());
}

/// What libudt received.
fn they_received(mut child: Child) {
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert!(all == stream(), "{} bytes came", all.len());
    assert!(child.wait().unwrap().success());
}

/// What libudt sends, from a thread of its own.
fn they_send(child: &mut Child) {
    let mut to = child.stdin.take().unwrap();
    thread::spawn(move || to.write_all(&stream()).unwrap());
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let within = async { tokio::time::timeout(PATIENCE, test).await.unwrap() };
    runtime.unwrap().block_on(within);
}

#[test]
fn libudt_receives_what_we_send_to_its_listener() {
    for control in controls() {
        let port = free_port();
        let Some(child) = start("receive", "stream", "listen", [port, 0]) else {
            return;
        };
        let between = Between::to(([127, 0, 0, 1], port).into(), 1);
        run(async {
            let ours = controlled(control).connect(between.address()).await;
            we_send(ours.unwrap()).await;
        });
        they_received(child);
    }
}

/// How libudt reads or writes a stream: kind, bytes of a call, microseconds between two, and bytes in all. Its receive buffer holds
/// 12 MB.
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

/// A file for one of libudt's standard streams.
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
            let Some(mut command) = theirs(words, [port, 0]) else {
                return;
            };
            let to = file("libudt-received");
            command.args([call.to_string(), pause.to_string()]);
            command.stdout(to.try_clone().unwrap());
            let mut child = started(command);
            run(async {
                let at = ([127, 0, 0, 1], port).into();
                let mut ours = controlled(control).connect(at).await.unwrap();
                ours.write_all(&bytes(length)).await.unwrap();
                // Who receives a file by its length closes when it has that.
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
            let Some(mut command) = theirs(["send", kind, "connect"], ports) else {
                return;
            };
            let mut from = file("libudt-sent");
            from.write_all(&bytes(length)).unwrap();
            from.rewind().unwrap();
            command.args([call.to_string(), pause.to_string()]);
            let mut child = started({
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

/// Its answer to a request of an open connection is all that says which packets pass.
#[test]
fn libudt_answers_what_probes_the_path() {
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
        let between = Between::to(listener.local_addr(), 3);
        let started = start("send", "stream", "connect", [free_port(), between.port]);
        let Some(mut child) = started else { return };
        they_send(&mut child);
        we_receive(listener.accept().await.unwrap()).await;
        assert!(child.wait().unwrap().success());
    });
}

/// A stream is all that there is here.
#[test]
fn libudt_is_refused_a_connection_for_messages() {
    let listener = bind();
    listener.listen();
    let ports = [free_port(), listener.local_addr().port()];
    let Some(mut asks) = theirs(["send", "message", "connect"], ports) else {
        return;
    };
    let said = String::from_utf8(asks.output().unwrap().stderr).unwrap();
    assert!(said.contains("connection rejected"), "{said}");
}

#[test]
fn we_receive_what_libudt_s_listener_sends() {
    let port = free_port();
    let Some(mut child) = start("send", "stream", "listen", [port, 0]) else {
        return;
    };
    they_send(&mut child);
    let between = Between::to(([127, 0, 0, 1], port).into(), 5);
    run(async { we_receive(bind().connect(between.address()).await.unwrap()).await });
    assert!(child.wait().unwrap().success());
}

#[test]
fn both_meet_though_neither_listens() {
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
