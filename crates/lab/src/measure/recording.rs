// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of one run: TCP_INFO of all hosts ten times a second, for the raw records, metrics and report, and the totals
//! of each host.

use anyhow::{Context, Result};
use longhaul_linux::{
    clock,
    netns::Netns,
    sock_diag::{Connection, SockDiag},
};
use longhaul_results::result::{LegSeries, Series};
use serde::Serialize;
use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Sampling interval.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// TCP_INFO of one end of a connection at one time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the flows began.
    pub(crate) at_s: f64,
    pub(crate) host: Arc<str>,
    #[serde(flatten)]
    pub(crate) connection: Connection,
}

/// All samples of one run, in order of time.
#[derive(Debug, Default)]
pub(crate) struct Recording(pub(crate) Vec<Sample>);

pub(crate) type ConnectionKey = (Arc<str>, SocketAddr, SocketAddr);

impl Sample {
    pub(crate) fn key(&self) -> ConnectionKey {
        (
            self.host.clone(),
            self.connection.local,
            self.connection.remote,
        )
    }
}

impl Recording {
    /// Creates a recording from samples in order of time.
    pub(crate) fn new(samples: Vec<Sample>) -> Self {
        Self(samples)
    }

    /// Removes the samples of every other sampling time.
    pub(crate) fn halve(&mut self) {
        let (mut last, mut kept) = (f64::NAN, false);
        self.0.retain(|sample| {
            kept ^= sample.at_s != last;
            last = sample.at_s;
            kept
        });
    }

    /// Inserts samples from another source in order of time.
    pub(crate) fn insert(&mut self, samples: Vec<Sample>) {
        self.0.extend(samples);
        self.0.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    }

    /// Samples in order of time.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    /// Time of the last sample, in seconds.
    pub(crate) fn end_s(&self) -> f64 {
        self.0.last().map_or(0.0, |sample| sample.at_s)
    }

    /// Segments that `host` retransmitted, over all its connections.
    pub(crate) fn retransmits(&self, host: &str) -> u64 {
        let mut last = HashMap::new();
        for sample in self.of(host) {
            last.insert(sample.key(), u64::from(sample.connection.retransmits));
        }
        last.values().sum()
    }

    /// Goodput at `receiver` in bins of the sampling interval, from `begin` seconds on. `total`
    /// bytes had arrived `seconds` later, which the last sample may have missed. A program that
    /// counts from its first byte ended later by the time that it took to open its connections.
    pub(crate) fn series(&self, receiver: &str, begin: f64, total: u64, seconds: f64) -> Series {
        let all = self.received_bytes(receiver);
        let before = at_time(&all, begin);
        let inside = all.iter().map(|(at, bytes)| (at - begin, bytes - before));
        let mut points = vec![(0.0, 0.0)];
        points.extend(inside.filter(|(at, _)| *at > 0.0));
        let total = total as f64;
        let end = time_of(&points, total).or_else(|| growth_end(&points));
        let seconds = end.map_or(seconds, |end| end.max(seconds));
        points.retain(|(at, _)| *at < seconds);
        points.push((seconds, total));
        let bin_s = INTERVAL.as_secs_f64();
        let bins = (seconds / bin_s).round().max(1.0) as usize;
        // The last bin ends with the transfer.
        let edge = |n: usize| if n < bins { n as f64 * bin_s } else { seconds };
        let goodput = |n: usize| {
            let bytes = at_time(&points, edge(n + 1)) - at_time(&points, edge(n));
            (bytes * 8.0 / (edge(n + 1) - edge(n))).max(0.0)
        };
        let goodput_bps = (0..bins).map(goodput).collect();
        Series {
            bin_ms: bin_s * 1e3,
            goodput_bps,
            ..Series::default()
        }
    }

    /// Returns the leg that begins at `sender`, as its busiest connection saw it.
    pub(crate) fn leg(&self, sender: &str, name: String) -> Option<LegSeries> {
        leg(self.of(sender), name)
    }

    fn of(&self, host: &str) -> impl Iterator<Item = &Sample> + Clone {
        self.0.iter().filter(move |sample| *sample.host == *host)
    }

    /// Total bytes received by `host` at each sampling time.
    fn received_bytes(&self, host: &str) -> Vec<(f64, f64)> {
        let mut last = HashMap::new();
        let mut points: Vec<(f64, f64)> = vec![(0.0, 0.0)];
        for sample in self.of(host) {
            last.insert(sample.key(), sample.connection.bytes_received);
            let total = last.values().sum::<u64>() as f64;
            match points.last_mut() {
                Some(point) if point.0 == sample.at_s => point.1 = total,
                _ => points.push((sample.at_s, total)),
            }
        }
        points
    }
}

