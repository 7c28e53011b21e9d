// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps a copy from being faster, judged from what both ends have measured of themselves, and said with its
//! evidence.
//!
//! A stream's thread does one thing after the other, so where its time goes is what it waits for: the source's streams
//! read, hash, encrypt and write to sockets. If they wait for sockets, either the target's streams are slow to read
//! from theirs, which their time shows, or the network is between them, and the sockets say what of it.

use super::{Measured, Network, Stage};
use longhaul_tcpsim::limiter::Limiter;
use std::fmt;

/// Nothing is said of less than this, in microseconds.
const LOOK_MIN_US: u64 = 500_000;

/// From this part of a machine's CPUs on, more work would have none.
const CPUS_FULL: f64 = 0.9;

/// A thread that works for less than this part of the time keeps nobody waiting; a copy that is short is mostly round
/// trips.
const THREAD_BUSY: f64 = 0.25;

/// A queue on the path stands from this on: RTT over the smallest RTT.
const QUEUE_STANDS: f64 = 1.25;

/// A buffer or a window that is full for this part of the time is too small: a congestion control that models the path
/// takes what a full buffer lets through for what the path carries, and paces the rest of the time by that.
const WINDOW_FULL: f64 = 0.25;

/// Losses matter from this share of bytes sent again on. Loss-based congestion controls have more than one in 100,000
/// on any path that limits them to less than some Gbit/s. BBR keeps its rate up to some 15 % (Cardwell et al., ACM Queue 2016,
/// figure 8), and loses some percent by itself where queues are short.
const LOSS_MATTERS: f64 = 1e-5;
const LOSS_MATTERS_TO_BBR: f64 = 0.15;

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// That which reads.
    Source,
    /// That which writes.
    Target,
}

/// What keeps a copy from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading files.
    SourceDisk,
    /// Finding what there is to copy.
    SourceFiles,
    /// The source's CPUs, or that a single one is all that its streams can use.
    SourceCpu,
    /// Writing files and making them durable.
    TargetDisk,
    /// Finding what of it is there already.
    TargetFiles,
    /// The target's CPUs, or that a single one is all that its streams can use.
    TargetCpu,
    /// The CPUs of the one machine that both run on.
    Cpu,
    /// The source's socket buffers are smaller than bandwidth × delay.
    SendBuffer,
    /// The target's receive windows are smaller than bandwidth × delay.
    ReceiveWindow,
    /// Losses keep congestion windows small.
    Loss,
    /// The path carries no more.
    Path,
    /// Pacing lets no more out.
    Pacing,
    /// A limit that was asked for.
    Limit,
    /// An end says nothing any more.
    Peer,
}

impl Bottleneck {
    /// As in records.
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
            Self::Pacing => "pacing",
            Self::Limit => "limit",
            Self::Peer => "peer",
        }
    }

    fn words(self) -> &'static str {
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
            Self::Pacing => "--pace",
            Self::Limit => "--limit",
            Self::Peer => "an end that is silent",
        }
    }
}

/// A bottleneck, and why it is said to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What it is.
    pub bottleneck: Bottleneck,
    /// What was measured, in words.
    pub evidence: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.bottleneck.words(), self.evidence)
    }
}

impl Verdict {
    /// The verdict on a time in which both ends measured this; `None` if that says nothing.
    #[must_use]
    pub fn of(source: &Measured, target: &Measured) -> Option<Self> {
        if source.elapsed_us.min(target.elapsed_us) < LOOK_MIN_US {
            return None;
        }
        let sending = Sending::of(source);
        if sending.total() == 0 {
            return None;
        }
        if let Some(verdict) = of_cpus(source, target) {
            return Some(verdict);
        }
        if sending.is_idle() {
            return of_other_threads(&percent(sending.idle, sending.total()), source, target);
        }
        let of_streams = sending.verdict();
        let verdict = of_streams.or_else(|| Receiving::of(target).verdict(target));
        Some(verdict.unwrap_or_else(|| of_network(source)))
    }

