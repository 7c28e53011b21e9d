// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers of the program's sockets, which grow beyond `net.ipv4.tcp_wmem` with the congestion window. Without that,
//! a host with default settings sends no more than 2 to 4 MB a round trip, whatever the congestion control.

use anyhow::{Context, Result};
use longhaul_linux::{
    process_sockets, send_buffer,
    tcp_info::TcpInfo,
    transient_cgroup::{Processes, TransientCgroup},
};
use rustix::process::Pid;
use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Shortest time between two looks. On paths where send buffers matter, it is a few round trips at most.
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Share of the time that looks may take, one over this: programs with thousands of sockets are looked at less often.
const TIME_SHARE: u32 = 50;

/// Send buffers of all processes of a program.
#[derive(Debug)]
pub(super) struct SendBuffers {
    processes: Arc<Processes>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    largest: AtomicU64,
    errno: AtomicI32,
}

impl SendBuffers {
    pub(super) fn new(cgroup: &TransientCgroup) -> Result<Self> {
        let processes = cgroup.processes();
        let processes = processes.context("cannot list the program's processes")?;
        Ok(Self {
            processes: Arc::new(processes),
            state: Arc::default(),
        })
    }

    /// Starts a thread that looks at the sockets until the cgroup is gone. A program that starts after that would not
    /// inherit that signal 33 is ignored, which the first thread of a process handles (glibc's setxid).
    pub(super) fn watch(&self) {
        let (processes, state) = (Arc::clone(&self.processes), Arc::clone(&self.state));
        thread::spawn(move || watch(&processes, &state));
    }

    /// Returns the largest send buffer in bytes, as the kernel counts it; `None` if none was enlarged.
    pub(super) fn largest(&self) -> Option<u64> {
        Some(self.state.largest.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Returns why a send buffer could not be enlarged.
    pub(super) fn error(&self) -> Option<io::Error> {
        let errno = Some(self.state.errno.load(Relaxed)).filter(|errno| *errno > 0);
        errno.map(io::Error::from_raw_os_error)
    }
}

fn watch(processes: &Processes, state: &State) {
    while let Ok(list) = processes.list() {
        let began = Instant::now();
        list.iter()
            .flat_map(sockets)
            .for_each(|socket| look(&socket, state));
        thread::sleep(INTERVAL_MIN.max(began.elapsed() * TIME_SHARE));
    }
}

fn sockets(process: &Pid) -> impl Iterator<Item = OwnedFd> {
    process_sockets::tcp(process.as_raw_pid().unsigned_abs(), |_| true)
}

/// Enlarges the send buffer of `socket`, if that is worthwhile.
fn look(socket: &OwnedFd, state: &State) {
    let enlarged = TcpInfo::of(socket).and_then(|info| send_buffer::enlarge(socket, &info));
    match enlarged {
        Ok(Some(bytes)) => drop(state.largest.fetch_max(bytes, Relaxed)),
        Ok(None) => {}
        Err(error) => state
            .errno
            .store(error.raw_os_error().unwrap_or_default(), Relaxed),
    }
}
