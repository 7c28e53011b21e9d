// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of an endpoint: the time of its threads by stage, and the TCP state of its streams' sockets.

use super::stopwatch::{Course, Seen, Stopwatch};
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_scheduling::{Metrics, Network, Stage};
use longhaul_tcpsim::limiter::{Limiter, Snapshot, limiter};
use longhaul_transport::blocking::Handle;
use parking_lot::Mutex;
use rustix::net::sockopt::tcp_congestion;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Minimum time between two samples of a socket. The kernel counts limited time in jiffies: closer samples
/// are too coarse.
const LOOKS_APART: Duration = Duration::from_millis(100);

/// Metrics shared by all threads of an endpoint.
#[derive(Debug, Clone)]
pub(super) struct Gauges(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    began: Instant,
    next: u64,
    threads: BTreeMap<u64, Thread>,
    /// Times of threads that have ended, and samples of all sockets.
    past: Metrics,
}

#[derive(Debug)]
struct Thread {
    seen: Seen,
    socket: Option<Socket>,
}

/// Socket of a stream that sends, with its last sample.
#[derive(Debug)]
struct Socket {
    handle: Handle,
    at: Instant,
    last: TcpInfo,
}

/// Measurement of one thread. Dropping it records the end of the thread.
#[derive(Debug)]
pub(super) struct Gauge {
    watch: Stopwatch,
    number: u64,
    of: Gauges,
}

impl Default for Gauges {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            began: Instant::now(),
            next: 0,
            threads: BTreeMap::new(),
            past: Metrics {
                cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
                machine: machine(),
                ..Metrics::default()
            },
        })))
    }
}

impl Gauges {
    /// Starts to measure the calling thread, and the socket that it writes to, if any.
    pub(super) fn of_thread(&self, stage: Stage, socket: Option<Handle>) -> Gauge {
        let watch = Stopwatch::start(stage);
        let socket = socket.and_then(|handle| {
            let last = handle.connection().tcp_info()?;
            let at = Instant::now();
            Some(Socket { handle, at, last })
        });
        let tcp = socket.as_ref().and_then(|it| it.handle.connection().tcp());
        let control = tcp.map(tcp_congestion);
        let mut state = self.0.lock();
        if let Some(Ok(control)) = control {
            state.past.network.shrugs_off_losses = control.starts_with("bbr");
        }
        let number = state.next;
        state.next += 1;
        let seen = watch.seen();
        state.threads.insert(number, Thread { seen, socket });
        Gauge {
            watch,
            number,
            of: self.clone(),
        }
    }

    /// Returns all measurements so far.
    pub(super) fn read(&self) -> Metrics {
        self.0.lock().read()
    }
}

impl Gauge {
    /// Switches the thread to another stage.
    pub(super) fn begin(&mut self, stage: Stage) {
        self.watch.begin(stage);
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        let course = self.watch.stop();
        let mut state = self.of.0.lock();
        if let Some(Thread { socket, .. }) = state.threads.remove(&self.number)
            && let Some(mut socket) = socket
        {
            socket.look(&course, &mut state.past.network);
        }
        add(&mut state.past, &course);
    }
}

impl State {
    fn read(&mut self) -> Metrics {
        let (mut threads, mut rtts) = (Metrics::default(), Vec::new());
        for thread in self.threads.values_mut() {
            let Some(course) = thread.seen.upgrade() else {
                continue;
            };
            let course = course.lock().now();
            add(&mut threads, &course);
            if let Some(socket) = &mut thread.socket {
                socket.look(&course, &mut self.past.network);
                rtts.push((socket.last.rtt_us, socket.last.rtt_min_us));
            }
        }
        enter(&rtts, &mut self.past.network);
        let mut all = self.past;
        all.elapsed_us = self.began.elapsed().as_micros() as u64;
        all.stages.add(&threads.stages);
        all.crowded_us += threads.crowded_us;
        all
    }
}

fn add(to: &mut Metrics, course: &Course) {
    to.stages.add(&course.stages);
    to.crowded_us += course.crowded_us;
}

