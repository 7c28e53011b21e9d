// SPDX-License-Identifier: MIT OR Apache-2.0
//! Client of a bench: one control connection for the request and the result, and further ones for data.

use super::port::connection_error;
use super::{
    config::BenchConfig,
    time_series::{INTERVALS_MAX, Interval, TimeSeries},
    transfer_stats::{TransferStats, process_cpu_time},
};
use anyhow::{Context as _, Result, ensure};
use longhaul_command::outln;
use longhaul_udt::{Stats, socket::Stream};
use longhaul_units::{BitRate, Time};
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::{JoinSet, LocalSet},
};

/// Bytes per read or write.
const BUFFER_LEN: usize = 1 << 18;

/// Maximum length of a line, in bytes.
pub(super) const LINE_LEN_MAX: usize = 4096;

/// Maximum length of the result in bytes: a line with all intervals.
const ANSWER_LEN_MAX: usize = LINE_LEN_MAX + 100 * INTERVALS_MAX;

/// Request of a bench client, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BenchRequest {
    pub(super) streams: u16,
    /// Whether the server sends to the client.
    pub(super) reverse: bool,
    pub(super) milliseconds: u64,
    /// Total bytes to send instead of a duration.
    pub(super) bytes: Option<u64>,
    /// Length of the reported intervals in milliseconds.
    #[serde(default)]
    pub(super) interval_milliseconds: Option<u64>,
}

impl BenchRequest {
    /// Checks that a request stays within the limits of the command line.
    pub(super) fn check(&self) -> Result<()> {
        let streams_ok = (1..=64).contains(&self.streams);
        let interval_ok = self
            .interval_milliseconds
            .is_none_or(|interval| interval >= 100);
        ensure!(
            streams_ok && interval_ok && self.milliseconds <= 3_600_000,
            "the requested bench is too large"
        );
        Ok(())
    }

    /// Creates the time series of a connection, for a bench that started at `started_at`.
    pub(super) fn time_series(&self, started_at: Instant) -> TimeSeries {
        let interval = self.interval_milliseconds.map(Duration::from_millis);
        TimeSeries::new(started_at, interval)
    }

    /// Returns the number of bytes that each connection carries.
    fn stream_bytes(&self) -> u64 {
        self.bytes
            .map_or(u64::MAX, |bytes| bytes.div_ceil(self.streams.into()))
    }
}

/// Result of one connection.
#[derive(Debug)]
pub(super) struct StreamResult {
    bytes: u64,
    stats: Stats,
    intervals: Vec<Interval>,
}

impl StreamResult {
    fn new(bytes: u64, stream: &Stream, time_series: TimeSeries) -> Self {
        let end = stream.stats().unwrap_or_default();
        Self {
            bytes,
            stats: end,
            intervals: time_series.finish(&end.counts),
        }
    }

    /// Adds the result to the sums of its endpoint.
    pub(super) fn add_to(self, sums: &mut TransferStats) {
        sums.bytes += self.bytes;
        sums.add_connection(&self.stats);
        sums.add_intervals(self.intervals);
    }
}

/// Result of a bench, from both endpoints.
#[derive(Debug, Serialize)]
struct BenchReport {
    to: SocketAddr,
    streams: u16,
    reverse: bool,
    /// Throughput at the receiver.
    bits_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_seconds: Option<f64>,
    sender: TransferStats,
    receiver: TransferStats,
}

pub(super) async fn run(config: &BenchConfig) -> Result<()> {
    let request = BenchRequest {
        streams: config.streams,
        reverse: config.reverse,
        milliseconds: milliseconds(config.time),
        bytes: config.bytes.map(longhaul_units::Bytes::get),
        interval_milliseconds: config.interval.map(milliseconds),
    };
    let client = run_client(config, &request);
    let (local, remote) = LocalSet::new().run_until(client).await?;
    let (sender, receiver) = if config.reverse {
        (remote, local)
    } else {
        (local, remote)
    };
    let report = BenchReport {
        to: config.to,
        streams: config.streams,
        reverse: config.reverse,
        bits_per_second: receiver.bits_per_second,
        interval_seconds: request
            .interval_milliseconds
            .map(|interval| interval as f64 / 1e3),
        sender,
        receiver,
    };
    if config.json {
        outln!("{}", serde_json::to_string(&report)?);
    } else {
        report.print();
    }
    Ok(())
}

