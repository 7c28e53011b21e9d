// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real `longhaul relay`, and clients and origins on real sockets to test it with.
use longhaul_protocol::{
    convert::{Answer, Request},
    destination::Destination,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, OwnedFd},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// No test waits longer for anything; it decides only how long a failure takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running relay, killed on drop.
pub struct Relay {
    child: Child,
    listening: Vec<(String, SocketAddr)>,
    stderr: Option<JoinHandle<String>>,
    lines: Mutex<Receiver<String>>,
}

impl Relay {
    /// Starts `longhaul relay ARGS` and waits until it listens.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.arg("relay").args(args);
        Self::spawn(command)
    }

    /// Starts a relay with this configuration file, which has `listeners` of them.
    pub fn configured(text: &str, listeners: usize) -> Self {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut command = Command::new(longhaul_testbed::longhaul());
        command.args(["relay", "--config"]).arg(file.path());
        Self::spawn_waiting(command, listeners)
    }

    /// Starts a command that becomes a relay.
    pub fn spawn(command: Command) -> Self {
        let wanted = command.get_args().filter(|arg| is_listener(arg)).count();
        assert!(wanted > 0, "no listener in {command:?}");
        Self::spawn_waiting(command, wanted)
    }

    /// Starts a command that becomes a relay with `wanted` listeners.
    pub fn spawn_waiting(mut command: Command, wanted: usize) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the relay starts");
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        let (ready, listens) = channel();
        let (tell, told) = channel();
        let read = move || read_all(lines, wanted, &ready, &tell);
        let mut relay = Self {
            child,
            listening: Vec::new(),
            stderr: Some(std::thread::spawn(read)),
            lines: told.into(),
        };
        while relay.listening.len() < wanted {
            let listener = listens
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|why| panic!("{command:?} ended early or does not listen: {why}"));
            relay.listening.push(listener);
        }
        relay
    }

    /// The address of its first listener of a kind.
    pub fn address(&self, kind: &str) -> SocketAddr {
        self.listening
            .iter()
            .find(|(k, _)| k == kind)
            .expect(kind)
            .1
    }

    /// The process.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends a signal to the relay.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Its connection with this neighbour: the same socket, to be looked at (pidfd_getfd(2), which
    /// needs root or the same user).
    pub fn leg_to(&self, neighbour: SocketAddr) -> TcpStream {
        let mut found = None;
        let start = std::time::Instant::now();
        while found.is_none() {
            assert!(start.elapsed() < PATIENCE, "no leg to {neighbour}");
            let legs = self.sockets().map(TcpStream::from);
            let is_it = |leg: &TcpStream| leg.peer_addr().is_ok_and(|peer| peer == neighbour);
            found = legs.into_iter().find(is_it);
        }
        found.expect("looked for")
    }

    /// Its sockets, of all kinds.
    fn sockets(&self) -> impl Iterator<Item = OwnedFd> {
        let relay = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let numbers = self.descriptors("socket:");
        // One that was closed meanwhile is none.
        let copy = move |number| pidfd_getfd(&relay, number, PidfdGetfdFlags::empty()).ok();
        numbers.into_iter().filter_map(copy)
    }

    /// The numbers of its descriptors of one kind: `socket:`, `pipe:`.
    pub fn descriptors(&self, kind: &str) -> Vec<i32> {
        let directory = format!("/proc/{}/fd", self.pid().as_raw_pid());
        let entries = std::fs::read_dir(directory).unwrap().flatten();
        let number = |entry: std::fs::DirEntry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let wanted = target.to_str()?.starts_with(kind);
            wanted.then(|| entry.file_name().to_str()?.parse().ok())?
        };
        entries.filter_map(number).collect()
    }

    /// Waits for a line on stderr that has `word`, and returns what was said up to there.
    pub fn says(&self, word: &str) -> String {
        let lines = self.lines.lock().unwrap();
        let mut said = String::new();
        while !said.contains(word) {
            said += &lines.recv_timeout(PATIENCE).expect(word);
        }
        said
    }

    /// Waits for its exit; also returns what it said on stderr besides that it listens.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let ended = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        await_readable(&ended, "the relay's end");
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.take().expect("once").join().unwrap();
        (status, stderr)
    }

    /// SIGTERM, then [`Relay::wait`].
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(said) = self.stderr.take().and_then(|it| it.join().ok())
        {
            eprintln!("a relay, ended before the test: {ended:?}, said:\n{said}");
        }
    }
}

