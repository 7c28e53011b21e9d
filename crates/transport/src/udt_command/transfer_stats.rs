// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a transfer, as text and as JSON.

use super::time_series::{self, Interval};
use longhaul_udt::Stats;
use longhaul_units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// Minimum bytes for which the CPU time is shown: for fewer, most of it is spent on opening and closing.
const CPU_BYTES_MIN: u64 = 1_000_000;

/// Statistics of a transfer at one endpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TransferStats {
    /// Start in seconds of Unix time.
    #[serde(default)]
    pub(super) started_at_s: f64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) bits_per_second: u64,
    /// CPU time of the process.
    pub(super) cpu_seconds: f64,
    pub(super) cpu_seconds_per_gb: f64,
    /// Data packets sent, retransmissions included.
    pub(super) packets_sent: u64,
    /// Data packets sent again.
    pub(super) packets_retransmitted: u64,
    /// Data packets that the receiver reported missing.
    pub(super) packets_lost: u64,
    /// Number of times that packets counted as lost because no ACK came.
    pub(super) timeouts: u64,
    /// Smoothed round-trip time in ms, at the end.
    pub(super) rtt_ms: f64,
    /// BLAKE3 hash of the file that was sent or received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blake3: Option<String>,
    /// Intervals since the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) intervals: Vec<Interval>,
}

/// Returns the CPU time of this process.
pub(super) fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

impl TransferStats {
    pub(super) fn new(bytes: u64, elapsed: Duration, cpu: Duration) -> Self {
        let stats = Self {
            bytes,
            ..Self::default()
        };
        stats.with_duration(elapsed, cpu)
    }

    /// Sets the duration and the CPU time.
    pub(super) fn with_duration(self, elapsed: Duration, cpu: Duration) -> Self {
        let bytes = self.bytes;
        let (seconds, cpu_seconds) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
        let started_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            started_at_s: started_at.unwrap_or_default().as_secs_f64() - seconds,
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

    /// Adds the counters of a connection. The RTT is that of the connection that was added last.
    pub(super) fn add_connection(&mut self, Stats { counts, rtt, .. }: &Stats) {
        self.packets_sent += counts.sent;
        self.packets_retransmitted += counts.retransmitted;
        self.packets_lost += counts.lost;
        self.timeouts += counts.timeouts;
        self.rtt_ms = rtt.as_secs_f64() * 1e3;
    }

    /// Adds the intervals of a connection.
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
            let retransmitted = self.packets_retransmitted;
            write!(
                f,
                "; {retransmitted} of {} packets retransmitted",
                self.packets_sent
            )?;
        }
        if self.bytes >= CPU_BYTES_MIN {
            write!(f, "; {:.2} s of CPU per GB", self.cpu_seconds_per_gb)?;
        }
        Ok(())
    }
}