fn milliseconds(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

impl BenchReport {
    fn print(&self) {
        let interval_seconds = self.interval_seconds.unwrap_or_default();
        for (number, interval) in self.receiver.intervals.iter().enumerate() {
            let rate = BitRate::measured((interval.bytes as f64 * 8.0 / interval_seconds) as u64);
            outln!("{:.1} s: {rate}", (number + 1) as f64 * interval_seconds);
        }
        outln!("{}", BitRate::measured(self.bits_per_second));
        outln!("sender: {}", self.sender);
        outln!("receiver: {}", self.receiver);
    }
}

/// Runs a bench as the client. Returns the statistics of this endpoint and of the server.
async fn run_client(
    config: &BenchConfig,
    request: &BenchRequest,
) -> Result<(TransferStats, TransferStats)> {
    let to = config.to;
    let socket = config.port.bind_for(to)?;
    let connect = async || {
        let connected = socket.connect(to).await;
        connected.map_err(|error| connection_error(to, &error))
    };
    let mut control = connect().await?;
    let line = serde_json::to_string(request)? + "\n";
    control.write_all(line.as_bytes()).await?;
    let number = read_line(&mut control, LINE_LEN_MAX).await;
    let number = number.context("the peer does not serve a bench")?;
    let number: u64 = number
        .parse()
        .context("the peer is not a bench of longhaul")?;
    let (started_at, cpu_start) = (Instant::now(), process_cpu_time());
    let mut tasks = JoinSet::new();
    for _ in 0..request.streams {
        let mut stream = connect().await?;
        stream.write_u8(b'D').await?;
        stream.write_u64(number).await?;
        let request = request.clone();
        tasks.spawn_local(async move {
            if request.reverse {
                receive_data(stream, request.time_series(started_at)).await
            } else {
                send_data(stream, &request, started_at).await
            }
        });
    }
    let mut local = TransferStats::default();
    while let Some(result) = tasks.join_next().await {
        result??.add_to(&mut local);
    }
    let local = local.with_duration(started_at.elapsed(), process_cpu_time() - cpu_start);
    let line = read_line(&mut control, ANSWER_LEN_MAX)
        .await
        .context("the peer sent no result")?;
    Ok((local, serde_json::from_str(&line)?))
}

/// Sends data until the end of the bench, and waits until all is acknowledged.
pub(super) async fn send_data(
    mut stream: Stream,
    request: &BenchRequest,
    started_at: Instant,
) -> Result<StreamResult> {
    let buffer = vec![0x5a; BUFFER_LEN];
    let mut time_series = request.time_series(started_at);
    let sending_since = Instant::now();
    let time = Duration::from_millis(request.milliseconds);
    let (mut bytes, bytes_max) = (0, request.stream_bytes());
    while bytes < bytes_max && (request.bytes.is_some() || sending_since.elapsed() < time) {
        let length = (bytes_max - bytes).min(BUFFER_LEN as u64) as usize;
        stream.write_all(&buffer[..length]).await?;
        bytes += length as u64;
        time_series.record(length as u64, &stream);
    }
    stream.shutdown().await?;
    Ok(StreamResult::new(bytes, &stream, time_series))
}

/// Receives data until the end of the stream.
pub(super) async fn receive_data(
    mut stream: Stream,
    mut time_series: TimeSeries,
) -> Result<StreamResult> {
    let mut buffer = vec![0; BUFFER_LEN];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(StreamResult::new(bytes, &stream, time_series)),
            length => {
                bytes += length as u64;
                time_series.record(length as u64, &stream);
            }
        }
    }
}

/// Reads a line of at most `len_max` bytes, without its line end.
pub(super) async fn read_line(from: &mut Stream, len_max: usize) -> Result<String> {
    let mut line = Vec::new();
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(String::from_utf8(line)?),
            byte => line.push(byte),
        }
        ensure!(line.len() <= len_max, "a line is too long");
    }
}
