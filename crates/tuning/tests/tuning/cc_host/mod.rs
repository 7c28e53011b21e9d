// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc` with a BPF file system of the test's own, and connections that use its congestion controls.
use longhaul_linux::netns::Netns;
use longhaul_testprograms::{process::exit_code_and_text, skip::may_load_bpf, wait::wait_until};
use rustix::{
    fs::{FlockOperation, flock},
    net::sockopt,
    process::{Gid, Uid},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread::JoinHandle,
};

/// Name of the congestion control in the kernel.
pub(crate) const NAME: &str = "lh_scalable";

/// As [`may_load_bpf`]; the kernel must also take the programs that watch connections. A security module may refuse tracing
/// programs to root, as a lockdown does; there the test is skipped.
pub(crate) fn may_watch() -> bool {
    may_load_bpf() && !is_watching_denied()
}

/// Whether the kernel refuses the programs that watch connections, before it verifies them. If so, the calling test is
/// recorded as skipped.
pub(crate) fn is_watching_denied() -> bool {
    let mut watch = Command::new(longhaul_testprograms::longhaul());
    let (_, message) = exit_code_and_text(&watch.args(["cc", "watch", "--once"]).output().unwrap());
    let is_denied = message.contains("the kernel does not permit it");
    if is_denied {
        longhaul_testprograms::skip::record(format!("needs tracing programs: {message}"));
    }
    is_denied
}

/// Directory for pins. Names of congestion controls belong to the machine, so one test runs at a time.
pub(crate) struct Host {
    bpffs: tempfile::TempDir,
    _turn: File,
}

impl Host {
    pub(crate) fn new() -> Self {
        let turn = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        wait_until(|| !registered().contains(" lh_"));
        Self {
            bpffs: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.bpffs.path()
    }

    /// Returns the command `longhaul cc ARGS`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .arg("cc")
            .args(args)
            .arg("--bpffs")
            .arg(self.bpffs());
        command
    }

    /// Runs `longhaul cc ARGS`; returns its exit code and output.
    pub(crate) fn cc(&self, args: &[&str]) -> (i32, String) {
        exit_code_and_text(&self.command(args).output().unwrap())
    }

    /// Runs `longhaul cc ARGS`, which must succeed; returns its output.
    pub(crate) fn output_of(&self, args: &[&str]) -> String {
        let (code, message) = self.cc(args);
        assert_eq!(code, 0, "cc {args:?}: {message}");
        message
    }

    /// Returns the records of all connections.
    pub(crate) fn watch(&self) -> Vec<Value> {
        let message = self.output_of(&["watch", "--once", "--json"]);
        let lines = message.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    /// Returns the record of the connection with this local port.
    pub(crate) fn watch_port(&self, port: u16) -> Option<Value> {
        let end = format!(":{port}");
        let mut all = self.watch().into_iter();
        all.find(|seen| seen["local"].as_str().unwrap().ends_with(&end))
    }

    pub(crate) fn show(&self) -> Value {
        serde_json::from_str(&self.output_of(&["show", "scalable", "--json"])).unwrap()
    }

    /// Lists the directories of pins.
    pub(crate) fn pins(&self) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(self.bpffs().join("longhaul/cc"));
        let entries = entries.into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(self.bpffs().to_str().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.cc(&["unload", "--all"]);
        if self.is_mounted() {
            let flags = rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(self.bpffs(), flags);
        }
    }
}

pub(crate) fn is_registered() -> bool {
    registered().split_whitespace().any(|name| name == NAME)
}

fn registered() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Gives this thread the user nobody for good: without any capability.
pub(crate) fn become_nobody() {
    let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_groups(&[]).unwrap();
    // Before the user, who would not be allowed to.
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// Both ends of a connection; the sender uses the congestion control.
pub(crate) struct Connection {
    pub(crate) sender: TcpStream,
    pub(crate) receiver: TcpStream,
}

impl Connection {
    /// Opens a connection with the congestion control `chosen`; `None` leaves the default.
    pub(crate) fn open(chosen: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sender = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        if let Some(name) = chosen {
            sockopt::set_tcp_congestion(&sender, name)?;
        }
        sender.connect(&listener.local_addr()?.into())?;
        let (receiver, _) = listener.accept()?;
        Ok(Self {
            sender: sender.into(),
            receiver,
        })
    }

    pub(crate) fn port(&self) -> u16 {
        self.sender.local_addr().unwrap().port()
    }

    /// Transfers bytes and compares each.
    pub(crate) fn transfer(&mut self, bytes: usize) {
        let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut received = vec![0; bytes];
        std::thread::scope(|scope| {
            scope.spawn(|| self.sender.write_all(&sent).unwrap());
            self.receiver.read_exact(&mut received).unwrap();
        });
        assert!(sent == received, "bytes changed on the way");
    }
}

/// Thread of an unprivileged user in another namespace, which runs closures.
pub(crate) struct UnprivilegedThread {
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

type Order = Box<dyn FnOnce(&mut Option<Connection>) + Send>;

impl UnprivilegedThread {
    pub(crate) fn in_namespace(netns: &Netns) -> Self {
        let (orders, received) = mpsc::channel::<Order>();
        let netns = netns.clone();
        let thread = std::thread::spawn(move || {
            netns.enter().unwrap();
            become_nobody();
            let mut connection = None;
            for order in received {
                order(&mut connection);
            }
        });
        Self {
            orders,
            thread: Some(thread),
        }
    }

    /// Runs a closure in the thread, and waits for its result.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Option<Connection>) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = mpsc::channel();
        let order = move |connection: &mut Option<Connection>| {
            let _ = answer.send(work(connection));
        };
        self.orders.send(Box::new(order)).unwrap();
        answered.recv().expect("the stranger panicked")
    }
}

impl Drop for UnprivilegedThread {
    fn drop(&mut self) {
        let (idle, _) = mpsc::channel();
        self.orders = idle;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
