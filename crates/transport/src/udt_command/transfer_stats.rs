// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a transfer, in words and as JSON.

use super::time_series::{self, Interval};
use longhaul_udt::Stats;
use longhaul_units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// Of fewer bytes the CPU time is that of opening and closing.
const CPU_BYTES_MIN: u64 = 1_000_000;

/// One end's figures of a transfer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TransferStats {
    /// When it began, as Unix counts time.
    #[serde(default)]
    pub(super) began_s: f64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) bits_per_second: u64,
    /// Of all that this process does.
    pub(super) cpu_seconds: f64,
    pub(super) cpu_seconds_per_gb: f64,
    /// Data packets that were sent, of those again, reported missing, and times that nothing was heard for long.
    pub(super) packets_sent: u64,
    #[serde(rename = "packets_sent_again")]
    pub(super) packets_retransmitted: u64,
    pub(super) packets_lost: u64,
    pub(super) timeouts: u64,
    pub(super) rtt_ms: f64,
    /// What was sent or received, of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blake3: Option<String>,
    /// Since it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) intervals: Vec<Interval>,
}

/// CPU time of this process.
pub(super) fn process_cpu_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec as u32)
}

impl TransferStats {
    pub(super) fn new(bytes: u64, elapsed: Duration, cpu: Duration) -> Self {
        let figures = Self {
            bytes,
            ..Self::default()
        };
        figures.with_duration(elapsed, cpu)
    }

    /// That took so long.
    pub(super) fn with_duration(self, elapsed: Duration, cpu: Duration) -> Self {
        let bytes = self.bytes;
        let (seconds, cpu_seconds) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            began_s: began.unwrap_or_default().as_secs_f64() - seconds,
            seconds,
            bits_per_second: (bytes as f64 * 8.0 / seconds.max(1e-9)) as u64,
            cpu_seconds,
            cpu_seconds_per_gb: match bytes {
                0 => 0.0,
                _ => cpu_seconds * 1e9 / bytes as f64,
            },
            ..self
        }
    }

    /// A connection's own.
    pub(super) fn add_connection(&mut self, Stats { counts, rtt, .. }: &Stats) {
        self.packets_sent += counts.sent;
        self.packets_retransmitted += counts.retransmitted;
        self.packets_lost += counts.lost;
        self.timeouts += counts.timeouts;
        self.rtt_ms = rtt.as_secs_f64() * 1e3;
    }

    /// And how it went.
    pub(super) fn add_intervals(&mut self, intervals: Vec<Interval>) {
        time_series::add(&mut self.intervals, intervals);
    }
}

impl fmt::Display for TransferStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:.1} s", Bytes::new(self.bytes), self.seconds)?;
        if self.bytes > 0 {
            write!(f, ", {}", BitRate::measured(self.bits_per_second))?;
        }
        if self.packets_sent > 0 {
            let again = self.packets_retransmitted;
            write!(f, "; {again} of {} packets again", self.packets_sent)?;
        }
        if self.bytes >= CPU_BYTES_MIN {
            write!(f, "; {:.2} s of CPU a GB", self.cpu_seconds_per_gb)?;
        }
        Ok(())
    }
}
