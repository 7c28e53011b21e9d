// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bottleneck of a copy, found from the measurements of both ends, with its evidence.
//!
//! A stream's thread does one thing after another, so the time in each stage shows the resource that it waits for. The
//! source's streams read, hash, encrypt and write to sockets. If they wait for sockets, there are two cases. The
//! target's streams may be slow to read from their sockets, which the times of their stages show. Otherwise the network
//! is the bottleneck, and the sockets tell which part of it.

use super::{Metrics, Network, Stage};
use longhaul_linux::limiter::Limiter;
use std::fmt;

/// The shortest interval that a verdict is given on, in microseconds.
const INTERVAL_MIN_US: u64 = 500_000;

/// The share of a machine's CPUs in use from which on more work would find no free CPU.
const CPU_SHARE_FULL: f64 = 0.9;

/// The share of time below which a working thread is no bottleneck: a short copy consists mostly of round trips.
const THREAD_SHARE_MIN: f64 = 0.25;

/// The ratio of RTT to smallest RTT from which on a queue stands on the path.
const QUEUE_RTT_RATIO: f64 = 1.25;

/// The share of time from which on a full buffer or window is too small. Such a buffer limits for longer than it is
/// full: a congestion control that models the path takes the rate through a full buffer for the rate of the path. For
/// the rest of the time it paces at that rate.
const WINDOW_FULL_MIN: f64 = 0.25;

/// The share of retransmitted bytes from which on losses limit a loss-based congestion control. Such controls have more
/// than one in 100,000 on any path that limits them to less than some Gbit/s.
const LOSS_MIN: f64 = 1e-5;

/// The share of retransmitted bytes from which on losses limit BBR. BBR keeps its rate up to some 15 % (Cardwell et
/// al., ACM Queue 2016, figure 8), and causes losses of some percent itself where queues are short.
const LOSS_MIN_BBR: f64 = 0.15;

/// Endpoint of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The endpoint that reads files.
    Source,
    /// The endpoint that writes files.
    Target,
}

/// The resource that limits the rate of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading files.
    SourceDisk,
    /// Finding the files to copy.
    SourceFiles,
    /// The source's CPUs, or the single CPU that each of its streams can use.
    SourceCpu,
    /// Writing files and making them durable.
    TargetDisk,
    /// Finding the files that the target has already.
    TargetFiles,
    /// The target's CPUs, or the single CPU that each of its streams can use.
    TargetCpu,
    /// The CPUs of the machine that both ends run on.
    Cpu,
    /// The source's socket buffers, which are smaller than the bandwidth–delay product.
    SendBuffer,
    /// The target's receive windows, which are smaller than the bandwidth–delay product.
    ReceiveWindow,
    /// Losses, which keep congestion windows small.
    Loss,
    /// The capacity of the path.
    Path,
    /// The ssh connections that carry the data.
    Ssh,
    /// Pacing that the user set.
    Pacing,
    /// A limit that the user set.
    Limit,
    /// An endpoint that has become silent.
    Peer,
}

impl Bottleneck {
    /// The bottleneck's name in JSON records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceDisk => "source_disk",
            Self::SourceFiles => "source_files",
            Self::SourceCpu => "source_cpu",
            Self::TargetDisk => "target_disk",
            Self::TargetFiles => "target_files",
            Self::TargetCpu => "target_cpu",
            Self::Cpu => "cpu",
            Self::SendBuffer => "send_buffer",
            Self::ReceiveWindow => "receive_window",
            Self::Loss => "loss",
            Self::Path => "path",
            Self::Ssh => "ssh",
            Self::Pacing => "pacing",
            Self::Limit => "limit",
            Self::Peer => "peer",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::SourceDisk => "reading at the source",
            Self::SourceFiles => "looking for files at the source",
            Self::SourceCpu => "CPU at the source",
            Self::TargetDisk => "writing at the target",
            Self::TargetFiles => "looking up files at the target",
            Self::TargetCpu => "CPU at the target",
            Self::Cpu => "CPU of the machine that both ends run on",
            Self::SendBuffer => "send buffers (net.ipv4.tcp_wmem at the source)",
            Self::ReceiveWindow => "receive windows (net.ipv4.tcp_rmem at the target)",
            Self::Loss => "losses on the path",
            Self::Path => "the path's rate",
            Self::Ssh => "ssh, which carries the data",
            Self::Pacing => "--pacing",
            Self::Limit => "--limit",
            Self::Peer => "a silent endpoint",
        }
    }
}

