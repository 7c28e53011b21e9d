// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits on times, connections and memory: defaults, ranges and checks.

use crate::config::{
    location::{self, Part},
    options::CounterSettings,
    settings::{RecordFormat, Settings},
};
use longhaul_admission::penalties::{DELAY_MAX, DELAY_MIN};
use longhaul_command::exit::Refusal;
use longhaul_linux::pipe_pool::PoolConfig;
use longhaul_units::{Bytes, Time};
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Limits of a relay.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connect_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    /// HTTP: time after which a client that sends no request is disconnected.
    pub(crate) http_idle_timeout: Duration,
    /// HTTP and FTP: time after which the relay gives up a server that owes a response and sends nothing.
    pub(crate) response_timeout: Duration,
    pub(crate) connections_max: u32,
    pub(crate) workers: usize,
    /// Idle time after which a tunnel is closed; `None` is never.
    pub(crate) tunnel_idle_timeout: Option<Duration>,
    /// Time that open connections have to end after SIGTERM.
    pub(crate) grace: Duration,
    /// Concurrent name lookups for one client.
    pub(crate) lookups_per_client: usize,
    /// Connections of one client. If `None`, the limit depends on the number of connections left for other clients.
    pub(crate) connections_per_client: Option<usize>,
    /// Bytes that one client may hold once the memory budget is used up; `None` is a quarter of the
    /// budget.
    pub(crate) memory_per_client: Option<u64>,
    /// Time for which an endpoint may read nothing although data waits for it.
    pub(crate) stall_timeout: Duration,
    /// Longest delay between two passwords for one user from one client address; 0 is none.
    pub(crate) password_delay: Duration,
    /// Memory budget in bytes for the socket buffers and pipes of all legs; `None` is the default
    /// of [`longhaul_admission::memory::budget`].
    pub(crate) memory: Option<u64>,
}

/// Size of a buffer in copy mode, in bytes. With this size, copying takes far longer than the system calls for it.
const BUFFER_BYTES: usize = 256 * 1024;

/// Maximum number of idle pipes or buffers that a worker keeps: enough for a burst of busy connections. Memory per
/// worker: 640 KiB with pipes of 1 MiB (10 KiB each while empty), and 16 MiB in copy mode. A buffer that had only small
/// reads takes 16 KiB.
const IDLE_BUFFERS_MAX: usize = 64;

pub(crate) const CONNECTIONS_DEFAULT: u32 = 16384;
pub(super) const CONNECTIONS_RANGE: RangeInclusive<u32> = 1..=1_000_000;
pub(super) const WORKERS_RANGE: RangeInclusive<u16> = 1..=1024;
/// Smallest memory limit, in bytes: about what the sockets of one connection use while bytes move.
const MEMORY_MIN: u64 = 64 << 10;
/// Longer than people and programs usually pause while they read a response.
const STALL_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// More than a browser needs at once, and a sixteenth of the lookups of all clients.
const LOOKUPS_DEFAULT: u32 = 64;
/// Concurrent lookups of all clients: see
/// [`DescriptorBudget`](longhaul_admission::descriptors::DescriptorBudget).
pub(super) const LOOKUPS_RANGE: RangeInclusive<u32> = 1..=1024;
const PIPE_DEFAULT: Bytes = Bytes::new(1 << 20);
const TIMEOUT_DEFAULT: Time = Time::from_millis(10_000);
/// Longer than a long poll, or the preparation of a large report, usually takes.
const RESPONSE_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Longer than HTTP clients usually keep an idle connection themselves (Go 90 s, Firefox 115 s, curl 118 s), so that
/// they, and not the relay, decide. Programs that report once a minute find it open.
const HTTP_IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(300_000);
/// Twice the default age at which a relay replaces pooled connections.
pub(crate) const IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(120_000);
/// About the time for which address translators must keep idle connections (RFC 5382 REQ-5: 2 h 4
/// min).
const TUNNEL_IDLE_TIMEOUT_DEFAULT: Time = Time::from_millis(7_200_000);
const INTERVAL_DEFAULT: Time = Time::from_millis(1000);
/// At shorter intervals, counters would fill the disk.
const INTERVAL_MIN: Time = Time::from_millis(1);

pub(crate) fn pool_config(settings: &Settings) -> anyhow::Result<PoolConfig> {
    let size = settings.limits.pipe_size.unwrap_or(PIPE_DEFAULT);
    if !(4096..=1 << 30).contains(&size.get()) {
        return Err(refused("pipe_size", size, "4096B to 1GiB"));
    }
    Ok(PoolConfig {
        pipe_bytes: size.get() as usize,
        buffer_bytes: BUFFER_BYTES,
        pipes_max: usize::MAX,
        idle_max: IDLE_BUFFERS_MAX,
    })
}