    /// An end that has said nothing for so long, in seconds.
    #[must_use]
    pub fn silent(end: End, seconds: u64) -> Self {
        let which = match end {
            End::Source => "source",
            End::Target => "target",
        };
        Self::new(
            Bottleneck::Peer,
            format!("the {which} has said nothing for {seconds} s"),
        )
    }

    fn new(bottleneck: Bottleneck, evidence: String) -> Self {
        Self {
            bottleneck,
            evidence,
        }
    }
}

/// All CPUs of a machine are in use, or waited for.
fn of_cpus(source: &Measured, target: &Measured) -> Option<Verdict> {
    let (near, far) = (source.wanted_cpus(), target.wanted_cpus());
    if source.machine == target.machine {
        return of_machine(Bottleneck::Cpu, near + far, source.cpus);
    }
    // One may have more CPUs than the other.
    match cpu_share(near, source.cpus) >= cpu_share(far, target.cpus) {
        true => of_machine(Bottleneck::SourceCpu, near, source.cpus),
        false => of_machine(Bottleneck::TargetCpu, far, target.cpus),
    }
}

fn of_machine(which: Bottleneck, wanted: f64, cpus: u32) -> Option<Verdict> {
    let said = || format!("its threads ran on or waited for {wanted:.1} CPUs of {cpus}");
    (cpu_share(wanted, cpus) >= CPUS_FULL).then(|| Verdict::new(which, said()))
}

fn cpu_share(wanted: f64, cpus: u32) -> f64 {
    wanted / f64::from(cpus.max(1))
}

/// Where the time of the source's streams went, in microseconds.
struct Sending {
    idle: u64,
    ran: u64,
    read: u64,
    blocked: u64,
    limited: u64,
}

impl Sending {
    fn of(source: &Measured) -> Self {
        let stages = &source.stages;
        let (reading, hashing) = (stages[Stage::Reading], stages[Stage::Hashing]);
        let (sending, idle) = (stages[Stage::Sending], stages[Stage::Idle]);
        Self {
            idle: idle.ran_us + idle.waited_us,
            ran: reading.ran_us + hashing.ran_us + hashing.waited_us + sending.ran_us,
            read: reading.waited_us,
            blocked: sending.waited_us,
            limited: stages[Stage::Limited].waited_us,
        }
    }

    fn total(&self) -> u64 {
        self.idle + self.ran + self.read + self.blocked + self.limited
    }

    fn largest(&self) -> u64 {
        let parts = [self.idle, self.ran, self.read, self.blocked, self.limited];
        parts.into_iter().max().unwrap_or_default()
    }

    fn is_idle(&self) -> bool {
        self.idle == self.largest()
    }

    /// Unless it is sockets that they wait for.
    fn verdict(&self) -> Option<Verdict> {
        let percent = |part| percent(part, self.total());
        let largest = self.largest();
        if largest == self.blocked {
            return None;
        }
        Some(if largest == self.read {
            let waited = percent(self.read);
            Verdict::new(
                Bottleneck::SourceDisk,
                format!("its streams waited {waited} of the time for files to be read"),
            )
        } else if largest == self.limited {
            let waited = percent(self.limited);
            Verdict::new(
                Bottleneck::Limit,
                format!("streams waited {waited} of the time until it let them send"),
            )
        } else {
            let (ran, blocked) = (percent(self.ran), percent(self.blocked));
            Verdict::new(
                Bottleneck::SourceCpu,
                format!(
                    "each stream read, hashed and encrypted {ran} of the time and waited {blocked} for its socket; more streams use more CPUs"
                ),
            )
        })
    }
}

