// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a bench that asks: one connection to say what, and those that carry data.

use super::port::connection_error;
use super::{
    config::Bench,
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

/// Written and read at once.
const BUFFER_LEN: usize = 1 << 18;

/// The longest line.
pub(super) const LINE_LEN_MAX: usize = 4096;

/// The longest answer at the end: a line and all intervals.
const ANSWER_LEN_MAX: usize = LINE_LEN_MAX + 100 * INTERVALS_MAX;

/// What is to be measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BenchRequest {
    pub(super) streams: u16,
    /// From who serves to who asks.
    pub(super) reverse: bool,
    pub(super) milliseconds: u64,
    /// Instead of a time, in all.
    pub(super) bytes: Option<u64>,
    /// How long each interval is that is to be told of.
    #[serde(default)]
    pub(super) interval_milliseconds: Option<u64>,
}

impl BenchRequest {
    /// Of others no more is done than what one may ask for here.
    pub(super) fn check(&self) -> Result<()> {
        let streams = (1..=64).contains(&self.streams);
        let told = self.interval_milliseconds.is_none_or(|each| each >= 100);
        ensure!(
            streams && told && self.milliseconds <= 3_600_000,
            "too large a bench"
        );
        Ok(())
    }

    /// Of a connection of a bench that began then.
    pub(super) fn time_series(&self, began: Instant) -> TimeSeries {
        let every = self.interval_milliseconds.map(Duration::from_millis);
        TimeSeries::new(began, every)
    }

    /// What each of its connections carries.
    fn stream_bytes(&self) -> u64 {
        self.bytes
            .map_or(u64::MAX, |all| all.div_ceil(self.streams.into()))
    }
}

/// What one connection did.
#[derive(Debug)]
pub(super) struct StreamResult {
    bytes: u64,
    stats: Stats,
    intervals: Vec<Interval>,
}

impl StreamResult {
    fn new(bytes: u64, stream: &Stream, course: TimeSeries) -> Self {
        let end = stream.stats().unwrap_or_default();
        Self {
            bytes,
            stats: end,
            intervals: course.finish(&end.counts),
        }
    }

    /// Adds it to those of its end.
    pub(super) fn add_to(self, figures: &mut TransferStats) {
        figures.bytes += self.bytes;
        figures.add_connection(&self.stats);
        figures.add_intervals(self.intervals);
    }
}

/// What both ends saw.
#[derive(Debug, Serialize)]
struct BenchReport {
    to: SocketAddr,
    parallel: u16,
    reverse: bool,
    /// What arrived, and how fast.
    bits_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_seconds: Option<f64>,
    sender: TransferStats,
    receiver: TransferStats,
}

pub(super) async fn run(config: &Bench) -> Result<()> {
    let asked = BenchRequest {
        streams: config.parallel,
        reverse: config.reverse,
        milliseconds: milliseconds(config.time),
        bytes: config.bytes.map(longhaul_units::Bytes::get),
        interval_milliseconds: config.interval.map(milliseconds),
    };
    let asking = run_client(config, &asked);
    let (here, there) = LocalSet::new().run_until(asking).await?;
    let (sender, receiver) = match config.reverse {
        true => (there, here),
        false => (here, there),
    };
    let record = BenchReport {
        to: config.to,
        parallel: config.parallel,
        reverse: config.reverse,
        bits_per_second: receiver.bits_per_second,
        interval_seconds: asked.interval_milliseconds.map(|each| each as f64 / 1e3),
        sender,
        receiver,
    };
    match config.json {
        true => outln!("{}", serde_json::to_string(&record)?),
        false => record.print(),
    }
    Ok(())
}

fn milliseconds(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

impl BenchReport {
    fn print(&self) {
        let each = self.interval_seconds.unwrap_or_default();
        for (number, interval) in self.receiver.intervals.iter().enumerate() {
            let rate = BitRate::measured((interval.bytes as f64 * 8.0 / each) as u64);
            outln!("{:.1} s: {rate}", (number + 1) as f64 * each);
        }
        outln!("{}", BitRate::measured(self.bits_per_second));
        outln!("sender: {}", self.sender);
        outln!("receiver: {}", self.receiver);
    }
}

/// The figures of this end, and of the other.
async fn run_client(
    config: &Bench,
    asked: &BenchRequest,
) -> Result<(TransferStats, TransferStats)> {
    let to = config.to;
    let socket = config.port.bind_for(to)?;
    let connect = async || {
        let connected = socket.connect(to).await;
        connected.map_err(|error| connection_error(to, &error))
    };
    let mut control = connect().await?;
    let line = serde_json::to_string(asked)? + "\n";
    control.write_all(line.as_bytes()).await?;
    let number = read_line(&mut control, LINE_LEN_MAX).await;
    let number = number.context("the other end does not serve a bench")?;
    let number: u64 = number
        .parse()
        .context("the other end is not a bench of longhaul's")?;
    let (at, spent) = (Instant::now(), process_cpu_time());
    let mut all = JoinSet::new();
    for _ in 0..asked.streams {
        let mut stream = connect().await?;
        stream.write_u8(b'D').await?;
        stream.write_u64(number).await?;
        let asked = asked.clone();
        all.spawn_local(async move {
            match asked.reverse {
                true => receive_data(stream, asked.time_series(at)).await,
                false => send_data(stream, &asked, at).await,
            }
        });
    }
    let mut here = TransferStats::default();
    while let Some(share) = all.join_next().await {
        share??.add_to(&mut here);
    }
    let here = here.with_duration(at.elapsed(), process_cpu_time() - spent);
    let line = read_line(&mut control, ANSWER_LEN_MAX)
        .await
        .context("the other end says nothing at the end")?;
    Ok((here, serde_json::from_str(&line)?))
}

/// Sends until it is enough, and all has arrived.
pub(super) async fn send_data(
    mut stream: Stream,
    asked: &BenchRequest,
    began: Instant,
) -> Result<StreamResult> {
    let buffer = vec![0x5a; BUFFER_LEN];
    let mut course = asked.time_series(began);
    let begun = Instant::now();
    let time = Duration::from_millis(asked.milliseconds);
    let (mut bytes, each) = (0, asked.stream_bytes());
    while bytes < each && (asked.bytes.is_some() || begun.elapsed() < time) {
        let length = (each - bytes).min(BUFFER_LEN as u64) as usize;
        stream.write_all(&buffer[..length]).await?;
        bytes += length as u64;
        course.record(length as u64, &stream);
    }
    stream.shutdown().await?;
    Ok(StreamResult::new(bytes, &stream, course))
}

/// Receives until there is no more.
pub(super) async fn receive_data(
    mut stream: Stream,
    mut course: TimeSeries,
) -> Result<StreamResult> {
    let mut buffer = vec![0; BUFFER_LEN];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(StreamResult::new(bytes, &stream, course)),
            length => {
                bytes += length as u64;
                course.record(length as u64, &stream);
            }
        }
    }
}

/// A line of at most so many bytes, without its end.
pub(super) async fn read_line(from: &mut Stream, longest: usize) -> Result<String> {
    let mut line = Vec::new();
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(String::from_utf8(line)?),
            byte => line.push(byte),
        }
        ensure!(line.len() <= longest, "a line is too long");
    }
}
