// SPDX-License-Identifier: MIT OR Apache-2.0
//! curl: downloads into preallocated memory, and uploads from memory.
//!
//! The body goes to curl's standard output, which is the receiving file: tmpfs pages that were
//! written before. On two cores, 2 GB over loopback took 1.2 s into /dev/null, and 1.3–1.8 s this
//! way. It took 2.8–6 s into a new tmpfs file, whose pages the kernel allocates meanwhile, and 4–6
//! s through a pipe into a SHA-256. So the hash is computed after curl's clock has stopped.

use super::{run_to_end, save_json};
use crate::{measure::Outcome, testbed::payload::Sink};
use anyhow::{Context, Result, bail, ensure};
use longhaul_linux::{netns::Netns, programs};
use longhaul_report::registry;
use longhaul_results::result::Metrics;
use longhaul_units::Time;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// Parameters of one curl transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurlRequest<'a> {
    pub(crate) url: &'a str,
    pub(crate) proxy: Option<&'a str>,
    pub(crate) limit: Time,
    /// Whether FTP's server opens the data connections.
    pub(crate) active: bool,
}

/// Downloads into `sink` from inside `netns`.
pub(crate) async fn fetch(
    netns: &Netns,
    request: CurlRequest<'_>,
    sink: &Sink,
    record: &Path,
) -> Result<Outcome> {
    let mut command = command(request);
    command.stdout(sink.writer()?);
    parse_report(&run(command, netns, record).await?, "size_download")
}

/// Uploads `file` from inside `netns`.
pub(crate) async fn send(
    netns: &Netns,
    request: CurlRequest<'_>,
    file: &Path,
    record: &Path,
) -> Result<Outcome> {
    let mut command = command(request);
    command.arg("--upload-file").arg(file).stdout(Stdio::null());
    parse_report(&run(command, netns, record).await?, "size_upload")
}

fn command(request: CurlRequest<'_>) -> Command {
    let mut command = programs::command("curl");
    command
        // Must come first: ignores ~/.curlrc.
        .args(["--disable", "--silent", "--show-error", "--fail"])
        // Overrides proxies of the environment.
        .args(match request.proxy {
            Some(proxy) => ["--noproxy", "", "--proxy", proxy].to_vec(),
            None => ["--noproxy", "*"].to_vec(),
        })
        .args(["--max-time", &request.limit.as_secs_f64().to_string()])
        .args(["--write-out", "%{stderr}%{json}"])
        .args(
            request
                .active
                .then_some(["--ftp-port", "-"])
                .into_iter()
                .flatten(),
        )
        .arg(request.url)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

async fn run(command: Command, netns: &Netns, record: &Path) -> Result<Value> {
    let output = run_to_end(command, "curl", netns).await?;
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // The record follows curl's message.
        bail!("{}", message.split("\n{").next().unwrap_or_default().trim());
    }
    save_json(record, &output.stderr, "curl")
}

fn parse_report(record: &Value, size: &str) -> Result<Outcome> {
    let number = |key: &str| {
        record[key]
            .as_f64()
            .with_context(|| format!("curl reported no {key}"))
    };
    let seconds = number("time_total")?;
    ensure!(seconds > 0.0, "curl reported a transfer of no time");
    let first_byte = (
        registry::FIRST_BYTE.to_owned(),
        number("time_starttransfer")?,
    );
    Ok(Outcome {
        bytes: number(size)? as u64,
        seconds,
        retransmits: None,
        connections_bps: Vec::new(),
        extra: Metrics::from([(registry::DOWNLOAD.to_owned(), seconds), first_byte]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_report_of_curl() {
        let record = json!({"time_total": 2.5, "time_starttransfer": 0.05, "size_download": 1000});
        let outcome = parse_report(&record, "size_download").unwrap();
        assert_eq!((outcome.bytes, outcome.seconds), (1000, 2.5));
        assert_eq!(outcome.extra["download_s"], 2.5);
        assert!(parse_report(&json!({"time_total": 2.5}), "size_upload").is_err());
    }
}
