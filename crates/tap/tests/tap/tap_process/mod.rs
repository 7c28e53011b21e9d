// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test environment: two namespaces with a link between them, `longhaul tap` on it, and its output.

use longhaul_linux::sysctl;
use longhaul_packet::capture::{Frame, Reader, Record, Statistics, Step};
use longhaul_testnet::namespace::Namespace;
use longhaul_testprograms::process::Running;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{ChildStderr, Command, Stdio},
    time::Duration,
};

pub(crate) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 66, 9, 1);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 66, 9, 2);

/// Two namespaces with a link between them; the interface is `v0` in each.
pub(crate) struct Link {
    pub(crate) left: Namespace,
    pub(crate) right: Namespace,
}

impl Link {
    pub(crate) fn new(name: &str) -> Self {
        let [left, right] = ["l", "r"].map(|end| Namespace::new(&format!("tap-{name}-{end}")));
        for netns in [&left, &right] {
            // Without IPv6, neighbour discovery adds no packets to the counts.
            for interfaces in ["all", "default"] {
                let key = format!("net.ipv6.conf.{interfaces}.disable_ipv6");
                drop(sysctl::write(netns, &key, "1"));
            }
        }
        left.connect("v0", &right, "v0");
        left.bring_up("v0", &[&format!("{LEFT}/24")]);
        right.bring_up("v0", &[&format!("{RIGHT}/24")]);
        let link = Self { left, right };
        link.resolve_addresses();
        link
    }

    /// Sends datagrams until one arrives, so that both ends have resolved the other's hardware address. The kernel
    /// drops datagrams until it has noticed that the interfaces are up.
    fn resolve_addresses(&self) {
        for _ in 0..10 {
            self.send_datagrams(1, 9);
            for _ in 0..400 {
                if self.right.counter("Udp", "NoPorts") > 0 {
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
        let traffic = self.left.traffic("v0");
        traffic.received_packets + traffic.sent_packets
    }

    /// Returns the TCP segments that both ends sent, by the kernel's counters: each segment of a super-packet counts.
    pub(crate) fn segments_sent(&self) -> u64 {
        let counters = ["OutSegs", "RetransSegs"];
        let sent = |netns: &Namespace| counters.map(|counter| netns.counter("Tcp", counter));
        [&self.left, &self.right]
            .map(sent)
            .as_flattened()
            .iter()
            .sum()
    }
}

/// Running `longhaul tap capture` on the left interface.
pub(crate) struct Capture {
    child: Running,
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
        let mut child = Command::new(longhaul_testprograms::longhaul())
            // With this limit, a capture that does not stop fails its test.
            .args(["tap", "capture", "--duration", "60s"])
            .args(["--json", "-i", "v0", "--netns"])
            .args([link.left.name(), "-w"])
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
            child: Running(child),
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
            Record::Statistics(statistics) => self.statistics.push(**statistics),
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