/// A bottleneck and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The resource that limits the copy.
    pub bottleneck: Bottleneck,
    /// The measurements that show it, in words.
    pub evidence: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.bottleneck.description(), self.evidence)
    }
}

impl Verdict {
    /// The verdict on an interval, from the measurements of both ends. `None` if the interval is too short or shows no
    /// bottleneck.
    #[must_use]
    pub fn of(source: &Metrics, target: &Metrics) -> Option<Self> {
        if source.elapsed_us.min(target.elapsed_us) < INTERVAL_MIN_US {
            return None;
        }
        let source_time = SourceTime::of(source);
        if source_time.total() == 0 {
            return None;
        }
        if let Some(verdict) = judge_cpus(source, target) {
            return Some(verdict);
        }
        if source_time.is_idle() {
            let idle = percent(source_time.idle, source_time.total());
            return judge_other_threads(&idle, source, target);
        }
        let of_streams = source_time.verdict();
        let verdict = of_streams.or_else(|| TargetTime::of(target).verdict(target));
        Some(verdict.unwrap_or_else(|| judge_network(source)))
    }

    /// The verdict on an endpoint that has sent nothing for `seconds`.
    #[must_use]
    pub fn silent(end: Endpoint, seconds: u64) -> Self {
        let which = match end {
            Endpoint::Source => "source",
            Endpoint::Target => "target",
        };
        Self::new(
            Bottleneck::Peer,
            format!("no report from the {which} for {seconds} s"),
        )
    }

    /// The verdict on a copy whose data goes through ssh. What the endpoints measure of the network is then the
    /// connection to ssh on their own host.
    #[must_use]
    pub fn through_ssh(self) -> Self {
        match self.bottleneck {
            Bottleneck::SendBuffer
            | Bottleneck::ReceiveWindow
            | Bottleneck::Loss
            | Bottleneck::Path => Self::new(
                Bottleneck::Ssh,
                "each stream has at most 2 MB on the way, and its encryption takes a CPU"
                    .to_owned(),
            ),
            _ => self,
        }
    }

    fn new(bottleneck: Bottleneck, evidence: String) -> Self {
        Self {
            bottleneck,
            evidence,
        }
    }
}

/// The verdict if all CPUs of a machine are in use or waited for.
fn judge_cpus(source: &Metrics, target: &Metrics) -> Option<Verdict> {
    let (at_source, at_target) = (source.cpu_demand(), target.cpu_demand());
    if source.machine == target.machine {
        return judge_machine(Bottleneck::Cpu, at_source + at_target, source.cpus);
    }
    // The machines may differ in CPUs, so shares are compared.
    if cpu_share(at_source, source.cpus) >= cpu_share(at_target, target.cpus) {
        judge_machine(Bottleneck::SourceCpu, at_source, source.cpus)
    } else {
        judge_machine(Bottleneck::TargetCpu, at_target, target.cpus)
    }
}

fn judge_machine(bottleneck: Bottleneck, demand: f64, cpus: u32) -> Option<Verdict> {
    let evidence = || format!("its threads ran on or waited for {demand:.1} CPUs of {cpus}");
    (cpu_share(demand, cpus) >= CPU_SHARE_FULL).then(|| Verdict::new(bottleneck, evidence()))
}

fn cpu_share(demand: f64, cpus: u32) -> f64 {
    demand / f64::from(cpus.max(1))
}

/// Time of the source's streams, in microseconds.
struct SourceTime {
    idle: u64,
    on_cpu: u64,
    file_wait: u64,
    socket_wait: u64,
    limit_wait: u64,
}