fn is_listener(arg: &OsStr) -> bool {
    [
        "--socks5",
        "--http",
        "--forward",
        "--transparent",
        "--convert",
        "--admin",
    ]
    .iter()
    .any(|l| arg == *l)
}

fn parse_ready(line: &str) -> Option<(String, SocketAddr)> {
    let (kind, address) = line.strip_prefix("listening ")?.trim().split_once(' ')?;
    Some((kind.to_owned(), address.parse().unwrap()))
}

/// Tells of the first `wanted` listeners and of all other lines, which it returns.
fn read_all(
    mut lines: BufReader<ChildStderr>,
    mut wanted: usize,
    ready: &Sender<(String, SocketAddr)>,
    tell: &Sender<String>,
) -> String {
    let (mut text, mut line) = (String::new(), String::new());
    while matches!(lines.read_line(&mut line), Ok(1..)) {
        // An error means that nobody listens any more.
        match parse_ready(&line).filter(|_| wanted > 0) {
            Some(listener) => {
                wanted -= 1;
                let _ = ready.send(listener);
            }
            None => {
                text += &line;
                let _ = tell.send(line.clone());
            }
        }
        line.clear();
    }
    text
}

/// Waits until this is readable: a listener somebody connects to, a process that has ended.
fn await_readable(descriptor: &impl AsFd, what: &str) {
    let timeout = PATIENCE.try_into().unwrap();
    let mut descriptors = [PollFd::new(descriptor, PollFlags::IN)];
    let readable = poll(&mut descriptors, Some(&timeout)).unwrap();
    assert!(readable > 0, "waited {PATIENCE:?} for {what}");
}

/// A listener on loopback that plays the origin server.
pub fn origin() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address that refuses connections for as long as the socket lives: bound, not listening.
pub fn refusing() -> (TcpStream, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = longhaul_linux::socket::outgoing(
        any,
        Some(any),
        &longhaul_linux::socket::Options::default(),
    )
    .unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Connects to `address`.
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    patient(&stream);
    stream
}

/// Accepts a connection.
pub fn accept(listener: &TcpListener) -> TcpStream {
    await_readable(listener, "a connection");
    let (stream, _) = listener.accept().unwrap();
    patient(&stream);
    stream
}

/// Bounds the time that reads and writes wait.
pub fn patient(stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// Connects through a listener of the given kind, with its handshake. Returns the reply's code
/// instead of the stream if it is a refusal.
pub fn dial(kind: &str, relay: SocketAddr, to: &Destination) -> Result<TcpStream, u16> {
    let mut stream = connect(relay);
    match kind {
        "socks5" => socks5(&mut stream, to)?,
        "http" => http_connect(&mut stream, to)?,
        "convert" => convert(&mut stream, to)?,
        _ => {}
    }
    Ok(stream)
}

fn socks5(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    stream.write_all(&[5, 1, 0]).unwrap();
    assert_eq!(read_array(stream), [5, 0]);
    let mut request = vec![5, 1, 0];
    match to {
        Destination::Address(SocketAddr::V4(v4)) => {
            request.push(1);
            request.extend(v4.ip().octets());
        }
        Destination::Address(SocketAddr::V6(v6)) => {
            request.push(4);
            request.extend(v6.ip().octets());
        }
        Destination::Name(name, _) => {
            request.extend([3, name.as_str().len() as u8]);
            request.extend(name.as_str().as_bytes());
        }
    }
    request.extend(to.port().to_be_bytes());
    stream.write_all(&request).unwrap();
    let [5, code, 0, family] = read_array(stream) else {
        panic!("no SOCKS5 reply");
    };
    match family {
        1 => drop(read_array::<6>(stream)),
        4 => drop(read_array::<18>(stream)),
        _ => panic!("a bound address of type {family}"),
    }
    if code == 0 { Ok(()) } else { Err(code.into()) }
}

fn http_connect(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    match http_status(&http_head(stream)) {
        200 => Ok(()),
        status => Err(status),
    }
}

/// Reads up to the empty line and not a byte more.
pub fn http_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read_array::<1>(stream));
    }
    String::from_utf8(head).unwrap()
}