/// Streams had nothing to send: not enough was found, or what was sent is not yet done with.
fn of_other_threads(idle: &str, source: &Measured, target: &Measured) -> Option<Verdict> {
    let share = |end: &Measured, stage| {
        let spent = end.stages[stage];
        (spent.ran_us + spent.waited_us) as f64 / end.elapsed_us.max(1) as f64
    };
    let (found, looked_up) = (share(source, Stage::Looking), share(target, Stage::Looking));
    let synced = share(target, Stage::Syncing);
    let largest = found.max(looked_up).max(synced);
    if largest < THREAD_BUSY {
        return None;
    }
    let took = format!("took {:.0} % of the time", largest * 100.0);
    let (which, what) = if largest == found {
        (Bottleneck::SourceFiles, "it")
    } else if largest == looked_up {
        (Bottleneck::TargetFiles, "it")
    } else {
        (
            Bottleneck::TargetDisk,
            "syncing files and giving them their names",
        )
    };
    let evidence = format!("{what} {took}, and streams had nothing to send for {idle}");
    Some(Verdict::new(which, evidence))
}

/// Where the time of the target's streams went, in microseconds.
struct Receiving {
    waited: u64,
    ran: u64,
    wrote: u64,
}

impl Receiving {
    fn of(target: &Measured) -> Self {
        let (receiving, writing) = (
            target.stages[Stage::Receiving],
            target.stages[Stage::Writing],
        );
        Self {
            waited: receiving.waited_us,
            ran: receiving.ran_us + writing.ran_us,
            wrote: writing.waited_us,
        }
    }

    /// Unless they wait for data.
    fn verdict(&self, target: &Measured) -> Option<Verdict> {
        let total = self.waited + self.ran + self.wrote;
        let largest = self.waited.max(self.ran).max(self.wrote);
        let waited = percent(self.waited, total);
        if largest == self.waited {
            return None;
        }
        Some(if largest == self.wrote {
            let wrote = percent(self.wrote, total);
            let syncing = target.stages[Stage::Syncing];
            let synced = percent(syncing.ran_us + syncing.waited_us, target.elapsed_us);
            Verdict::new(
                Bottleneck::TargetDisk,
                format!(
                    "its streams waited {wrote} of the time for writes and {waited} for data; syncing took {synced}"
                ),
            )
        } else {
            let ran = percent(self.ran, total);
            Verdict::new(
                Bottleneck::TargetCpu,
                format!(
                    "each stream decrypted, checked and wrote {ran} of the time and waited {waited} for data; more streams use more CPUs"
                ),
            )
        })
    }
}

/// Sources wait for sockets and targets for data.
fn of_network(source: &Measured) -> Verdict {
    let network = &source.network;
    let limiter = limiter(network);
    let share = format!("{:.0} % of the time", network.share(limiter) * 100.0);
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
        Limiter::CongestionWindow | Limiter::Application => of_path(source, &share),
    }
}

/// The largest of what was decided for a stream by its own end or the other; else its congestion control.
fn limiter(network: &Network) -> Limiter {
    let [buffer, window, pacing] = [Limiter::SendBuffer, Limiter::ReceiveWindow, Limiter::Pacing];
    let shares = [buffer, window, pacing].map(|kind| (kind, network.share(kind)));
    let full = shares
        .into_iter()
        .filter(|(_, share)| *share >= WINDOW_FULL);
    let largest = full.max_by(|a, b| a.1.total_cmp(&b.1));
    largest.map_or(Limiter::CongestionWindow, |(kind, _)| kind)
}

