// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test environment: two namespaces with a link between them, `longhaul tap` on it, and its output.

use longhaul_linux::{
    interface::{self, VethEndpoint},
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

/// Two namespaces with a link between them; the interface is `v0` in each. They are deleted on drop.
pub(crate) struct Link {
    pub(crate) left: Netns,
    pub(crate) right: Netns,
    names: [String; 2],
}

impl Link {
    pub(crate) fn new(name: &str) -> Self {
        let names = ["l", "r"].map(|end| format!("tap-{name}-{}-{end}", std::process::id()));
        let [left, right] = names.each_ref().map(|name| Netns::create(name).unwrap());
        for netns in [&left, &right] {
            // Without IPv6, neighbour discovery adds no packets to the counts.
            drop(sysctl::write(netns, "net.ipv6.conf.all.disable_ipv6", "1"));
            drop(sysctl::write(
                netns,
                "net.ipv6.conf.default.disable_ipv6",
                "1",
            ));
        }
        let end = |netns, address: Ipv4Addr| VethEndpoint {
            netns,
            name: "v0",
            address: address.into(),
            prefix: 24,
        };
        interface::create_veth(&end(&left, LEFT), &end(&right, RIGHT), 1500).unwrap();
        let link = Self { left, right, names };
        link.resolve_addresses();
        link
    }

    pub(crate) fn left_name(&self) -> &str {
        &self.names[0]
    }

    /// Sends datagrams until one arrives, so that both ends have resolved the other's hardware address. The kernel
    /// drops datagrams until it has noticed that the interfaces are up.
    fn resolve_addresses(&self) {
        let arrived = || snmp_counter(&self.right, "Udp:", "NoPorts") > 0;
        for _ in 0..10 {
            self.send_datagrams(1, 9);
            for _ in 0..400 {
                if arrived() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("no datagram arrived");
    }

    /// Sends `count` datagrams of 100 bytes from left to right, to a closed port.
    pub(crate) fn send_datagrams(&self, count: usize, port: u16) {
        self.left
            .run(|| {
                let socket = UdpSocket::bind((LEFT, 0))?;
                (0..count).try_for_each(|_| {
                    // An ICMP "port unreachable" is not an error of this socket.
                    drop(socket.send_to(&[0; 100], (RIGHT, port)));
                    Ok(())
                })
            })
            .unwrap();
    }

    /// Transfers this number of bytes from left to right in one TCP connection, which both ends close.
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
            // Waits until the other end closes, too.
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            assert_eq!(receiver.join().unwrap(), bytes as u64);
        });
    }

    /// Returns the packets that the left interface received and sent; a super-packet counts once.
    pub(crate) fn packet_count(&self) -> u64 {
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

    /// Returns the TCP segments that both ends sent, by the kernel's counters: each segment of a super-packet counts.
    pub(crate) fn segments_sent(&self) -> u64 {
        snmp_counter(&self.left, "Tcp:", "OutSegs")
            + snmp_counter(&self.left, "Tcp:", "RetransSegs")
            + snmp_counter(&self.right, "Tcp:", "OutSegs")
            + snmp_counter(&self.right, "Tcp:", "RetransSegs")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            drop(Netns::delete(name));
        }
    }
}

/// Returns a counter of a protocol in `/proc/net/snmp`.
fn snmp_counter(netns: &Netns, protocol: &str, counter: &str) -> u64 {
    let table = netns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == counter).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Running `longhaul tap capture` on the left interface.
pub(crate) struct Capture {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) directory: tempfile::TempDir,
}

impl Capture {
    /// Starts a capture into a file in a new directory.
    pub(crate) fn start(link: &Link, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trace.pcapng");
        Self::start_to(&file, directory, link, flags)
    }

    /// Starts a capture into `file`. `directory` lives as long as the capture.
    pub(crate) fn start_to(
        file: &Path,
        directory: tempfile::TempDir,
        link: &Link,
        flags: &[&str],
    ) -> Self {
        let mut child = Command::new(longhaul_testbed::longhaul())
            // With this limit, a capture that does not stop fails its test.
            .args(["tap", "capture", "--duration", "60s"])
            .args(["--json", "-i", "v0", "--netns"])
            .args([link.left_name(), "-w"])
            .arg(file)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert_eq!(line, "capturing on v0\n");
        Self {
            child,
            stderr,
            directory,
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("trace.pcapng")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the capture ends, and returns its summary.
    pub(crate) fn wait_for_summary(&mut self) -> Value {
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        let (success, stderr) = self.wait();
        assert!(success, "{stderr}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the capture ends. Returns whether it succeeded, and the rest of its messages.
    pub(crate) fn wait(&mut self) -> (bool, String) {
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().success(), stderr)
    }

    /// Stops the capture as Ctrl-C does and returns its summary.
    pub(crate) fn stop(&mut self) -> Value {
        self.signal(Signal::INT);
        self.wait_for_summary()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Content of a capture file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) frames: u64,
    pub(crate) super_packets: u64,
    /// Captured bytes of the longest frame.
    pub(crate) longest: usize,
    pub(crate) statistics: Vec<Statistics>,
    pub(crate) damage: Vec<String>,
}

impl Contents {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (mut reader, mut rest, mut contents) = (Reader::new(), &bytes[..], Self::default());
        loop {
            let step = reader.step(rest, true).unwrap();
            match &step {
                Step::Run(run) => {
                    for record in run.records(&rest[..run.len]) {
                        contents.add(&record);
                    }
                }
                Step::Damage(_, damage) => contents.damage.push(damage.to_string()),
                Step::Skip(_) | Step::More(_) => {}
                Step::End => return contents,
            }
            rest = &rest[step.taken()..];
        }
    }

    fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::Frame(frame) => self.add_frame(frame),
            Record::Statistics(statistics) => self.statistics.push(*statistics),
            Record::Damage(damage) => self.damage.push(damage.to_string()),
        }
    }

    fn add_frame(&mut self, frame: &Frame<'_>) {
        self.frames += 1;
        self.super_packets += u64::from(frame.segment_size > 0);
        self.longest = self.longest.max(frame.bytes.len());
    }
}

/// Returns a counter of the first interface in the summary.
pub(crate) fn counter(summary: &Value, name: &str) -> u64 {
    let value = summary["interfaces"][0][name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {summary}"))
}

/// Returns whether this process may create namespaces. If not, the test fails, or is skipped with a message if
/// ALLOW_SKIP=1 is set.
pub(crate) fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)")
}

/// Returns whether a program is installed. If not, the test fails, or is skipped with ALLOW_SKIP=1.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    longhaul_testbed::skip::require(found.is_ok(), program)
}
