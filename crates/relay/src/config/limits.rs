// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times and numbers that nothing exceeds.

use crate::config::settings::Settings;
use longhaul_command::exit::Refusal;
use longhaul_linux::pipe_pool::PoolConfig;
use longhaul_units::{Bytes, Time};
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Times and numbers that nothing exceeds.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connect_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    /// How long an origin that owes something may be silent: HTTP and FTP.
    pub(crate) response_timeout: Duration,
    pub(crate) connections_max: u32,
    pub(crate) workers: usize,
    /// How long nothing may pass over a tunnel; `None` is for ever.
    pub(crate) tunnel_idle_timeout: Option<Duration>,
    pub(crate) grace: Duration,
    /// Names looked up for one client at a time.
    pub(crate) lookups_per_client: usize,
    /// Connections of one client; `None` depends on what is left for others.
    pub(crate) connections_per_client: Option<usize>,
    /// Bytes that one client may hold once the budget is used up; `None` is a quarter of it.
    pub(crate) memory_per_client: Option<u64>,
    /// How long somebody may take nothing of what is there for them.
    pub(crate) stall_timeout: Duration,
    /// Bytes in the socket buffers and pipes of all legs; `None` is [`longhaul_admission::memory::budget`]'s
    /// default.
    pub(crate) memory: Option<u64>,
}

/// Bytes in one copy: large enough that the system calls vanish beside the copying.
const BUFFER_BYTES: usize = 256 * 1024;

/// Idle conduits a worker keeps: enough for a burst of busy connections. Memory: 640 KiB a worker
/// with 1 MiB pipes, 16 MiB in copy mode; buffers that only saw small reads, 16 KiB each.
const IDLE_CONDUITS_MAX: usize = 64;

const CONNECTIONS_DEFAULT: u32 = 16384;
const CONNECTIONS_RANGE: RangeInclusive<u32> = 1..=1_000_000;
const WORKERS_RANGE: RangeInclusive<u16> = 1..=1024;
/// About what the sockets of one connection hold when bytes move.
const MEMORY_MIN: u64 = 64 << 10;
/// Above the pauses of people and programs that read what they asked for.
const STALL_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Above what a browser opens at once, and a sixteenth of what all clients may have.
const LOOKUPS_DEFAULT: u32 = 64;
/// What all clients together may have under way: see [`DescriptorBudget`](longhaul_admission::descriptors::DescriptorBudget).
const LOOKUPS_MAX: u32 = 1024;
const PIPE_DEFAULT: Bytes = Bytes::new(1 << 20);
const TIMEOUT_DEFAULT: Time = Time::from_millis(10_000);
/// Above what long polls and large reports take.
const RESPONSE_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Twice the age at which peers replace their ready connections.
pub(crate) const IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(120_000);
/// About what address translators must remember an idle connection for (RFC 5382 REQ-5: 2 h 4 min).
const TUNNEL_IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(7_200_000);
const INTERVAL_DEFAULT: Time = Time::from_millis(1000);
/// More often, and counters are all that a disk has room for.
const INTERVAL_LEAST: Time = Time::from_millis(1);

pub(crate) fn pool(settings: &Settings) -> anyhow::Result<PoolConfig> {
    let size = settings.limits.pipe_size.unwrap_or(PIPE_DEFAULT);
    if !(4096..=1 << 30).contains(&size.get()) {
        return Err(Refusal::usage(format!(
            "pipe size {size} (--pipe-size, limits.pipe_size): want 4096B to 1GiB"
        )));
    }
    Ok(PoolConfig {
        pipe_bytes: size.get() as usize,
        buffer_bytes: BUFFER_BYTES,
        pipes_max: usize::MAX,
        idle_max: IDLE_CONDUITS_MAX,
    })
}

