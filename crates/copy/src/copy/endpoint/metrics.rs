// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of an endpoint: the time of its threads by stage, and the TCP state of its streams' sockets.

use longhaul_linux::{
    limiter::{BusyTimes, Limiter, limiter_of_rest},
    tcp_info::TcpInfo,
};
use longhaul_scheduling::{Metrics, Network, Stage, StageTimes};
use longhaul_transport::blocking;
use parking_lot::Mutex;
use rustix::{
    net::sockopt::tcp_congestion,
    time::{ClockId, clock_gettime},
};
use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

/// Minimum time between two samples of a socket. The kernel counts limited time in jiffies: closer samples
/// are too coarse.
const SAMPLE_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Interval between readings of a thread's run-queue wait, a system call each.
const RUNQUEUE_WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Metrics shared by all threads of an endpoint.
#[derive(Debug, Clone)]
pub(super) struct EndpointMetrics(Arc<Mutex<MetricsState>>);

#[derive(Debug)]
struct MetricsState {
    started_at: Instant,
    next_number: u64,
    threads: BTreeMap<u64, MeasuredThread>,
    /// Times of threads that have ended, and samples of all sockets.
    ended: Metrics,
}

#[derive(Debug)]
struct MeasuredThread {
    times: Arc<Mutex<ThreadTimes>>,
    socket: Option<MeasuredSocket>,
}

/// Socket of a stream that sends, with its last sample.
#[derive(Debug)]
struct MeasuredSocket {
    handle: Arc<blocking::Connection>,
    sampled_at: Instant,
    last_info: TcpInfo,
}

/// Times of one thread so far.
#[derive(Debug, Clone, Copy)]
struct ThreadTimes {
    stages: StageTimes,
    runqueue_wait_us: u64,
    stage: Stage,
    stage_start: Instant,
}

/// Measurement of one thread, which owns it. Dropping it records the end of the thread.
#[derive(Debug)]
pub(super) struct ThreadMeasurement {
    times: Arc<Mutex<ThreadTimes>>,
    /// CPU time of the thread at the start of the stage.
    cpu_time: Duration,
    runqueue_wait: RunqueueWait,
    number: u64,
    metrics: EndpointMetrics,
}

impl Default for EndpointMetrics {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(MetricsState {
            started_at: Instant::now(),
            next_number: 0,
            threads: BTreeMap::new(),
            ended: Metrics {
                cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
                machine: boot_number(),
                ..Metrics::default()
            },
        })))
    }
}

impl EndpointMetrics {
    /// Starts to measure the calling thread, and the socket that it writes to, if any.
    pub(super) fn measure_thread(
        &self,
        stage: Stage,
        socket: Option<Arc<blocking::Connection>>,
    ) -> ThreadMeasurement {
        let socket = socket.and_then(|handle| {
            let last = handle.tcp_info()?;
            let at = Instant::now();
            Some(MeasuredSocket {
                handle,
                sampled_at: at,
                last_info: last,
            })
        });
        let tcp = socket.as_ref().and_then(|socket| socket.handle.tcp());
        let control = tcp.map(tcp_congestion);
        let runqueue_wait = RunqueueWait::new();
        let mut state = self.0.lock();
        if let Some(Ok(control)) = control {
            state.ended.network.ignores_single_losses = control.starts_with("bbr");
        }
        let number = state.next_number;
        state.next_number += 1;
        let times = Arc::new(Mutex::new(ThreadTimes {
            stages: StageTimes::default(),
            runqueue_wait_us: 0,
            stage,
            stage_start: Instant::now(),
        }));
        let measured = MeasuredThread {
            times: times.clone(),
            socket,
        };
        state.threads.insert(number, measured);
        ThreadMeasurement {
            times,
            cpu_time: thread_time(),
            runqueue_wait,
            number,
            metrics: self.clone(),
        }
    }

    /// Returns all measurements so far.
    pub(super) fn read(&self) -> Metrics {
        self.0.lock().read()
    }
}

