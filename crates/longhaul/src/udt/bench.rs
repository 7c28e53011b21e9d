// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a bench that asks: one connection to say what, and those that carry data.

use super::{
    args::Bench,
    figures::{Figures, cpu},
    port::not_reached,
};
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::{JoinSet, LocalSet},
};
use udt::{Counts, socket::Stream};
use units::{BitRate, Time};

/// Written and read at once.
const BUFFER: usize = 1 << 18;

/// The longest line.
const LINE_MAX: usize = 4096;

/// What is to be measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) streams: u16,
    /// From who serves to who asks.
    pub(super) reverse: bool,
    pub(super) milliseconds: u64,
    /// Instead of a time, in all.
    pub(super) bytes: Option<u64>,
}

impl Asked {
    /// Of others no more is done than what one may ask for here.
    pub(super) fn check(&self) -> Result<()> {
        let streams = (1..=64).contains(&self.streams);
        ensure!(
            streams && self.milliseconds <= 3_600_000,
            "too large a bench"
        );
        Ok(())
    }

    /// What each of its connections carries.
    fn each(&self) -> u64 {
        self.bytes
            .map_or(u64::MAX, |all| all.div_ceil(self.streams.into()))
    }
}

/// What one connection did.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) bytes: u64,
    pub(super) counts: Counts,
    pub(super) rtt: Time,
}

impl Share {
    fn of(bytes: u64, stream: &Stream) -> Self {
        let (counts, rtt) = stream.counts().unwrap_or_default();
        Self { bytes, counts, rtt }
    }
}

/// What both ends saw.
#[derive(Debug, Serialize)]
struct Record {
    to: SocketAddr,
    parallel: u16,
    reverse: bool,
    /// What arrived, and how fast.
    bits_per_second: u64,
    sender: Figures,
    receiver: Figures,
}

pub(super) async fn run(args: &Bench, to: &SocketAddr) -> Result<()> {
    let asked = Asked {
        streams: args.parallel,
        reverse: args.reverse,
        milliseconds: args.time.as_nanos() / 1_000_000,
        bytes: args.bytes.map(units::Bytes::get),
    };
    let asking = ask(args, *to, &asked);
    let (here, there) = LocalSet::new().run_until(asking).await?;
    let (sender, receiver) = match args.reverse {
        true => (there, here),
        false => (here, there),
    };
    let record = Record {
        to: *to,
        parallel: args.parallel,
        reverse: args.reverse,
        bits_per_second: receiver.bits_per_second,
        sender,
        receiver,
    };
    match args.json {
        true => say!("{}", serde_json::to_string(&record)?),
        false => {
            say!("{}", BitRate::from_bits(record.bits_per_second));
            say!("sender: {}", record.sender);
            say!("receiver: {}", record.receiver);
        }
    }
    Ok(())
}

/// The figures of this end, and of the other.
async fn ask(args: &Bench, to: SocketAddr, asked: &Asked) -> Result<(Figures, Figures)> {
    let socket = args.port.towards(to)?;
    let connect = async || {
        let connected = socket.connect(to).await;
        connected.map_err(|error| not_reached(to, &error))
    };
    let mut control = connect().await?;
    let line = serde_json::to_string(asked)? + "\n";
    control.write_all(line.as_bytes()).await?;
    let number = read_line(&mut control).await;
    let number = number.context("the other end does not serve a bench")?;
    let number: u64 = number
        .parse()
        .context("the other end is no bench of longhaul's")?;
    let (at, spent) = (Instant::now(), cpu());
    let mut all = JoinSet::new();
    for _ in 0..asked.streams {
        let mut stream = connect().await?;
        stream.write_u8(b'D').await?;
        stream.write_u64(number).await?;
        let asked = asked.clone();
        all.spawn_local(async move {
            match asked.reverse {
                true => swallow(stream).await,
                false => fill(stream, &asked).await,
            }
        });
    }
    let mut here = Figures::default();
    let mut bytes = 0;
    while let Some(share) = all.join_next().await {
        let share = share??;
        bytes += share.bytes;
        here.count(&share.counts, share.rtt);
    }
    let here = here.with(bytes, at.elapsed(), cpu() - spent);
    let line = read_line(&mut control)
        .await
        .context("the other end says nothing at the end")?;
    Ok((here, serde_json::from_str(&line)?))
}

/// Sends until it is enough, and all has arrived.
pub(super) async fn fill(mut stream: Stream, asked: &Asked) -> Result<Share> {
    let buffer = vec![0x5a; BUFFER];
    let begun = Instant::now();
    let time = Duration::from_millis(asked.milliseconds);
    let (mut bytes, each) = (0, asked.each());
    while bytes < each && (asked.bytes.is_some() || begun.elapsed() < time) {
        let length = (each - bytes).min(BUFFER as u64) as usize;
        stream.write_all(&buffer[..length]).await?;
        bytes += length as u64;
    }
    stream.shutdown().await?;
    Ok(Share::of(bytes, &stream))
}

/// Receives until there is no more.
pub(super) async fn swallow(mut stream: Stream) -> Result<Share> {
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(Share::of(bytes, &stream)),
            length => bytes += length as u64,
        }
    }
}

/// A line, without its end.
pub(super) async fn read_line(from: &mut Stream) -> Result<String> {
    let mut line = Vec::new();
    loop {
        match from.read_u8().await? {
            b'\n' => return Ok(String::from_utf8(line)?),
            byte => line.push(byte),
        }
        ensure!(line.len() <= LINE_MAX, "a line is too long");
    }
}