/// Returns the busiest connection among the `samples` of a sender.
pub(crate) fn leg<'a>(
    samples: impl Iterator<Item = &'a Sample> + Clone,
    name: String,
) -> Option<LegSeries> {
    let acked = |sample: &&Sample| sample.connection.bytes_acked;
    let busiest = samples.clone().max_by_key(acked)?.key();
    let mut leg = LegSeries {
        name,
        ..LegSeries::default()
    };
    for sample in samples.filter(|sample| sample.key() == busiest) {
        leg.at_s.push(sample.at_s);
        leg.cwnd_bytes.push(sample.connection.cwnd_bytes as f64);
        leg.rtt_us.push(f64::from(sample.connection.rtt_us));
    }
    Some(leg)
}

/// Time at which the last bytes arrived.
fn growth_end(points: &[(f64, f64)]) -> Option<f64> {
    let grew = points.windows(2).rev().find(|two| two[1].1 > two[0].1);
    grew.map(|two| two[1].0)
}

/// Time at which `value` was reached, by linear interpolation.
fn time_of(points: &[(f64, f64)], value: f64) -> Option<f64> {
    let two = points.windows(2).find(|two| two[1].1 >= value)?;
    let ((t0, v0), (t1, v1)) = (two[0], two[1]);
    Some(if v1 > v0 {
        t0 + (t1 - t0) * ((value - v0) / (v1 - v0)).max(0.0)
    } else {
        t1
    })
}

/// Value at time `at`, by linear interpolation.
pub(crate) fn at_time(points: &[(f64, f64)], at: f64) -> f64 {
    let next = points.partition_point(|(time, _)| *time < at);
    match (next.checked_sub(1).map(|i| points[i]), points.get(next)) {
        (Some((t0, v0)), Some((t1, v1))) => v0 + (v1 - v0) * (at - t0) / (t1 - t0),
        (Some((_, value)), None) | (None, Some(&(_, value))) => value,
        (None, None) => 0.0,
    }
}

/// Most samples in memory for metrics and report, about 200 bytes each; all go to the file. Beyond
/// it, every other sampling time is left out.
const SAMPLES_MAX: usize = 500_000;

/// Thread that samples until it is stopped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Recording>>,
}

impl Sampler {
    /// Samples `hosts` into the file `path`, and keeps in `delivered` the payload bytes that the
    /// hosts in `receivers` have received so far.
    pub(crate) fn start(
        hosts: &[(String, Netns)],
        receivers: Vec<String>,
        delivered: Arc<AtomicU64>,
        path: &Path,
    ) -> Result<Self> {
        let channels = hosts
            .iter()
            .map(|(name, netns)| Ok((Arc::from(name.as_str()), SockDiag::open(netns)?)))
            .collect::<Result<Vec<_>>>()?;
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = SamplerThread {
            channels,
            receivers,
            delivered,
            file: BufWriter::new(file),
            stop: stop.clone(),
        };
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(|| work.run())?;
        Ok(Self { stop, thread })
    }

    /// Stops the thread and returns its samples.
    pub(crate) fn stop(self) -> Result<Recording> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the sampler panicked"))?
    }
}

struct SamplerThread {
    channels: Vec<(Arc<str>, SockDiag)>,
    receivers: Vec<String>,
    delivered: Arc<AtomicU64>,
    file: BufWriter<File>,
    stop: Arc<AtomicBool>,
}

impl SamplerThread {
    fn run(mut self) -> Result<Recording> {
        let start = clock::now();
        let mut recording = Recording::default();
        let mut received = HashMap::new();
        let (mut round, mut keep_every) = (0u64, 1);
        while !self.stop.load(Ordering::Relaxed) {
            let at_s = clock::now().since(start).as_secs_f64();
            for sample in self.sample_hosts(at_s)? {
                self.update_delivered(&sample, &mut received);
                serde_json::to_writer(&mut self.file, &sample)?;
                self.file.write_all(b"\n")?;
                if round.is_multiple_of(keep_every) {
                    recording.0.push(sample);
                }
            }
            round += 1;
            if recording.0.len() >= SAMPLES_MAX {
                recording.halve();
                keep_every *= 2;
            }
            thread::park_timeout(INTERVAL);
        }
        self.file.flush()?;
        Ok(recording)
    }