impl ThreadMeasurement {
    /// Switches the thread to another stage. That reads two clocks, which takes some 0.5 µs: once or twice a block.
    pub(super) fn enter(&mut self, stage: Stage) {
        let (now, cpu_time) = (Instant::now(), thread_time());
        let runqueue_wait_us = self.runqueue_wait.read_delta(now);
        let mut times = self.times.lock();
        let ran_us = micros(cpu_time.saturating_sub(self.cpu_time));
        let took_us = micros(now.duration_since(times.stage_start));
        let before = times.stage;
        times.stages[before].ran_us += ran_us;
        times.stages[before].waited_us += took_us.saturating_sub(ran_us);
        times.runqueue_wait_us += runqueue_wait_us;
        (times.stage, times.stage_start) = (stage, now);
        self.cpu_time = cpu_time;
    }
}

impl Drop for ThreadMeasurement {
    fn drop(&mut self) {
        self.enter(Stage::Waiting);
        let times = *self.times.lock();
        let mut state = self.metrics.0.lock();
        if let Some(MeasuredThread { socket, .. }) = state.threads.remove(&self.number)
            && let Some(mut socket) = socket
        {
            socket.sample(&times, &mut state.ended.network);
        }
        add_thread(&mut state.ended, &times);
    }
}

impl ThreadTimes {
    /// Returns the times with the current stage counted as waiting: only the thread itself can read its CPU
    /// clock.
    fn snapshot(&self) -> Self {
        let mut snapshot = *self;
        snapshot.stages[self.stage].waited_us += micros(self.stage_start.elapsed());
        snapshot
    }
}

impl MetricsState {
    fn read(&mut self) -> Metrics {
        let (mut threads, mut rtts) = (Metrics::default(), Vec::new());
        for thread in self.threads.values_mut() {
            let times = thread.times.lock().snapshot();
            add_thread(&mut threads, &times);
            if let Some(socket) = &mut thread.socket {
                socket.sample(&times, &mut self.ended.network);
                rtts.push((socket.last_info.rtt_us, socket.last_info.rtt_min_us));
            }
        }
        record_rtts(&rtts, &mut self.ended.network);
        let mut all = self.ended;
        all.elapsed_us = self.started_at.elapsed().as_micros() as u64;
        all.stages.add(&threads.stages);
        all.runqueue_wait_us += threads.runqueue_wait_us;
        all
    }
}

fn add_thread(to: &mut Metrics, times: &ThreadTimes) {
    to.stages.add(&times.stages);
    to.runqueue_wait_us += times.runqueue_wait_us;
}

