// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul probe` beside the other flows, compared with the link that it crosses.

use super::run_to_end;
use crate::{
    command_check,
    measure::Outcome,
    network::probe::{ExpectedLink, timing},
    scenario::Flow,
};
use anyhow::{Context, Result, bail, ensure};
use longhaul_linux::netns::Netns;
use longhaul_netem::conformance::{Recording, Timing, check_conformance};
use longhaul_report::registry;
use longhaul_results::result::Metrics;
use longhaul_units::Time;
use serde::Serialize;
use serde_json::Value;
use std::{fs::File, io::BufReader, net::Ipv4Addr, path::Path, process::Stdio};

/// Time to wait for the last packets, plus twice the delay of the link.
const TIMEOUT: Time = Time::from_secs(2);

/// Runs the probe of `flow` to `address`.
pub(crate) async fn measure(
    flow: &Flow,
    address: Ipv4Addr,
    expected: Option<&ExpectedLink>,
    record: &Path,
) -> Result<Outcome> {
    let timing = timing(flow).map_err(anyhow::Error::msg)?;
    let mut command = command_check::longhaul()?;
    command
        .args(["probe", "--json", "--from", &flow.from, "--to", &flow.to])
        .args(arguments(timing, expected))
        .arg("--records")
        .arg(record)
        .arg(address.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = run_to_end(command, "longhaul probe", &Netns::current()?).await?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let place = || format!("cannot read {}", record.display());
    let recording = Recording::read(BufReader::new(File::open(record).with_context(place)?));
    outcome(&recording.with_context(place)?, expected)
}

fn arguments(timing: Timing, expected: Option<&ExpectedLink>) -> [String; 5] {
    let delay = expected.map_or(Time::ZERO, |expected| expected.link_config.delay);
    [
        format!("--count={}", timing.count),
        format!(
            "--interval={}",
            Time::from_nanos(timing.interval_ns).exact()
        ),
        format!("--packet-size={}", timing.packet_size),
        format!("--gso-segments={}", timing.gso_segments),
        format!("--wait={}", (TIMEOUT + delay * 2).exact()),
    ]
}

fn outcome(recording: &Recording, expected: Option<&ExpectedLink>) -> Result<Outcome> {
    let summary = &recording.summary;
    let corrupts = expected.is_some_and(|expected| expected.link_config.corrupt.get() > 0.0);
    ensure!(
        summary.dropped_at_receiver == 0 || corrupts,
        "this machine was too slow to receive the probe: {} packets were dropped at the socket",
        summary.dropped_at_receiver
    );
    let mut extra = numbers(summary)?;
    if let Some(expected) = expected {
        extra.extend(numbers(&check_conformance(
            recording,
            &expected.link_config,
        ))?);
        extra.retain(|name, _| !expected.excludes(name));
    }
    // Other figures are in the record for an investigation.
    extra.retain(|name, _| registry::METRICS.iter().any(|entry| entry.name == name));
    Ok(Outcome {
        bytes: 0,
        seconds: 0.0,
        retransmits: None,
        connections_bps: Vec::new(),
        extra,
    })
}

/// Numeric fields of a flat record.
fn numbers(record: &impl Serialize) -> Result<Metrics> {
    let Value::Object(fields) = serde_json::to_value(record)? else {
        bail!("a probe's record is not an object");
    };
    let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
    Ok(fields.into_iter().filter_map(number).collect())
}