impl SourceTime {
    fn of(source: &Metrics) -> Self {
        let stages = &source.stages;
        let (reading, hashing) = (stages[Stage::Reading], stages[Stage::Hashing]);
        let (sending, idle) = (stages[Stage::Sending], stages[Stage::Idle]);
        Self {
            idle: idle.ran_us + idle.waited_us,
            on_cpu: reading.ran_us + hashing.ran_us + hashing.waited_us + sending.ran_us,
            file_wait: reading.waited_us,
            socket_wait: sending.waited_us,
            limit_wait: stages[Stage::Limited].waited_us,
        }
    }

    fn parts(&self) -> [u64; 5] {
        [
            self.idle,
            self.on_cpu,
            self.file_wait,
            self.socket_wait,
            self.limit_wait,
        ]
    }

    fn total(&self) -> u64 {
        self.parts().iter().sum()
    }

    fn largest(&self) -> u64 {
        self.parts().into_iter().max().unwrap_or_default()
    }

    fn is_idle(&self) -> bool {
        self.idle == self.largest()
    }

    /// The verdict, unless the streams wait for sockets.
    fn verdict(&self) -> Option<Verdict> {
        let percent = |part| percent(part, self.total());
        let largest = self.largest();
        if largest == self.socket_wait {
            return None;
        }
        Some(if largest == self.file_wait {
            let waited = percent(self.file_wait);
            Verdict::new(
                Bottleneck::SourceDisk,
                format!("its streams waited {waited} of the time for files to be read"),
            )
        } else if largest == self.limit_wait {
            let waited = percent(self.limit_wait);
            Verdict::new(
                Bottleneck::Limit,
                format!("streams waited {waited} of the time until it let them send"),
            )
        } else {
            let (on_cpu, waited) = (percent(self.on_cpu), percent(self.socket_wait));
            Verdict::new(
                Bottleneck::SourceCpu,
                format!(
                    "each stream read, hashed and encrypted {on_cpu} of the time and waited {waited} for its socket; more streams use more CPUs"
                ),
            )
        })
    }
}

/// The verdict if streams had nothing to send: too few files were found, or files that were sent are not completed yet.
fn judge_other_threads(idle: &str, source: &Metrics, target: &Metrics) -> Option<Verdict> {
    let share = |end: &Metrics, stage| {
        let spent = end.stages[stage];
        (spent.ran_us + spent.waited_us) as f64 / end.elapsed_us.max(1) as f64
    };
    let (scan, lookup) = (
        share(source, Stage::Scanning),
        share(target, Stage::Scanning),
    );
    let sync = share(target, Stage::Syncing);
    let largest = scan.max(lookup).max(sync);
    if largest < THREAD_SHARE_MIN {
        return None;
    }
    let took = format!("took {:.0} % of the time", largest * 100.0);
    let (bottleneck, activity) = if largest == scan {
        (Bottleneck::SourceFiles, "it")
    } else if largest == lookup {
        (Bottleneck::TargetFiles, "it")
    } else {
        (Bottleneck::TargetDisk, "syncing and renaming files")
    };
    let evidence = format!("{activity} {took}, and streams had nothing to send for {idle}");
    Some(Verdict::new(bottleneck, evidence))
}

/// Time of the target's streams, in microseconds.
struct TargetTime {
    socket_wait: u64,
    on_cpu: u64,
    write_wait: u64,
}

impl TargetTime {
    fn of(target: &Metrics) -> Self {
        let (receiving, writing) = (
            target.stages[Stage::Receiving],
            target.stages[Stage::Writing],
        );
        Self {
            socket_wait: receiving.waited_us,
            on_cpu: receiving.ran_us + writing.ran_us,
            write_wait: writing.waited_us,
        }
    }