/// Sets the number of streams and their round-trip times from `(rtt, minimum rtt)` of each stream, in
/// microseconds. All streams share a path, so the smallest minimum is the RTT of the path without a queue.
/// After the last stream ends, the last known RTTs remain.
fn record_rtts(rtts: &[(u32, u32)], network: &mut Network) {
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

impl MeasuredSocket {
    fn sample(&mut self, times: &ThreadTimes, to: &mut Network) {
        let (now, elapsed) = (Instant::now(), self.sampled_at.elapsed());
        if elapsed < SAMPLE_INTERVAL_MIN {
            return;
        }
        let Some(info) = self.handle.tcp_info() else {
            return;
        };
        let spent = BusyTimes::between(&self.last_info, &info, elapsed.as_micros() as u64);
        let waits = times.stage == Stage::Sending;
        to.add_limited_time(Limiter::ReceiveWindow, spent.receive_window_us);
        to.add_limited_time(Limiter::SendBuffer, spent.send_buffer_us);
        to.add_limited_time(uncounted_limiter(&info, waits), spent.rest_us);
        let delta = |of: fn(&TcpInfo) -> u64| of(&info).saturating_sub(of(&self.last_info));
        to.sent_bytes += delta(|info| info.sent_bytes);
        to.retransmitted_bytes += delta(|info| info.retransmitted_bytes);
        to.retransmitted_segments += delta(|info| info.retransmits.into());
        (self.sampled_at, self.last_info) = (now, info);
    }
}

/// Run-queue wait, from `/proc/thread-self/schedstat`: time on a CPU and time waiting for one, both in
/// nanoseconds (Linux Documentation/scheduler/sched-stats.rst). Zero if the kernel lacks the file.
#[derive(Debug)]
struct RunqueueWait {
    file: Option<File>,
    waited_ns: u64,
    read_at: Instant,
}

impl RunqueueWait {
    fn new() -> Self {
        let file = File::open("/proc/thread-self/schedstat").ok();
        Self {
            waited_ns: file.as_ref().and_then(waited_ns).unwrap_or_default(),
            file,
            read_at: Instant::now(),
        }
    }

    /// Returns the wait since the last reading, in microseconds; 0 if that was a moment ago.
    fn read_delta(&mut self, now: Instant) -> u64 {
        if now.duration_since(self.read_at) < RUNQUEUE_WAIT_INTERVAL {
            return 0;
        }
        self.read_at = now;
        let Some(waited) = self.file.as_ref().and_then(waited_ns) else {
            return 0;
        };
        let delta_ns = waited.saturating_sub(self.waited_ns);
        self.waited_ns = waited;
        delta_ns / 1000
    }
}

fn waited_ns(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or_default());
    seconds + Duration::from_nanos(time.tv_nsec.try_into().unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Returns the limiter of the time for which the kernel keeps no counter.
fn uncounted_limiter(info: &TcpInfo, writer_waits: bool) -> Limiter {
    let rate_max = info.max_pacing_rate_bytes_per_s;
    let is_user_rate = rate_max < u64::MAX && info.pacing_rate_bytes_per_s >= rate_max;
    match limiter_of_rest(info, writer_waits) {
        Limiter::Pacing if !is_user_rate => Limiter::CongestionWindow,
        limiter => limiter,
    }
}

/// Returns a number shared by all processes of a machine until it reboots. Containers on it return the same
/// number, because they share its CPUs.
fn boot_number() -> u64 {
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

    /// A sleeping thread waits; a thread that loops until its CPU clock moves runs.
    #[test]
    fn measures_running_and_waiting_by_stage() {
        let metrics = EndpointMetrics::default();
        let mut measurement = metrics.measure_thread(Stage::Reading, None);
        std::thread::sleep(Duration::from_millis(20));
        measurement.enter(Stage::Hashing);
        let start = thread_time();
        while thread_time() - start < Duration::from_millis(10) {}
        drop(measurement);
        let stages = metrics.read().stages;
        assert!(stages[Stage::Reading].waited_us >= 15_000, "{stages:?}");
        assert!(stages[Stage::Hashing].ran_us >= 10_000, "{stages:?}");
        assert_eq!(stages[Stage::Sending].ran_us, 0);
    }

    #[test]
    fn keeps_times_of_ended_threads() {
        let metrics = EndpointMetrics::default();
        let waited = |metrics: &EndpointMetrics| metrics.read().stages[Stage::Reading].waited_us;
        let measurement = metrics.measure_thread(Stage::Reading, None);
        std::thread::sleep(Duration::from_millis(5));
        assert!(waited(&metrics) >= 5_000, "current stage");
        drop(measurement);
        assert!(waited(&metrics) >= 4_000, "ended");
        assert!(metrics.0.lock().threads.is_empty());
        assert!(metrics.read().elapsed_us >= 5_000);
    }

    #[test]
    fn ignores_streams_without_rtt_samples() {
        let mut network = Network::default();
        record_rtts(&[(10, 4), (30, 8), (0, u32::MAX)], &mut network);
        assert_eq!(network.streams, 3);
        assert_eq!((network.rtt_us, network.rtt_min_us), (20, 4));
        record_rtts(&[], &mut network);
        assert_eq!((network.streams, network.rtt_us), (0, 20));
    }
}