pub(crate) fn limits(settings: &Settings) -> anyhow::Result<Limits> {
    let limits = &settings.limits;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let time = |key, time: Option<Time>, default| match time.unwrap_or(default) {
        Time::ZERO => Err(refused(key, "0s", "more than 0s")),
        time => Ok(Duration::from(time)),
    };
    let [connect, handshake] = [limits.connect_timeout, limits.handshake_timeout];
    let [response, stall] = [limits.response_timeout, limits.stall_timeout];
    let http_idle = limits.http_idle_timeout;
    Ok(Limits {
        connect_timeout: time("connect_timeout", connect, TIMEOUT_DEFAULT)?,
        handshake_timeout: time("handshake_timeout", handshake, TIMEOUT_DEFAULT)?,
        http_idle_timeout: time("http_idle_timeout", http_idle, HTTP_IDLE_TIMEOUT_DEFAULT)?,
        response_timeout: time("response_timeout", response, RESPONSE_TIMEOUT_DEFAULT)?,
        connections_max: check_range(
            "connections",
            limits.connections.unwrap_or(CONNECTIONS_DEFAULT),
            &CONNECTIONS_RANGE,
        )?,
        workers: match limits.workers {
            Some(workers) => check_range("workers", workers, &WORKERS_RANGE)?.into(),
            None => cores,
        },
        tunnel_idle_timeout: tunnel_idle_timeout(limits.tunnel_idle_timeout)?,
        grace: limits.grace.unwrap_or(TIMEOUT_DEFAULT).into(),
        lookups_per_client: check_range(
            "lookups_per_client",
            limits.lookups_per_client.unwrap_or(LOOKUPS_DEFAULT),
            &LOOKUPS_RANGE,
        )? as usize,
        connections_per_client: (limits.connections_per_client)
            .map(|value| check_range("connections_per_client", value, &CONNECTIONS_RANGE))
            .transpose()?
            .map(|value| value as usize),
        memory_per_client: check_memory("memory_per_client", limits.memory_per_client)?,
        stall_timeout: time("stall_timeout", stall, STALL_TIMEOUT_DEFAULT)?,
        password_delay: password_delay(limits.password_delay)?,
        memory: check_memory("memory", limits.memory)?,
    })
}

/// Checks that a value is in its range.
fn check_range<T: PartialOrd + fmt::Display>(
    key: &'static str,
    value: T,
    range: &RangeInclusive<T>,
) -> anyhow::Result<T> {
    if range.contains(&value) {
        Ok(value)
    } else {
        let expected = format!("{} to {}", range.start(), range.end());
        Err(refused(key, value, &expected))
    }
}

/// Checks a memory limit. Below the minimum, the relay could not serve a single connection.
fn check_memory(key: &'static str, value: Option<Bytes>) -> anyhow::Result<Option<u64>> {
    match value {
        Some(memory) if memory.get() < MEMORY_MIN => {
            let expected = format!("{} or more", Bytes::new(MEMORY_MIN));
            Err(refused(key, memory, &expected))
        }
        memory => Ok(memory.map(Bytes::get)),
    }
}

/// One week. All of the kernel's own time-outs are shorter.
const TUNNEL_IDLE_TIMEOUT_MAX: Time = Time::from_millis(7 * 86_400_000);
const ACCESS_LOG_INTERVAL_MAX: Time = Time::from_millis(7 * 86_400_000);

fn tunnel_idle_timeout(value: Option<Time>) -> anyhow::Result<Option<Duration>> {
    let range = Time::from_millis(1000)..=TUNNEL_IDLE_TIMEOUT_MAX;
    match value.unwrap_or(TUNNEL_IDLE_TIMEOUT_DEFAULT) {
        Time::ZERO => Ok(None),
        time if range.contains(&time) => Ok(Some(time.into())),
        time => Err(refused(
            "tunnel_idle_timeout",
            time,
            "1s to 7d, or 0s for never",
        )),
    }
}

/// Returns the interval of the records of an open tunnel. In the common log format, they would look like further
/// tunnels.
pub(crate) fn access_log_interval(counters: &CounterSettings) -> anyhow::Result<Option<Duration>> {
    let range = Time::from_millis(1000)..=ACCESS_LOG_INTERVAL_MAX;
    let is_common = counters.access_log_format == Some(RecordFormat::Common);
    match counters.access_log_interval.unwrap_or(Time::ZERO) {
        Time::ZERO => Ok(None),
        time if !range.contains(&time) => Err(location::refused(
            "access_log_interval",
            format!("access_log_interval {time}: expected 1s to 7d, or 0s for never"),
        )),
        _ if is_common => Err(location::refused(
            "access_log_interval",
            "access_log_interval needs access_log_format = \"json\": the common log format can't tell an open tunnel \
             from one that has ended",
        )),
        time => Ok(Some(time.into())),
    }
}

fn password_delay(value: Option<Time>) -> anyhow::Result<Duration> {
    match value.map(Duration::from) {
        None => Ok(DELAY_MAX),
        Some(delay) if delay.is_zero() || (DELAY_MIN..=DELAY_MAX).contains(&delay) => Ok(delay),
        Some(delay) => {
            let expected = "100ms to 8s, or 0s for none";
            Err(refused("password_delay", Time::from(delay), expected))
        }
    }
}

pub(crate) fn interval(value: Option<Time>) -> anyhow::Result<Duration> {
    match value.unwrap_or(INTERVAL_DEFAULT) {
        time if time < INTERVAL_MIN => Err(refused("interval", time, "1ms or more")),
        time => Ok(time.into()),
    }
}

/// Checks that a time without a flag is more than 0.
pub(crate) fn check_positive(key: &'static str, time: Time) -> anyhow::Result<Duration> {
    match time {
        Time::ZERO => {
            let problem = format!("{key} 0s: expected more than 0s");
            Err(location::refused(key, problem))
        }
        time => Ok(time.into()),
    }
}

/// Returns the refusal of a value whose key has a flag.
fn refused(key: &'static str, value: impl fmt::Display, expected: &str) -> anyhow::Error {
    let flag = flag_name(key);
    let problem = format!("{key} {value} (--{flag}): expected {expected}");
    Refusal::option(flag, problem).context(Part::Key(key))
}

/// Returns the name of the flag for a key, without dashes.
fn flag_name(key: &str) -> String {
    match key {
        "connections" => "max-connections".to_owned(),
        key => key.replace('_', "-"),
    }
}