    fn sample_hosts(&mut self, at_s: f64) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for (host, channel) in &mut self.channels {
            let found = channel.connections()?.into_iter();
            samples.extend(found.map(|connection| Sample {
                at_s,
                host: host.clone(),
                connection,
            }));
        }
        Ok(samples)
    }

    fn update_delivered(&self, sample: &Sample, received: &mut HashMap<ConnectionKey, u64>) {
        if self.receivers.iter().any(|host| **host == *sample.host) {
            received.insert(sample.key(), sample.connection.bytes_received);
            self.delivered
                .store(received.values().sum(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, host: &str, port: u16, received: u64, acked: u64) -> Sample {
        let (local, remote) = (([10, 9, 0, 1], port).into(), ([10, 9, 0, 2], 80).into());
        let connection = Connection {
            congestion: "cubic".to_owned(),
            rtt_us: 1000,
            min_rtt_us: 900,
            cwnd_bytes: acked + 1,
            retransmits: 2,
            bytes_acked: acked,
            bytes_received: received,
            ..Connection::between(local, remote)
        };
        Sample {
            at_s,
            host: Arc::from(host),
            connection,
        }
    }

    #[test]
    fn goodput_bins_end_with_the_transfer() {
        let all = [(0.05, 1), (0.05, 2), (0.15, 1), (0.15, 2)];
        let samples = all
            .iter()
            .map(|(at, port)| sample(*at, "c", *port, (at * 1e4) as u64, 0));
        let series = Recording(samples.collect()).series("c", 0.0, 4000, 0.2);
        // Two connections of 10 kB/s each, up to the end.
        assert_eq!(series.bin_ms, 100.0);
        assert_eq!(series.goodput_bps.len(), 2);
        assert!(
            (series.goodput_bps[0] - 160_000.0).abs() < 1.0,
            "{series:?}"
        );
        let carried: f64 = series.goodput_bps.iter().map(|bps| bps * 0.1 / 8.0).sum();
        assert!((carried - 4000.0).abs() < 1.0);
    }

    #[test]
    fn ignores_bytes_before_the_beginning() {
        let samples = [(0.1, 1000), (0.2, 2000), (0.3, 3000)];
        let samples = samples.map(|(at, received)| sample(at, "c", 1, received, 0));
        let series = Recording(samples.to_vec()).series("c", 0.1, 2500, 0.25);
        let carried: Vec<f64> = series
            .goodput_bps
            .iter()
            .map(|bps| (bps / 8.0).round())
            .collect();
        assert_eq!(carried, [10_000.0, 10_000.0, 10_000.0]);
    }

    #[test]
    fn late_transfer_is_placed_at_its_own_time() {
        let samples = [(0.1, 0), (1.0, 0), (1.1, 1000), (1.2, 2000), (1.3, 2000)];
        let samples = samples.map(|(at, received)| sample(at, "c", 1, received, 0));
        let series = Recording(samples.to_vec()).series("c", 0.0, 2000, 0.2);
        let most = series.goodput_bps.iter().copied().fold(0.0, f64::max);
        assert_eq!(series.goodput_bps.len(), 12, "{series:?}");
        assert!((most - 80_000.0).abs() < 1.0, "{series:?}");
    }

    /// 10 kB/s that began 70 ms after the run, counted for one second from the first byte. More
    /// bytes arrive after that, and the program's report at the end.
    #[test]
    fn counting_from_the_first_byte_causes_no_burst_at_the_end() {
        let flowing = (1..=11).map(|n| (f64::from(n) / 10.0, 1000 * n - 700));
        let samples = flowing.chain([(1.2, 10_900), (1.3, 10_950)]);
        let samples = samples.map(|(at, received)| sample(at, "c", 1, received as u64, 0));
        let series = Recording(samples.collect()).series("c", 0.0, 10_000, 1.00006);
        let most = series.goodput_bps.iter().copied().fold(0.0, f64::max);
        assert!((most - 80_000.0).abs() < 1.0, "{series:?}");
        assert_eq!(series.goodput_bps.len(), 11, "{series:?}");
    }

    #[test]
    fn bytes_after_the_last_sample_are_not_moved_before_it() {
        let samples = [(0.1, 0), (0.2, 1000), (0.3, 2000), (0.4, 2500)];
        let samples = samples.map(|(at, received)| sample(at, "c", 1, received, 0));
        let series = Recording(samples.to_vec()).series("c", 0.0, 3000, 0.3);
        let bits: Vec<f64> = series.goodput_bps.iter().map(|bps| bps.round()).collect();
        assert_eq!(bits, [0.0, 80_000.0, 80_000.0, 80_000.0]);
    }

    #[test]
    fn thinning_keeps_samples_over_the_whole_run() {
        let all = [0.1, 0.1, 0.2, 0.2, 0.3, 0.4].map(|at| sample(at, "s", 1, 0, 0));
        let mut recording = Recording(all.to_vec());
        recording.halve();
        let left: Vec<f64> = recording.0.iter().map(|sample| sample.at_s).collect();
        assert_eq!(left, [0.1, 0.1, 0.3]);
    }

    #[test]
    fn leg_is_the_busiest_connection_of_its_sender() {
        let samples = vec![
            sample(0.1, "s", 1, 0, 10),
            sample(0.1, "s", 2, 0, 500),
            sample(0.2, "s", 2, 0, 900),
        ];
        let recording = Recording(samples);
        let leg = recording.leg("s", "s–c".to_owned()).unwrap();
        assert_eq!(leg.at_s, [0.1, 0.2]);
        assert_eq!(leg.cwnd_bytes, [501.0, 901.0]);
        assert_eq!(recording.retransmits("s"), 4);
        assert_eq!(recording.leg("x", String::new()), None);
    }
}