    /// The verdict, unless the streams wait for data.
    fn verdict(&self, target: &Metrics) -> Option<Verdict> {
        let total = self.socket_wait + self.on_cpu + self.write_wait;
        let largest = self.socket_wait.max(self.on_cpu).max(self.write_wait);
        let data_wait = percent(self.socket_wait, total);
        if largest == self.socket_wait {
            return None;
        }
        Some(if largest == self.write_wait {
            let write_wait = percent(self.write_wait, total);
            let syncing = target.stages[Stage::Syncing];
            let sync = percent(syncing.ran_us + syncing.waited_us, target.elapsed_us);
            Verdict::new(
                Bottleneck::TargetDisk,
                format!(
                    "its streams waited {write_wait} of the time for writes and {data_wait} for data; syncing took {sync}"
                ),
            )
        } else {
            let on_cpu = percent(self.on_cpu, total);
            Verdict::new(
                Bottleneck::TargetCpu,
                format!(
                    "each stream decrypted, checked and wrote {on_cpu} of the time and waited {data_wait} for data; more streams use more CPUs"
                ),
            )
        })
    }
}

/// The verdict if the source waits for sockets and the target for data.
fn judge_network(source: &Metrics) -> Verdict {
    let network = &source.network;
    let limiter = main_limiter(network);
    let share = format!(
        "{:.0} % of the time",
        network.limited_share(limiter) * 100.0
    );
    let rtt = f64::from(network.rtt_us) / 1e3;
    match limiter {
        Limiter::SendBuffer => Verdict::new(
            Bottleneck::SendBuffer,
            format!("all that fits into them was in flight for {share}, RTT {rtt:.1} ms"),
        ),
        Limiter::ReceiveWindow => Verdict::new(
            Bottleneck::ReceiveWindow,
            format!(
                "full for {share} though the target's streams waited for data, RTT {rtt:.1} ms"
            ),
        ),
        Limiter::Pacing => {
            Verdict::new(Bottleneck::Pacing, format!("it held data back for {share}"))
        }
        Limiter::CongestionWindow | Limiter::Application => judge_path(source, &share),
    }
}

/// The limiter that held for longest. A buffer, a window and pacing count from [`WINDOW_FULL_MIN`] on; otherwise it is
/// the congestion control.
fn main_limiter(network: &Network) -> Limiter {
    let [buffer, window, pacing] = [Limiter::SendBuffer, Limiter::ReceiveWindow, Limiter::Pacing];
    let shares = [buffer, window, pacing].map(|limiter| (limiter, network.limited_share(limiter)));
    let full = shares
        .into_iter()
        .filter(|(_, share)| *share >= WINDOW_FULL_MIN);
    let largest = full.max_by(|a, b| a.1.total_cmp(&b.1));
    largest.map_or(Limiter::CongestionWindow, |(limiter, _)| limiter)
}

