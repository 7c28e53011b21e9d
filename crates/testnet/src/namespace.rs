// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network namespaces of a test, and veth pairs between them.

use longhaul_linux::{interface, netns::Netns, process::inside, sysctl};
use longhaul_testprograms::{process::kill, wait::wait_until};
use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    ops::Deref,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// Network namespace with its loopback up. Dropping it kills the processes that are left in it, and deletes it.
pub struct Namespace(Netns);

/// Bytes and packets of an interface; a super-packet counts once.
pub struct Traffic {
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Packets that it received.
    pub received_packets: u64,
    /// Bytes that it sent.
    pub sent_bytes: u64,
    /// Packets that it sent.
    pub sent_packets: u64,
}

impl Namespace {
    /// Creates a namespace. Its name begins with `name`, and is unique on the machine.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let netns = Netns::create(&format!("{name}-{}-{number}", std::process::id())).unwrap();
        let namespace = Self(netns);
        interface::bring_up(&namespace, "lo").unwrap();
        namespace
    }

    /// Returns its name, as `ip netns` lists it.
    pub fn name(&self) -> &str {
        self.0.name().expect("created by name")
    }

    /// Returns a command that runs in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        inside(&mut command, &self.0);
        command
    }

    /// Creates a veth pair from an interface `device` to an interface of another namespace.
    pub fn connect(&self, device: &str, other: &Self, other_device: &str) {
        let other = other.name();
        run_ip(
            self,
            &format!("link add {device} type veth peer name {other_device} netns {other}"),
        );
    }

    /// Gives an interface these addresses, and brings it up.
    pub fn bring_up(&self, device: &str, addresses: &[&str]) {
        for address in addresses {
            // Without duplicate address detection, which takes a second.
            let flag = if address.contains(':') { "nodad" } else { "" };
            run_ip(self, &format!("address add {address} dev {device} {flag}"));
        }
        run_ip(self, &format!("link set {device} up"));
    }

    /// Waits until the kernel sends packets through a device. On a busy machine this can take seconds after both ends
    /// are up, and what is sent before is lost, neighbour discovery too.
    #[track_caller]
    pub fn wait_until_up(&self, device: &str) {
        let show = format!("ip -oneline link show dev {device} up");
        wait_until(|| run(self, &show).contains("state UP"));
    }

    /// Returns what an interface has carried.
    pub fn traffic(&self, device: &str) -> Traffic {
        let text = self.read("/proc/thread-self/net/dev");
        let mut lines = text.lines();
        let columns = lines.find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let columns = columns.expect(device).split_whitespace();
        let columns: Vec<_> = columns.map(|column| column.parse().unwrap()).collect();
        Traffic {
            received_bytes: columns[0],
            received_packets: columns[1],
            sent_bytes: columns[8],
            sent_packets: columns[9],
        }
    }

    /// Returns a counter of a protocol in `/proc/net/snmp` or `/proc/net/netstat`.
    pub fn counter(&self, protocol: &str, counter: &str) -> u64 {
        let text =
            ["snmp", "netstat"].map(|file| self.read(&format!("/proc/thread-self/net/{file}")));
        let text = text.concat();
        let mut lines = text
            .lines()
            .filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut columns = names.split(' ').zip(values.split(' '));
        let value = columns.find_map(|(name, value)| (name == counter).then_some(value));
        value.expect(counter).parse().unwrap()
    }

    fn read(&self, path: &str) -> String {
        self.0.run(|| fs::read_to_string(path)).unwrap()
    }

    /// Opens a listener in it. If an earlier listener had the address, a process that another test starts at this moment
    /// still has a copy of its socket.
    #[track_caller]
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        let mut listener = None;
        wait_until(|| {
            listener = match self.0.run(|| TcpListener::bind(address)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => None,
                bound => Some(bound.unwrap()),
            };
            listener.is_some()
        });
        listener.expect("waited for it")
    }

    /// Returns the processes in it.
    pub fn processes(&self) -> Vec<u32> {
        self.find_processes().expect("ip netns pids")
    }

    /// Returns the processes in it; `None` if they cannot be read, for example because it was deleted.
    fn find_processes(&self) -> Option<Vec<u32>> {
        let mut command = Command::new("ip");
        let output = command.args(["netns", "pids", self.name()]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let pids = text.lines().map(|line| line.parse().ok()).collect();
        if output.status.success() { pids } else { None }
    }

    /// Waits until all processes in it have ended by themselves.
    #[track_caller]
    pub fn wait_until_empty(&self) {
        wait_until(|| self.processes().is_empty());
    }

    /// Kills all processes in it.
    pub fn kill_all(&self) {
        self.processes().into_iter().for_each(kill);
    }
}

impl Deref for Namespace {
    type Target = Netns;

    fn deref(&self) -> &Netns {
        &self.0
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A test may have deleted it.
        let left = self.find_processes().unwrap_or_default();
        left.into_iter().for_each(kill);
        drop(Netns::delete(self.name()));
    }
}

/// Runs a command in a namespace, which must succeed. Returns its standard output.
pub fn run(netns: &Netns, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let output = inside(command.args(words), netns).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs ip(8) commands in a namespace, one a line; a line may begin with -4 or -6.
pub fn run_ip(netns: &Netns, lines: &str) {
    for line in lines.lines() {
        run(netns, &format!("ip {line}"));
    }
}

/// Runs a program in a namespace with `lines` as its standard input.
pub fn run_with_input(netns: &Netns, program: &str, args: &[&str], lines: &str) {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped());
    let mut child = inside(&mut command, netns).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let status = child.wait().unwrap();
    assert!(status.success(), "{program} {args:?}: {lines}");
}

/// Sets a kernel setting of a namespace.
pub fn set_sysctl(netns: &Netns, name: &str, value: &str) {
    sysctl::write(netns, name, value).unwrap();
}

/// Whether this process may create namespaces. If not, the test fails, or is skipped with ALLOW_SKIP=1.
pub fn may_use_namespaces() -> bool {
    longhaul_testprograms::skip::require(
        rustix::process::geteuid().is_root(),
        "root (CAP_NET_ADMIN and CAP_SYS_ADMIN)",
    )
}
