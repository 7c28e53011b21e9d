// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3 servers and clients, one test each.

use super::{daemon::Daemon, run_to_end, save_json};
use crate::{
    measure::Outcome,
    network::SenderOptions,
    scenario::{Direction, Flow},
};
use anyhow::{Context, Result, bail};
use longhaul_linux::{netns::Netns, programs};
use longhaul_results::result::Metrics;
use serde_json::Value;
use std::{net::SocketAddrV4, path::Path, process::Stdio};

/// Starts a server for one test; ready on return.
pub(crate) async fn serve(netns: &Netns, port: u16, directory: &Path) -> Result<Daemon> {
    let mut command = programs::command("iperf3");
    command.args(["--server", "--one-off", "--port", &port.to_string()]);
    let name = format!("iperf3-{}-{port}", netns.name().unwrap_or("host"));
    let mut daemon = Daemon::start(&name, command, netns, directory)?;
    daemon.wait_until_listening(netns, port).await?;
    Ok(daemon)
}

/// Runs the test of `flow` against the server behind `target` from inside `netns`.
pub(crate) async fn measure(
    netns: &Netns,
    target: SocketAddrV4,
    flow: &Flow,
    sender_options: &SenderOptions,
    record: &Path,
) -> Result<Outcome> {
    let mut command = programs::command("iperf3");
    command
        .arg("--json")
        .args(arguments(target, flow, sender_options));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = run_to_end(command, "iperf3", netns).await?;
    parse_report(&save_json(record, &output.stdout, "iperf3")?)
}

fn arguments(target: SocketAddrV4, flow: &Flow, sender_options: &SenderOptions) -> Vec<String> {
    let mut all = vec![
        "--client".to_owned(),
        target.ip().to_string(),
        "--port".to_owned(),
        target.port().to_string(),
    ];
    all.extend(["--parallel".to_owned(), flow.streams.to_string()]);
    if let Some(size) = flow.size {
        // iperf3 splits nothing: --bytes counts all streams together.
        all.extend(["--bytes".to_owned(), size.get().to_string()]);
    }
    if let Some(duration) = flow.duration {
        all.extend([
            "--time".to_owned(),
            duration.as_secs_f64().ceil().to_string(),
        ]);
    }
    if let Some(omit) = flow.omit {
        all.extend(["--omit".to_owned(), omit.as_secs_f64().ceil().to_string()]);
    }
    if flow.direction == Direction::Download {
        all.push("--reverse".to_owned());
    }
    all.extend(socket(flow, sender_options));
    all
}

/// Socket options of both ends. The client passes them to the server.
fn socket(flow: &Flow, sender_options: &SenderOptions) -> Vec<String> {
    let congestion_control = sender_options.congestion_control.clone();
    let rate = sender_options
        .pacing_rate
        .map(|rate| rate.bits().to_string());
    let window = flow.window.map(|window| window.get().to_string());
    let all = [
        ("--congestion", congestion_control),
        ("--fq-rate", rate),
        ("--window", window),
    ];
    let given = all
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    let mut given: Vec<String> = given.flatten().collect();
    if sender_options.pacing_rate.is_some() {
        // A sending server applies pacing only if it created a new socket, as it does for this flag
        // (iperf_tcp_listen of iperf_tcp.c). Bulk data never waits for Nagle's algorithm.
        given.push("--no-delay".to_owned());
    }
    given
}

fn parse_report(record: &Value) -> Result<Outcome> {
    if let Some(error) = record["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &record["end"];
    let received = |key: &str| {
        let number = end["sum_received"][key].as_f64();
        number.with_context(|| format!("iperf3 reported no {key}"))
    };
    Ok(Outcome {
        bytes: received("bytes")? as u64,
        seconds: received("seconds")?,
        retransmits: end["sum_sent"]["retransmits"].as_u64(),
        connections_bps: connections(end),
        extra: Metrics::new(),
    })
}

/// Rate of each connection at the receiver, in bits a second.
fn connections(end: &Value) -> Vec<f64> {
    let streams = end["streams"].as_array().into_iter().flatten();
    streams
        .filter_map(|stream| stream["receiver"]["bits_per_second"].as_f64())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_received_bytes_and_retransmits() {
        let stream = |rate: f64| json!({"receiver": {"bits_per_second": rate}});
        let record = json!({"end": {"streams": [stream(6e8), stream(4e8)],
            "sum_received": {"bytes": 1e9, "seconds": 8.0},
            "sum_sent": {"bytes": 1.1e9, "seconds": 8.0, "retransmits": 3}}});
        let expected = Outcome {
            bytes: 1_000_000_000,
            seconds: 8.0,
            retransmits: Some(3),
            connections_bps: vec![6e8, 4e8],
            extra: Metrics::new(),
        };
        assert_eq!(parse_report(&record).unwrap(), expected);
        assert!(parse_report(&json!({"error": "connection refused", "end": {}})).is_err());
    }
}
