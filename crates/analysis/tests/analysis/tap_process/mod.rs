// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two namespaces with a wire between them, `longhaul tap` on it, and what it wrote.

use longhaul_linux::{
    interface::{self, End},
    netns::Netns,
    sysctl,
};
use longhaul_packet::capture::{Frame, Reader, Record, Statistics, Step};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

pub(crate) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 66, 9, 1);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 66, 9, 2);

/// A pair of interfaces `v0`; all gone on drop.
pub(crate) struct Wire {
    pub(crate) left: Netns,
    pub(crate) right: Netns,
    names: [String; 2],
}

impl Wire {
    pub(crate) fn new(name: &str) -> Self {
        let names = ["l", "r"].map(|end| format!("tap-{name}-{}-{end}", std::process::id()));
        let [left, right] = names.each_ref().map(|name| Netns::create(name).unwrap());
        for netns in [&left, &right] {
            // Neighbour discovery would be packets that nobody sent; without IPv6 there is none.
            drop(sysctl::write(netns, "net.ipv6.conf.all.disable_ipv6", "1"));
            drop(sysctl::write(
                netns,
                "net.ipv6.conf.default.disable_ipv6",
                "1",
            ));
        }
        let end = |netns, address: Ipv4Addr| End {
            netns,
            name: "v0",
            address: address.into(),
            prefix: 24,
        };
        interface::create_veth(&end(&left, LEFT), &end(&right, RIGHT), 1500).unwrap();
        let wire = Self { left, right, names };
        wire.resolve_addresses();
        wire
    }

    pub(crate) fn left_name(&self) -> &str {
        &self.names[0]
    }

    /// Sends datagrams until one arrives: both know each other's hardware address then, and nothing waits for it. The
    /// kernel drops what is sent before it has noticed that the interfaces are up.
    fn resolve_addresses(&self) {
        let arrived = || snmp(&self.right, "Udp:", "NoPorts") > 0;
        for _ in 0..10 {
            self.datagrams(1, 9);
            for _ in 0..400 {
                if arrived() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("no datagram arrives");
    }

    /// `count` datagrams of 100 bytes from left to right, where nobody waits for them.
    pub(crate) fn datagrams(&self, count: usize, port: u16) {
        self.left
            .run(|| {
                let socket = UdpSocket::bind((LEFT, 0))?;
                (0..count).try_for_each(|_| {
                    // An answer that nobody is there is no failure of this one.
                    drop(socket.send_to(&[0; 100], (RIGHT, port)));
                    Ok(())
                })
            })
            .unwrap();
    }

    /// One TCP connection that carries so many bytes from left to right and is closed by both.
    pub(crate) fn transfer(&self, bytes: usize, port: u16) {
        let address = SocketAddr::from((RIGHT, port));
        let listener = self.right.run(|| TcpListener::bind(address)).unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
            });
            let mut stream = self.left.run(|| TcpStream::connect(address)).unwrap();
            stream.write_all(&vec![0; bytes]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // The other end closes, too, before this is over.
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            assert_eq!(receiver.join().unwrap(), bytes as u64);
        });
    }

    /// Packets that the left interface received and sent, a super-packet once.
    pub(crate) fn packets(&self) -> u64 {
        let table = "/proc/thread-self/net/dev";
        let table = self.left.run(|| std::fs::read_to_string(table)).unwrap();
        let line = table
            .lines()
            .find_map(|line| line.trim().strip_prefix("v0:"));
        let columns: Vec<u64> = line
            .unwrap()
            .split_whitespace()
            .map(|column| column.parse().unwrap())
            .collect();
        columns[1] + columns[9]
    }

    /// TCP segments that both ends sent, as the kernel counts them: each of a super-packet.
    pub(crate) fn segments_sent(&self) -> u64 {
        snmp(&self.left, "Tcp:", "OutSegs")
            + snmp(&self.left, "Tcp:", "RetransSegs")
            + snmp(&self.right, "Tcp:", "OutSegs")
            + snmp(&self.right, "Tcp:", "RetransSegs")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            drop(Netns::delete(name));
        }
    }
}

/// A figure of a protocol's line in `/proc/net/snmp`.
fn snmp(netns: &Netns, protocol: &str, figure: &str) -> u64 {
    let table = netns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == figure).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// A running `longhaul tap capture` on the left interface.
pub(crate) struct Capture {
    child: Child,
    said: BufReader<ChildStderr>,
    pub(crate) directory: tempfile::TempDir,
}

impl Capture {
    pub(crate) fn start(wire: &Wire, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trace.pcapng");
        Self::to(&file, directory, wire, flags)
    }

    pub(crate) fn to(
        file: &Path,
        directory: tempfile::TempDir,
        wire: &Wire,
        flags: &[&str],
    ) -> Self {
        let mut child = Command::new(longhaul_testbed::longhaul())
            // One that does not end when it should is seen as that.
            .args(["tap", "capture", "--duration", "60s"])
            .args(["--json", "-i", "v0", "--netns"])
            .args([wire.left_name(), "-w"])
            .arg(file)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "capturing on v0\n");
        Self {
            child,
            said,
            directory,
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("trace.pcapng")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it says at its end, which somebody asked for.
    pub(crate) fn summary(&mut self) -> Value {
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        let (status, said) = self.end();
        assert!(status, "{said}");
        serde_json::from_str(&text).unwrap()
    }

    /// Whether it did well, and what it said.
    pub(crate) fn end(&mut self) -> (bool, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(&mut self) -> Value {
        self.signal(Signal::INT);
        self.summary()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Already dead is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) frames: u64,
    pub(crate) supers: u64,
    pub(crate) longest: usize,
    pub(crate) statistics: Vec<Statistics>,
    pub(crate) damage: Vec<String>,
}

impl Contents {
    pub(crate) fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (mut reader, mut rest, mut contents) = (Reader::new(), &bytes[..], Self::default());
        loop {
            let step = reader.step(rest, true).unwrap();
            match &step {
                Step::Run(run) => {
                    for record in run.records(&rest[..run.len]) {
                        contents.take(&record);
                    }
                }
                Step::Damage(_, damage) => contents.damage.push(damage.to_string()),
                Step::Skip(_) | Step::More(_) => {}
                Step::End => return contents,
            }
            rest = &rest[step.taken()..];
        }
    }

    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Frame(frame) => self.frame(frame),
            Record::Statistics(statistics) => self.statistics.push(*statistics),
            Record::Damage(damage) => self.damage.push(damage.to_string()),
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        self.supers += u64::from(frame.segment_size > 0);
        self.longest = self.longest.max(frame.bytes.len());
    }
}

pub(crate) fn figure(summary: &Value, name: &str) -> u64 {
    let value = summary["interfaces"][0][name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {summary}"))
}

/// Whether this process may make namespaces. If not, the test fails, or says so and is skipped with
/// ALLOW_SKIP=1.
pub(crate) fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::unless(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)")
}

/// Whether a program is there; likewise.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    longhaul_testbed::skip::unless(found.is_ok(), program)
}