pub(crate) fn limits(settings: &Settings) -> anyhow::Result<Limits> {
    let written = &settings.limits;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let time = |key, time: Option<Time>, default| positive(key, time.unwrap_or(default));
    let [connect, handshake] = [written.connect_timeout, written.handshake_timeout];
    let [response, stall] = [written.response_timeout, written.stall_timeout];
    Ok(Limits {
        connect_timeout: time("connect_timeout", connect, TIMEOUT_DEFAULT)?,
        handshake_timeout: time("handshake_timeout", handshake, TIMEOUT_DEFAULT)?,
        response_timeout: time("response_timeout", response, RESPONSE_TIMEOUT_DEFAULT)?,
        connections_max: within(
            "connections",
            written.connections.unwrap_or(CONNECTIONS_DEFAULT),
            &CONNECTIONS_RANGE,
        )?,
        workers: match written.workers {
            Some(workers) => within("workers", workers, &WORKERS_RANGE)?.into(),
            None => cores,
        },
        tunnel_idle_timeout: tunnel_idle_timeout(written.tunnel_idle_timeout)?,
        grace: written.grace.unwrap_or(TIMEOUT_DEFAULT).into(),
        lookups_per_client: within(
            "lookups_per_client",
            written.lookups_per_client.unwrap_or(LOOKUPS_DEFAULT),
            &(1..=LOOKUPS_MAX),
        )? as usize,
        connections_per_client: connections_per_client(written.connections_per_client)?,
        memory_per_client: memory("memory_per_client", written.memory_per_client)?,
        stall_timeout: time("stall_timeout", stall, STALL_TIMEOUT_DEFAULT)?,
        memory: memory("memory", written.memory)?,
    })
}

fn connections_per_client(wanted: Option<u32>) -> anyhow::Result<Option<usize>> {
    match wanted {
        Some(0) => Err(Refusal::usage(
            "limits.connections_per_client 0: want 1 or more",
        )),
        wanted => Ok(wanted.map(|wanted| wanted as usize)),
    }
}

fn within<T: PartialOrd + fmt::Display>(
    key: &str,
    wanted: T,
    range: &RangeInclusive<T>,
) -> anyhow::Result<T> {
    match range.contains(&wanted) {
        true => Ok(wanted),
        false => Err(Refusal::usage(format!(
            "limits.{key} {wanted}: want {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

/// With less, a relay would serve nobody.
fn memory(key: &str, wanted: Option<Bytes>) -> anyhow::Result<Option<u64>> {
    match wanted.map(Bytes::get) {
        Some(bytes) if bytes < MEMORY_MIN => Err(Refusal::usage(format!(
            "limits.{key} {}: want {} or more",
            Bytes::new(bytes),
            Bytes::new(MEMORY_MIN)
        ))),
        bytes => Ok(bytes),
    }
}

/// What the kernel's own time-outs come to is below a week.
const TUNNEL_IDLE_TIMEOUT_MAX: Time = Time::from_millis(7 * 86_400_000);

fn tunnel_idle_timeout(written: Option<Time>) -> anyhow::Result<Option<Duration>> {
    let range = Time::from_millis(1000)..=TUNNEL_IDLE_TIMEOUT_MAX;
    match written.unwrap_or(TUNNEL_IDLE_TIMEOUT_DEFAULT) {
        Time::ZERO => Ok(None),
        time if range.contains(&time) => Ok(Some(time.into())),
        time => Err(Refusal::usage(format!(
            "tunnel_idle_timeout {time} (--tunnel-idle-timeout): want 1s to 7d, or 0s for never"
        ))),
    }
}

pub(crate) fn interval(wanted: Option<Time>) -> anyhow::Result<Duration> {
    match wanted.unwrap_or(INTERVAL_DEFAULT) {
        time if time < INTERVAL_LEAST => Err(Refusal::usage(format!(
            "interval {time} (--interval): want 1ms or more"
        ))),
        time => Ok(time.into()),
    }
}

pub(crate) fn positive(key: &str, time: Time) -> anyhow::Result<Duration> {
    let flag = key.replace('_', "-");
    match time {
        Time::ZERO => Err(Refusal::usage(format!(
            "{key} 0 (--{flag}): want more than no time"
        ))),
        time => Ok(time.into()),
    }
}
