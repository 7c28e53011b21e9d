// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc` with a BPF file system of the test's own, and connections to see it at work.
use longhaul_linux::{interface, netns::Netns};
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
    process::{Command, Output},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// In the kernel.
pub(crate) const NAME: &str = "lh_scalable";

/// Root of the machine, or the reason to skip: no user namespace has BPF. Other reasons fail, unless
/// ALLOW_SKIP is 1.
pub(crate) fn may_load() -> bool {
    let root = rustix::process::geteuid().is_root() && !longhaul_testbed::skip::is_confined();
    longhaul_testbed::skip::unless_confined(root, "eBPF, which takes root of the machine")
}

/// A place for pins. Names of congestion controls are the machine's: one test at a time.
pub(crate) struct Host {
    bpffs: tempfile::TempDir,
    _turn: File,
}

impl Host {
    pub(crate) fn new() -> Self {
        let turn = File::create(std::env::temp_dir().join("longhaul-cc-test.lock")).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        wait_until("an earlier test's congestion controls went", || {
            !registered().contains(" lh_")
        });
        Self {
            bpffs: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.bpffs.path()
    }

    /// `longhaul cc ARGS`, ready to start.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(longhaul_testbed::longhaul());
        command
            .arg("cc")
            .args(args)
            .arg("--bpffs")
            .arg(self.bpffs());
        command
    }

    /// Its exit code and all that it said.
    pub(crate) fn cc(&self, args: &[&str]) -> (i32, String) {
        ended(&self.command(args).output().unwrap())
    }

    /// What it said; it must have succeeded.
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let (code, said) = self.cc(args);
        assert_eq!(code, 0, "cc {args:?}: {said}");
        said
    }

    /// A look at all connections.
    pub(crate) fn watch(&self) -> Vec<Value> {
        let said = self.done(&["watch", "--once", "--json"]);
        let lines = said.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    /// The record of the connection with this local port.
    pub(crate) fn watched(&self, port: u16) -> Option<Value> {
        let end = format!(":{port}");
        let mut all = self.watch().into_iter();
        all.find(|seen| seen["local"].as_str().unwrap().ends_with(&end))
    }

    pub(crate) fn show(&self) -> Value {
        serde_json::from_str(&self.done(&["show", "scalable", "--json"])).unwrap()
    }

    /// Directories below the place of pins.
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

pub(crate) fn ended(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    (output.status.code().expect("no signal"), text)
}

pub(crate) fn is_registered() -> bool {
    registered().split_whitespace().any(|name| name == NAME)
}

fn registered() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

/// Patience only says how long a failure takes.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "not yet: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A network namespace with its loopback up; gone on drop.
pub(crate) struct Namespace {
    pub(crate) netns: Netns,
    pub(crate) name: String,
}

impl Namespace {
    pub(crate) fn new(what: &str) -> Self {
        let name = format!("ccmd-{what}-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        interface::bring_up(&netns, "lo").unwrap();
        Self { netns, name }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Netns::delete(&self.name));
    }
}

/// Makes this thread one of nobody's, for good: without any capability.
pub(crate) fn become_nobody() {
    let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
    rustix::thread::set_thread_groups(&[]).unwrap();
    // Before the user, who would not be allowed to.
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// Both ends of a connection, the sender's using the congestion control.
pub(crate) struct Connection {
    pub(crate) sender: TcpStream,
    pub(crate) receiver: TcpStream,
}

impl Connection {
    /// Chooses before it connects; `None` leaves it to the default.
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

    /// Moves bytes over it and compares each.
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

/// A thread of an unprivileged user in another namespace, that works when it is told.
pub(crate) struct Stranger {
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

type Order = Box<dyn FnOnce(&mut Option<Connection>) + Send>;

impl Stranger {
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

    /// Has it done, and waits.
    pub(crate) fn does<T: Send + 'static>(
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

impl Drop for Stranger {
    fn drop(&mut self) {
        let (idle, _) = mpsc::channel();
        self.orders = idle;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