/// The status in the head of an HTTP answer.
pub fn http_status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn convert(stream: &mut TcpStream, to: &Destination) -> Result<(), u16> {
    stream
        .write_all(&Request::new(to.clone(), vec![]).encode())
        .unwrap();
    match convert_answer(stream) {
        Answer::Accepted => Ok(()),
        Answer::Refused { code, .. } => Err(code.code().into()),
    }
}

/// Reads an answer of RFC 8803.
pub fn convert_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    while let missing @ 1.. = Answer::missing(&bytes).unwrap() {
        let mut more = vec![0; missing];
        stream.read_exact(&mut more).unwrap();
        bytes.extend(more);
    }
    Answer::parse(&bytes).unwrap().unwrap().0
}

/// Reads exactly `N` bytes.
pub fn read_array<const N: usize>(stream: &mut impl Read) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Both ends send `mib` MiB at once, close their direction, and check every byte that arrives, and
/// that nothing follows.
pub fn exchange(client: &TcpStream, server: &TcpStream, mib: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| send(client, 1, mib));
        scope.spawn(|| send(server, 2, mib));
        scope.spawn(|| receive(client, 2, mib));
        scope.spawn(|| receive(server, 1, mib));
    });
}

/// Sends a sequence that no other seed gives, then FIN.
pub fn send(mut stream: &TcpStream, seed: u64, mib: u64) {
    let mut block = block(seed);
    for number in 0..mib {
        block[..8].copy_from_slice(&number.to_be_bytes());
        stream.write_all(&block).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// `first` sends FIN, `second` sees it, and what `second` still has to say arrives.
pub fn half_close(first: &TcpStream, mut second: &TcpStream) {
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(second.read(&mut [0]).unwrap(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| send(second, 3, 16));
        receive(first, 3, 16);
    });
}

/// The relay resets the connection at once, which the client may hear before it has looked at its connection.
pub fn assert_turned_away(client: io::Result<TcpStream>) {
    let error = client.and_then(|mut client| {
        patient(&client);
        client.read(&mut [0])
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// The next that is read is a reset.
pub fn assert_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Expects exactly what [`send`] sends.
pub fn receive(mut stream: &TcpStream, seed: u64, mib: u64) {
    let (mut want, mut got) = (block(seed), vec![0; 1 << 20]);
    for number in 0..mib {
        want[..8].copy_from_slice(&number.to_be_bytes());
        stream.read_exact(&mut got).unwrap();
        assert!(got == want, "MiB {number} differs");
    }
    assert_eq!(stream.read(&mut got).unwrap(), 0, "bytes after the end");
}

/// 1 MiB without a period that a lost or doubled chunk could hide in (xorshift64).
fn block(seed: u64) -> Vec<u8> {
    let mut x = seed;
    let words = (0..1 << 17).map(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    });
    words.flat_map(u64::to_ne_bytes).collect()
}

/// Root, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
pub fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::unless(
        rustix::process::geteuid().is_root(),
        "root (CAP_NET_ADMIN and CAP_SYS_ADMIN)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would have been waited for without end.
    #[test]
    fn a_relay_that_ends_before_it_listens_is_told() {
        let start = || Relay::start(&["--socks5", "nowhere"]);
        let said = std::panic::catch_unwind(start).err().expect("no relay");
        let said = said.downcast::<String>().unwrap();
        assert!(said.contains("ended early"), "{said}");
    }
}
