// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul udt bench`, one flow at a time. The kernel has no TCP_INFO of it, so samples are made
//! from the report of the bench.

use super::{daemon::Daemon, run_to_end, save_json};
use crate::{
    command_check,
    measure::{Outcome, Sample, recording::at_time},
    scenario::{Direction, Flow, control},
};
use anyhow::{Context, Result, bail};
use longhaul_linux::{netns::Netns, sock_diag::Connection};
use longhaul_results::result::Metrics;
use serde::Deserialize;
use std::{
    net::{SocketAddr, SocketAddrV4},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

/// Sampling interval in seconds, as the sampler has it.
const INTERVAL_S: f64 = 0.1;

/// Starts a server; ready on return.
pub(crate) async fn serve(netns: &Netns, port: u16, directory: &Path) -> Result<Daemon> {
    let mut command = command_check::longhaul()?;
    command.args([
        "udt",
        "bench",
        "--listen",
        &format!("0.0.0.0:{port}"),
        "--cc",
        "native",
    ]);
    let name = format!("udt-{}-{port}", netns.name().unwrap_or("host"));
    let mut daemon = Daemon::start(&name, command, netns, directory)?;
    daemon.wait_until_printed("serving at").await?;
    Ok(daemon)
}

/// Runs the bench of `flow` against the server at `target` from inside `netns`.
pub(crate) async fn measure(
    netns: &Netns,
    target: SocketAddrV4,
    flow: &Flow,
    record: &Path,
) -> Result<Outcome> {
    let mut command = command_check::longhaul()?;
    command.args(["udt", "bench", "--cc", "native"]);
    command.args(arguments(target, flow));
    pipe_output(&mut command);
    let output = run_to_end(command, "longhaul udt", netns).await?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    save_json(record, &output.stdout, "longhaul udt")?;
    Ok(BenchReport::read(record)?.outcome(flow))
}

fn pipe_output(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
}

fn arguments(target: SocketAddrV4, flow: &Flow) -> Vec<String> {
    let mut all = vec![target.to_string(), "--json".to_owned()];
    all.extend(["--interval".to_owned(), format!("{INTERVAL_S}s")]);
    all.extend(["--streams".to_owned(), flow.streams.to_string()]);
    if let Some(size) = flow.size {
        all.extend(["--bytes".to_owned(), size.get().to_string()]);
    }
    if let Some([_, end]) = counted_span(flow) {
        all.extend(["--time".to_owned(), format!("{end}s")]);
    }
    if flow.direction == Direction::Download {
        all.push("--reverse".to_owned());
    }
    all
}

/// Span in seconds that counts, for a flow with a duration.
fn counted_span(flow: &Flow) -> Option<[f64; 2]> {
    let begin = flow.omit.unwrap_or_default().as_secs_f64();
    Some([begin, begin + flow.duration?.as_secs_f64()])
}

/// Report of the bench.
#[derive(Debug, Deserialize)]
struct BenchReport {
    sender: EndpointReport,
    receiver: EndpointReport,
}

#[derive(Debug, Deserialize)]
struct EndpointReport {
    started_at_s: f64,
    bytes: u64,
    seconds: f64,
    packets_retransmitted: u64,
    #[serde(default)]
    intervals: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    bytes: u64,
    packets_retransmitted: u64,
    rtt_ms: f64,
}

impl BenchReport {
    fn read(path: &Path) -> Result<Self> {
        let place = || format!("{}", path.display());
        let text = std::fs::read(path).with_context(place)?;
        serde_json::from_slice(&text).with_context(place)
    }

    /// Computes the outcome. Data that arrives from buffers after the counted time is left out.
    fn outcome(&self, flow: &Flow) -> Outcome {
        let (bytes, seconds) = match counted_span(flow) {
            Some([begin, end]) => (self.received(begin, end), end - begin),
            None => (self.receiver.bytes, self.receiver.seconds),
        };
        Outcome {
            bytes,
            seconds,
            retransmits: Some(self.sender.packets_retransmitted),
            connections_bps: Vec::new(),
            extra: Metrics::new(),
        }
    }

    fn received(&self, begin: f64, end: f64) -> u64 {
        let mut points = vec![(0.0, 0.0)];
        for (number, interval) in self.receiver.intervals.iter().enumerate() {
            let before = points[number].1;
            points.push((interval_end_s(number), before + interval.bytes as f64));
        }
        (at_time(&points, end) - at_time(&points, begin)).round() as u64
    }
}

/// End of an interval, in seconds from the beginning.
fn interval_end_s(number: usize) -> f64 {
    (number + 1) as f64 * INTERVAL_S
}

/// Sending and receiving host of a flow, with the addresses of their sockets.
pub(crate) type FlowEnds = [(Arc<str>, SocketAddr); 2];

/// Samples of both ends as TCP_INFO, in seconds since `began_s` of Unix time, until the flow's time
/// is over.
pub(crate) fn samples(
    record: &Path,
    flow: &Flow,
    [from, to]: &FlowEnds,
    began_s: f64,
) -> Result<Vec<Sample>> {
    let BenchReport { sender, receiver } = BenchReport::read(record)?;
    let until = counted_span(flow).map_or(f64::INFINITY, |[_, end]| end);
    let mut samples = sender.samples((from, to.1), [began_s, until], |connection, one| {
        connection.rtt_us = (one.rtt_ms * 1e3) as u32;
        connection.retransmits += one.packets_retransmitted as u32;
        connection.bytes_acked += one.bytes;
    });
    samples.extend(
        receiver.samples((to, from.1), [began_s, until], |connection, one| {
            connection.bytes_received += one.bytes;
        }),
    );
    Ok(samples)
}

impl EndpointReport {
    /// Samples at the end of each interval. `count` adds an interval to the counters.
    fn samples(
        &self,
        ((host, local), remote): (&(Arc<str>, SocketAddr), SocketAddr),
        [began_s, until]: [f64; 2],
        count: fn(&mut Connection, &Interval),
    ) -> Vec<Sample> {
        let mut connection = Connection::between(*local, remote);
        control::UDT.clone_into(&mut connection.congestion);
        let intervals = self.intervals.iter().enumerate();
        let counted =
            intervals.take_while(|(number, _)| interval_end_s(*number) < until + INTERVAL_S / 2.0);
        let sample = |(number, interval): (usize, &Interval)| {
            count(&mut connection, interval);
            Sample {
                at_s: self.started_at_s - began_s + interval_end_s(number),
                host: host.clone(),
                connection: connection.clone(),
            }
        };
        counted.map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Report with a second of 10 MB/s, one of 30 MB/s, and half a second while buffers drain.
    fn record() -> String {
        let interval = |n: u32| {
            let megabytes = if n < 10 { 1 } else { 3 };
            format!("{{\"bytes\":{megabytes}000000,\"packets_retransmitted\":1,\"rtt_ms\":38.5}}")
        };
        let intervals: Vec<String> = (0..25).map(interval).collect();
        let end = |began_s: f64| {
            let intervals = intervals.join(",");
            format!(
                "{{\"started_at_s\":{began_s},\"bytes\":55000000,\"seconds\":2.5,\"packets_retransmitted\":25,\"intervals\":[{intervals}]}}"
            )
        };
        format!(
            "{{\"sender\":{},\"receiver\":{}}}",
            end(1000.5),
            end(1000.6)
        )
    }

    fn flow(keys: &str) -> Flow {
        let flow = "name = 'f'\nprogram = 'udt'\nfrom = 'a'\nto = 'b'\n";
        toml::from_str(&format!("{flow}{keys}")).unwrap()
    }

    #[test]
    fn counts_neither_omitted_nor_late_bytes() {
        let record: BenchReport = serde_json::from_str(&record()).unwrap();
        let timed = record.outcome(&flow("duration = '1s'\nomit = '1s'"));
        assert_eq!((timed.bytes, timed.seconds), (30_000_000, 1.0));
        assert_eq!(timed.retransmits, Some(25));
        let sized = record.outcome(&flow("size = '55MB'"));
        assert_eq!((sized.bytes, sized.seconds), (55_000_000, 2.5));
    }

    #[test]
    fn passes_the_flow_to_the_bench() {
        let words = |keys| arguments("10.0.0.1:5201".parse().unwrap(), &flow(keys)).join(" ");
        assert_eq!(
            words("duration = '30s'\nomit = '10s'\ndirection = 'upload'"),
            "10.0.0.1:5201 --json --interval 0.1s --streams 1 --time 40s"
        );
        assert!(
            words("size = '5MB'\nstreams = 2").ends_with("--streams 2 --bytes 5000000 --reverse")
        );
    }

    #[test]
    fn samples_both_ends_until_the_end_of_the_flow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), record()).unwrap();
        let ends = [("a", "10.0.0.1:40000"), ("b", "10.0.0.2:5201")]
            .map(|(host, at)| (Arc::from(host), at.parse().unwrap()));
        let flow = flow("duration = '2s'");
        let samples = samples(file.path(), &flow, &ends, 1000.0).unwrap();
        assert_eq!(samples.len(), 40);
        let (sent, received) = (&samples[19], &samples[39]);
        assert!((sent.at_s - 2.5).abs() < 1e-6 && (received.at_s - 2.6).abs() < 1e-6);
        assert_eq!(
            (sent.connection.rtt_us, sent.connection.retransmits),
            (38_500, 20)
        );
        assert_eq!(received.connection.bytes_received, 40_000_000);
        assert_eq!(&*received.host, "b");
        assert_eq!(received.connection.local.port(), 5201);
    }
}
