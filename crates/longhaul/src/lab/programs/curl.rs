// SPDX-License-Identifier: MIT OR Apache-2.0
//! curl, fetching a file into memory that is already there.
//!
//! The body goes to curl's standard output, which is the landing file: tmpfs pages that were
//! written before. On two cores, 2 GB over loopback took 1.2 s into /dev/null, 1.3–1.8 s this way,
//! 2.8–6 s into a fresh tmpfs file (the kernel makes its pages meanwhile) and 4–6 s through a pipe
//! into a SHA-256. So the hash is computed after curl's clock has stopped.

use super::{Outcome, finish, keep_json};
use crate::lab::{payload::Landing, result::Metrics};
use anyhow::{Context, Result, bail, ensure};
use host::netns::Netns;
use serde_json::Value;
use std::{
    path::Path,
    process::{Command, Stdio},
};
use units::Time;

/// Fetches `url` from inside `netns` into `landing`, by way of `proxy` if there is one.
pub(crate) async fn fetch(
    netns: &Netns,
    url: &str,
    proxy: Option<&str>,
    landing: &Landing,
    limit: Time,
    record: &Path,
) -> Result<Outcome> {
    let mut command = Command::new("curl");
    command
        // First: no ~/.curlrc.
        .args(["--disable", "--silent", "--show-error", "--fail"])
        // Whatever the environment says.
        .args(match proxy {
            Some(proxy) => ["--noproxy", "", "--proxy", proxy].to_vec(),
            None => ["--noproxy", "*"].to_vec(),
        })
        .args(["--max-time", &limit.as_secs_f64().to_string()])
        .args(["--write-out", "%{stderr}%{json}"])
        .arg(url)
        .stdin(Stdio::null())
        .stdout(landing.writer()?)
        .stderr(Stdio::piped());
    let output = finish(command, "curl", netns).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        // Behind curl's message stands the record.
        bail!("{}", said.split("\n{").next().unwrap_or_default().trim());
    }
    read(&keep_json(record, &output.stderr, "curl")?)
}

fn read(record: &Value) -> Result<Outcome> {
    let number = |key: &str| {
        record[key]
            .as_f64()
            .with_context(|| format!("curl reported no {key}"))
    };
    let seconds = number("time_total")?;
    ensure!(seconds > 0.0, "curl reported a transfer of no time");
    let first_byte = ("first_byte_s".to_owned(), number("time_starttransfer")?);
    Ok(Outcome {
        bytes: number("size_download")? as u64,
        seconds,
        retransmits: None,
        connections_bps: Vec::new(),
        extra: Metrics::from([("download_s".to_owned(), seconds), first_byte]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_curl_reports() {
        let record = json!({"time_total": 2.5, "time_starttransfer": 0.05, "size_download": 1000});
        let outcome = read(&record).unwrap();
        assert_eq!((outcome.bytes, outcome.seconds), (1000, 2.5));
        assert_eq!(outcome.extra["download_s"], 2.5);
        assert!(read(&json!({"time_total": 2.5})).is_err());
    }
}