/// The verdict if congestion windows limit: because of losses, or because the path is full.
fn judge_path(source: &Metrics, share: &str) -> Verdict {
    let network = &source.network;
    let (rtt, min) = (f64::from(network.rtt_us), f64::from(network.rtt_min_us));
    let loss = network.retransmitted_share();
    let lost = format!("{} of the bytes were retransmitted", format_share(loss));
    let rtts = format!("RTT {:.1} ms, minimum {:.1} ms", rtt / 1e3, min / 1e3);
    let has_queue = min > 0.0 && rtt >= QUEUE_RTT_RATIO * min;
    let loss_min = if network.ignores_single_losses {
        LOSS_MIN_BBR
    } else {
        LOSS_MIN
    };
    if loss >= loss_min && !has_queue {
        Verdict::new(
            Bottleneck::Loss,
            format!(
                "{lost} without a standing queue ({rtts}); the congestion control held back for {share}"
            ),
        )
    } else {
        let queue = if has_queue {
            "with a standing queue"
        } else {
            "without a standing queue"
        };
        Verdict::new(
            Bottleneck::Path,
            format!("the congestion control held back for {share} {queue} ({rtts}), {lost}"),
        )
    }
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// Formats a share in percent, or as a power of ten if it is below 0.1 %.
fn format_share(share: f64) -> String {
    match share {
        0.0 => "none".to_owned(),
        share if share < 1e-3 => format!("{share:.0e}"),
        share => format!("{:.1} %", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A second of measurements of a copy that the path limits, with four streams between two machines with four CPUs
    /// each.
    fn path_limited() -> (Metrics, Metrics) {
        let end = |machine| Metrics {
            elapsed_us: SECOND,
            cpus: 4,
            machine,
            ..Metrics::default()
        };
        let (mut source, mut target) = (end(1), end(2));
        set(&mut source, Stage::Reading, 100_000, 50_000);
        set(&mut source, Stage::Hashing, 200_000, 0);
        set(&mut source, Stage::Sending, 250_000, 3_400_000);
        set(&mut target, Stage::Receiving, 300_000, 3_300_000);
        set(&mut target, Stage::Writing, 300_000, 100_000);
        source.network.streams = 4;
        source.network.sent_bytes = 1_000_000_000;
        source.network.rtt_us = 20_500;
        source.network.rtt_min_us = 20_000;
        source
            .network
            .add_limited_time(Limiter::CongestionWindow, 4 * SECOND);
        (source, target)
    }

    fn set(end: &mut Metrics, stage: Stage, ran_us: u64, waited_us: u64) {
        end.stages[stage] = StageTime { ran_us, waited_us };
    }

    use super::super::StageTime;

    fn bottleneck(ends: &(Metrics, Metrics)) -> Bottleneck {
        Verdict::of(&ends.0, &ends.1).unwrap().bottleneck
    }

    #[test]
    fn streams_wait_for_the_bottleneck() {
        let mut ends = path_limited();
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
        set(&mut ends.0, Stage::Reading, 100_000, 3_400_001);
        assert_eq!(bottleneck(&ends), Bottleneck::SourceDisk);
        set(&mut ends.0, Stage::Reading, 100_000, 3_399_999);
        assert_eq!(
            bottleneck(&ends),
            Bottleneck::Path,
            "streams wait longer for sockets"
        );
        set(&mut ends.1, Stage::Writing, 300_000, 3_300_001);
        assert_eq!(bottleneck(&ends), Bottleneck::TargetDisk);
        set(&mut ends.0, Stage::Limited, 0, 3_400_001);
        assert_eq!(bottleneck(&ends), Bottleneck::Limit);
    }

    #[test]
    fn a_stream_is_limited_to_one_cpu() {
        let mut ends = path_limited();
        set(&mut ends.0, Stage::Hashing, 700_000, 0);
        set(&mut ends.0, Stage::Sending, 200_000, 0);
        assert_eq!(bottleneck(&ends), Bottleneck::SourceCpu);
        let mut ends = path_limited();
        set(&mut ends.1, Stage::Receiving, 600_000, 100_000);
        assert_eq!(bottleneck(&ends), Bottleneck::TargetCpu);
    }

    #[test]
    fn a_machine_without_a_free_cpu_is_the_bottleneck() {
        let mut ends = path_limited();
        set(&mut ends.0, Stage::Hashing, 2_000_000, 0);
        ends.0.runqueue_wait_us = 1_249_000;
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
        ends.0.runqueue_wait_us = 1_251_000;
        assert_eq!(bottleneck(&ends), Bottleneck::SourceCpu);
        ends.0.runqueue_wait_us = 0;
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
        ends.1.machine = 1;
        ends.1.runqueue_wait_us = 651_000;
        assert_eq!(
            bottleneck(&ends),
            Bottleneck::Cpu,
            "both want 3.6 of the same 4"
        );
    }

    #[test]
    fn compares_machines_by_the_share_of_their_cpus() {
        for (source, target, expected) in [
            ((4.0, 4), (5.0, 64), Bottleneck::SourceCpu),
            ((5.0, 64), (4.0, 4), Bottleneck::TargetCpu),
            ((3.7, 4), (64.0, 64), Bottleneck::TargetCpu),
            ((4.0, 4), (60.0, 64), Bottleneck::SourceCpu),
            ((3.5, 4), (5.0, 64), Bottleneck::Path),
        ] {
            let mut ends = path_limited();
            for (end, (demand, cpus)) in [(&mut ends.0, source), (&mut ends.1, target)] {
                let crowded = demand * SECOND as f64 - end.stages.ran_us() as f64;
                (end.runqueue_wait_us, end.cpus) = (crowded as u64, cpus);
            }
            assert_eq!(bottleneck(&ends), expected, "{source:?} {target:?}");
        }
    }

    #[test]
    fn idle_streams_wait_for_other_threads() {
        let mut ends = path_limited();
        set(&mut ends.0, Stage::Idle, 0, 4 * SECOND);
        set(&mut ends.0, Stage::Scanning, 100_000, 300_000);
        set(&mut ends.1, Stage::Scanning, 100_000, 200_000);
        assert_eq!(bottleneck(&ends), Bottleneck::SourceFiles);
        set(&mut ends.0, Stage::Scanning, 0, 249_000);
        set(&mut ends.1, Stage::Scanning, 0, 249_000);
        assert_eq!(Verdict::of(&ends.0, &ends.1), None);
        set(&mut ends.1, Stage::Scanning, 100_000, 800_000);
        assert_eq!(bottleneck(&ends), Bottleneck::TargetFiles);
        set(&mut ends.1, Stage::Syncing, 100_000, 800_001);
        assert_eq!(bottleneck(&ends), Bottleneck::TargetDisk);
    }

    #[test]
    fn sockets_show_the_window_that_limits() {
        for (limiter, expected) in [
            (Limiter::ReceiveWindow, Bottleneck::ReceiveWindow),
            (Limiter::SendBuffer, Bottleneck::SendBuffer),
            (Limiter::Pacing, Bottleneck::Pacing),
        ] {
            let mut ends = path_limited();
            ends.0.network.add_limited_time(limiter, 4 * SECOND / 3 + 1);
            assert_eq!(bottleneck(&ends), expected);
            ends.0
                .network
                .add_limited_time(Limiter::CongestionWindow, 4);
            assert_eq!(bottleneck(&ends), Bottleneck::Path);
        }
    }

    #[test]
    fn losses_are_the_bottleneck_unless_a_queue_stands() {
        let mut ends = path_limited();
        ends.0.network.retransmitted_bytes = 10_001;
        assert_eq!(bottleneck(&ends), Bottleneck::Loss);
        ends.0.network.retransmitted_bytes = 9_999;
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
        ends.0.network.retransmitted_bytes = 1_000_000;
        ends.0.network.rtt_us = 24_999;
        assert_eq!(bottleneck(&ends), Bottleneck::Loss);
        ends.0.network.rtt_us = 25_000;
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
    }

    #[test]
    fn bbr_is_not_limited_by_single_losses() {
        let mut ends = path_limited();
        ends.0.network.ignores_single_losses = true;
        ends.0.network.retransmitted_bytes = 149_999_999;
        assert_eq!(bottleneck(&ends), Bottleneck::Path);
        ends.0.network.retransmitted_bytes = 150_000_000;
        assert_eq!(bottleneck(&ends), Bottleneck::Loss);
    }

    #[test]
    fn gives_no_verdict_on_short_or_empty_intervals() {
        let (mut source, target) = path_limited();
        source.elapsed_us = INTERVAL_MIN_US - 1;
        assert_eq!(Verdict::of(&source, &target), None);
        source = Metrics {
            elapsed_us: SECOND,
            ..Metrics::default()
        };
        assert_eq!(Verdict::of(&source, &target), None);
    }

    #[test]
    fn evidence_names_the_measurements() {
        let (mut source, target) = path_limited();
        source.network.retransmitted_bytes = 4_200_000;
        let text = Verdict::of(&source, &target).unwrap().to_string();
        insta::assert_snapshot!(text, @"losses on the path: 0.4 % of the bytes were retransmitted without a standing queue (RTT 20.5 ms, minimum 20.0 ms); the congestion control held back for 100 % of the time");
        let text = Verdict::silent(Endpoint::Target, 7).to_string();
        assert_eq!(text, "a silent endpoint: no report from the target for 7 s");
    }
}