/// Congestion windows limit: because of what is lost, or because the path is full.
fn of_path(source: &Measured, share: &str) -> Verdict {
    let network = &source.network;
    let (rtt, min) = (f64::from(network.rtt_us), f64::from(network.rtt_min_us));
    let again = network.again_share();
    let lost = format!("{} of the bytes went again", rare(again));
    let rtts = format!("RTT {:.1} ms, at the least {:.1} ms", rtt / 1e3, min / 1e3);
    let queue = min > 0.0 && rtt >= QUEUE_STANDS * min;
    let matters = match network.shrugs_off_losses {
        true => LOSS_MATTERS_TO_BBR,
        false => LOSS_MATTERS,
    };
    match again >= matters && !queue {
        true => Verdict::new(
            Bottleneck::Loss,
            format!(
                "{lost} and no queue stood ({rtts}); the congestion control held back for {share}"
            ),
        ),
        false => {
            let stood = if queue {
                "a queue stood"
            } else {
                "no queue stood"
            };
            Verdict::new(
                Bottleneck::Path,
                format!("the congestion control held back for {share}, {stood} ({rtts}), {lost}"),
            )
        }
    }
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// A share that may be tiny.
fn rare(share: f64) -> String {
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

    /// A second of both ends with four streams that wait for the network, on two machines with four CPUs each.
    fn calm() -> (Measured, Measured) {
        let end = |machine| Measured {
            elapsed_us: SECOND,
            cpus: 4,
            machine,
            ..Measured::default()
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
            .limited(Limiter::CongestionWindow, 4 * SECOND);
        (source, target)
    }

    fn set(end: &mut Measured, stage: Stage, ran_us: u64, waited_us: u64) {
        end.stages[stage] = Spent { ran_us, waited_us };
    }

    use super::super::Spent;

    fn found(ends: &(Measured, Measured)) -> Bottleneck {
        Verdict::of(&ends.0, &ends.1).unwrap().bottleneck
    }

    #[test]
    fn where_streams_wait_is_the_bottleneck() {
        let mut ends = calm();
        assert_eq!(found(&ends), Bottleneck::Path);
        set(&mut ends.0, Stage::Reading, 100_000, 3_400_001);
        assert_eq!(found(&ends), Bottleneck::SourceDisk);
        set(&mut ends.0, Stage::Reading, 100_000, 3_399_999);
        assert_eq!(
            found(&ends),
            Bottleneck::Path,
            "it waits longer for sockets"
        );
        set(&mut ends.1, Stage::Writing, 300_000, 3_300_001);
        assert_eq!(found(&ends), Bottleneck::TargetDisk);
        set(&mut ends.0, Stage::Limited, 0, 3_400_001);
        assert_eq!(found(&ends), Bottleneck::Limit);
    }

    #[test]
    fn one_stream_has_one_cpu() {
        let mut ends = calm();
        set(&mut ends.0, Stage::Hashing, 700_000, 0);
        set(&mut ends.0, Stage::Sending, 200_000, 0);
        assert_eq!(found(&ends), Bottleneck::SourceCpu);
        let mut ends = calm();
        set(&mut ends.1, Stage::Receiving, 600_000, 100_000);
        assert_eq!(found(&ends), Bottleneck::TargetCpu);
    }

    #[test]
    fn a_machine_without_a_free_cpu_limits_whatever_streams_wait_for() {
        let mut ends = calm();
        set(&mut ends.0, Stage::Hashing, 2_000_000, 0);
        ends.0.crowded_us = 1_249_000;
        assert_eq!(found(&ends), Bottleneck::Path);
        ends.0.crowded_us = 1_251_000;
        assert_eq!(found(&ends), Bottleneck::SourceCpu);
        ends.0.crowded_us = 0;
        assert_eq!(found(&ends), Bottleneck::Path);
        ends.1.machine = 1;
        ends.1.crowded_us = 651_000;
        assert_eq!(found(&ends), Bottleneck::Cpu, "both want 3.6 of the same 4");
    }

    #[test]
    fn machines_of_different_sizes_are_compared_by_the_share_of_their_cpus() {
        for (source, target, wanted) in [
            ((4.0, 4), (5.0, 64), Bottleneck::SourceCpu),
            ((5.0, 64), (4.0, 4), Bottleneck::TargetCpu),
            ((3.7, 4), (64.0, 64), Bottleneck::TargetCpu),
            ((4.0, 4), (60.0, 64), Bottleneck::SourceCpu),
            ((3.5, 4), (5.0, 64), Bottleneck::Path),
        ] {
            let mut ends = calm();
            for (end, (wanted, cpus)) in [(&mut ends.0, source), (&mut ends.1, target)] {
                let crowded = wanted * SECOND as f64 - end.stages.ran_us() as f64;
                (end.crowded_us, end.cpus) = (crowded as u64, cpus);
            }
            assert_eq!(found(&ends), wanted, "{source:?} {target:?}");
        }
    }

    #[test]
    fn streams_with_nothing_to_send_wait_for_other_threads() {
        let mut ends = calm();
        set(&mut ends.0, Stage::Idle, 0, 4 * SECOND);
        set(&mut ends.0, Stage::Looking, 100_000, 300_000);
        set(&mut ends.1, Stage::Looking, 100_000, 200_000);
        assert_eq!(found(&ends), Bottleneck::SourceFiles);
        set(&mut ends.0, Stage::Looking, 0, 249_000);
        set(&mut ends.1, Stage::Looking, 0, 249_000);
        assert_eq!(Verdict::of(&ends.0, &ends.1), None);
        set(&mut ends.1, Stage::Looking, 100_000, 800_000);
        assert_eq!(found(&ends), Bottleneck::TargetFiles);
        set(&mut ends.1, Stage::Syncing, 100_000, 800_001);
        assert_eq!(found(&ends), Bottleneck::TargetDisk);
    }

    #[test]
    fn the_sockets_say_which_window() {
        for (limiter, wanted) in [
            (Limiter::ReceiveWindow, Bottleneck::ReceiveWindow),
            (Limiter::SendBuffer, Bottleneck::SendBuffer),
            (Limiter::Pacing, Bottleneck::Pacing),
        ] {
            let mut ends = calm();
            ends.0.network.limited(limiter, 4 * SECOND / 3 + 1);
            assert_eq!(found(&ends), wanted);
            ends.0.network.limited(Limiter::CongestionWindow, 4);
            assert_eq!(found(&ends), Bottleneck::Path);
        }
    }

    #[test]
    fn losses_limit_unless_a_queue_stands() {
        let mut ends = calm();
        ends.0.network.again_bytes = 10_001;
        assert_eq!(found(&ends), Bottleneck::Loss);
        ends.0.network.again_bytes = 9_999;
        assert_eq!(found(&ends), Bottleneck::Path);
        ends.0.network.again_bytes = 1_000_000;
        ends.0.network.rtt_us = 24_999;
        assert_eq!(found(&ends), Bottleneck::Loss);
        ends.0.network.rtt_us = 25_000;
        assert_eq!(found(&ends), Bottleneck::Path);
    }

    #[test]
    fn bbr_is_not_limited_by_single_losses() {
        let mut ends = calm();
        ends.0.network.shrugs_off_losses = true;
        ends.0.network.again_bytes = 149_999_999;
        assert_eq!(found(&ends), Bottleneck::Path);
        ends.0.network.again_bytes = 150_000_000;
        assert_eq!(found(&ends), Bottleneck::Loss);
    }

    #[test]
    fn a_moment_or_nothing_at_all_is_no_evidence() {
        let (mut source, target) = calm();
        source.elapsed_us = LOOK_MIN_US - 1;
        assert_eq!(Verdict::of(&source, &target), None);
        source = Measured {
            elapsed_us: SECOND,
            ..Measured::default()
        };
        assert_eq!(Verdict::of(&source, &target), None);
    }

    #[test]
    fn evidence_is_what_was_measured() {
        let (mut source, target) = calm();
        source.network.again_bytes = 4_200_000;
        let said = Verdict::of(&source, &target).unwrap().to_string();
        insta::assert_snapshot!(said, @"losses on the path: 0.4 % of the bytes went again and no queue stood (RTT 20.5 ms, at the least 20.0 ms); the congestion control held back for 100 % of the time");
        let said = Verdict::silent(End::Target, 7).to_string();
        assert_eq!(
            said,
            "an end that is silent: the target has said nothing for 7 s"
        );
    }
}