/// Sets the number of streams and their round-trip times from `(rtt, minimum rtt)` of each stream, in
/// microseconds. All streams share a path, so the smallest minimum is the RTT of the path without a queue.
/// After the last stream ends, the last known RTTs remain.
fn enter(rtts: &[(u32, u32)], network: &mut Network) {
    network.streams = rtts.len() as u32;
    let known: Vec<_> = rtts.iter().filter(|(_, min)| *min < u32::MAX).collect();
    let Some(min) = known.iter().map(|(_, min)| *min).min() else {
        return;
    };
    let sum: u64 = known.iter().map(|(rtt, _)| u64::from(*rtt)).sum();
    network.rtt_us = (sum / known.len() as u64) as u32;
    network.rtt_min_us = match network.rtt_min_us {
        0 => min,
        before => before.min(min),
    };
}

impl Socket {
    fn look(&mut self, course: &Course, to: &mut Network) {
        let (now, elapsed) = (Instant::now(), self.at.elapsed());
        if elapsed < LOOKS_APART {
            return;
        }
        let Some(info) = self.handle.connection().tcp_info() else {
            return;
        };
        let elapsed_us = elapsed.as_micros() as u64;
        let waits = course.is_in(Stage::Sending);
        let more = |of: fn(&TcpInfo) -> u64| of(&info).saturating_sub(of(&self.last));
        let busy = more(|info| info.busy_us).min(elapsed_us);
        let window = more(|info| info.rwnd_limited_us);
        let buffer = more(|info| info.sndbuf_limited_us);
        to.limited(Limiter::ReceiveWindow, window);
        to.limited(Limiter::SendBuffer, buffer);
        let rest = busy.saturating_sub(window + buffer);
        to.limited(rest_limiter(&info, waits), rest);
        to.sent_bytes += more(|info| info.sent_bytes);
        to.again_bytes += more(|info| info.retransmitted_bytes);
        to.again_segments += more(|info| info.retransmits.into());
        (self.at, self.last) = (now, info);
    }
}

/// Returns the limiter of the time for which the kernel keeps no counter.
fn rest_limiter(info: &TcpInfo, writer_waits: bool) -> Limiter {
    let look = Snapshot {
        busy_us: 1,
        notsent_bytes: info.notsent_bytes,
        in_flight_segments: info.in_flight_segments,
        cwnd_segments: info.cwnd_segments,
        mss_bytes: info.mss_bytes,
        send_window_bytes: info.send_window_bytes,
        writer_waits,
        ..Snapshot::default()
    };
    let most = info.max_pacing_rate_bytes_per_s;
    let asked_for = most < u64::MAX && info.pacing_rate_bytes_per_s >= most;
    match limiter(&Snapshot::default(), &look, 1) {
        Limiter::Pacing if !asked_for => Limiter::CongestionWindow,
        limiter => limiter,
    }
}

/// Returns a number shared by all processes of a machine until it reboots. Containers on it return the same
/// number, because they share its CPUs.
fn machine() -> u64 {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(16)
        .collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_threads_that_ended_is_kept() {
        let gauges = Gauges::default();
        let waited = |gauges: &Gauges| gauges.read().stages[Stage::Reading].waited_us;
        let gauge = gauges.of_thread(Stage::Reading, None);
        std::thread::sleep(Duration::from_millis(5));
        assert!(waited(&gauges) >= 5_000, "under way");
        drop(gauge);
        assert!(waited(&gauges) >= 4_000, "ended");
        assert!(gauges.0.lock().threads.is_empty());
        assert!(gauges.read().elapsed_us >= 5_000);
    }

    #[test]
    fn round_trips_are_of_streams_that_know_theirs() {
        let mut network = Network::default();
        enter(&[(10, 4), (30, 8), (0, u32::MAX)], &mut network);
        assert_eq!(network.streams, 3);
        assert_eq!((network.rtt_us, network.rtt_min_us), (20, 4));
        enter(&[], &mut network);
        assert_eq!((network.streams, network.rtt_us), (0, 20));
    }
}
