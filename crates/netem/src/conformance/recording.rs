// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording of a probe: the times of each packet, and their summary. In a file of JSON lines, the timing comes first,
//! then the packets, then the summary.

use longhaul_stats::sample::quantile_by_rank;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    io::{self, BufRead, BufWriter, Write},
};

/// Number, size and interval of the packets to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "timing")]
pub struct Timing {
    /// Number of packets.
    pub count: u32,
    /// Time from one message to the next, ns; 0 sends messages back to back.
    pub interval_ns: u64,
    /// Size of a packet with its IP header, bytes.
    pub packet_size: u16,
    /// Number of packets in one message.
    pub gso_segments: u16,
}

/// Maximum number of packets of a probe. Each takes 24 bytes of memory, and 70 in a file.
const COUNT_MAX: u32 = 1_000_000;
/// Segments that the kernel takes in one message (`UDP_MAX_SEGMENTS`, 64 before Linux 6.9).
const SEGMENTS_MAX: u32 = 64;
/// Maximum length of a message, in bytes.
const MESSAGE_LEN_MAX: u32 = 65_000;

impl Timing {
    /// Checks the ranges of the values.
    pub fn check(&self) -> Result<(), String> {
        let check_range = |what: &str, value: u32, min: u32, max: u32| {
            let is_valid = (min..=max).contains(&value);
            is_valid
                .then_some(())
                .ok_or_else(|| format!("probe: {what} is {value}, but must be {min} to {max}"))
        };
        check_range("count", self.count, 1, COUNT_MAX)?;
        check_range("packet size", self.packet_size.into(), 64, 9000)?;
        check_range("GSO segments", self.gso_segments.into(), 1, SEGMENTS_MAX)?;
        let message = u32::from(self.gso_segments) * u32::from(self.packet_size);
        if message > MESSAGE_LEN_MAX {
            return Err(format!(
                "probe: a message of {} packets of {} bytes has {message} bytes, but must have {MESSAGE_LEN_MAX} at most",
                self.gso_segments, self.packet_size
            ));
        }
        match self.count % u32::from(self.gso_segments) {
            0 => Ok(()),
            _ => Err(format!(
                "probe: {} packets do not fill messages of {}",
                self.count, self.gso_segments
            )),
        }
    }
}

/// Times of a packet, ns since the first timestamp of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "packet")]
pub struct Packet {
    /// Sequence number, from 1.
    pub sequence: u32,
    /// Time when the kernel gave the packet to the device; `None` if it was dropped before.
    pub sent_ns: Option<i64>,
    /// Time when the packet arrived, or its first duplicate; `None` if it was lost.
    pub received_ns: Option<i64>,
}

impl Packet {
    /// Returns the one-way delay, ns.
    pub fn delay_ns(&self) -> Option<i64> {
        Some(self.received_ns? - self.sent_ns?)
    }
}

/// All packets of a probe, with their summary.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub(crate) timing: Timing,
    /// Packets in order of their sequence numbers.
    pub(crate) packets: Vec<Packet>,
    /// Summary of all packets.
    pub summary: Summary,
}

/// Counts that only the receiving end can make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Duplicate packets.
    pub duplicated: u32,
    /// Packets that arrived after one that was sent later (RFC 4737, type-P-reordered).
    pub reordered: u32,
    /// Packets that the receiving socket dropped.
    pub dropped_at_receiver: u32,
}

/// Summary of a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename = "probe")]
pub struct Summary {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    pub(crate) lost: u32,
    pub(crate) duplicated: u32,
    pub(crate) reordered: u32,
    /// Packets lost after the path: the receiving socket was full, or the packet's checksum was wrong.
    pub dropped_at_receiver: u32,
    /// Sequence number of the first lost packet, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_lost: Option<u32>,
    /// Hash of the lost packets' sequence numbers: two probes that lost the same packets have equal hashes. Probes with
    /// different losses have different hashes, almost certainly. `None` if no packet was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) loss_pattern: Option<u32>,
    /// One-way delays; `None` if no packet arrived.
    #[serde(flatten)]
    pub(crate) delay: Option<Delay>,
}

/// One-way delays, µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delay {
    pub(crate) delay_min_us: f64,
    pub(crate) delay_median_us: f64,
    pub(crate) delay_p99_us: f64,
    pub(crate) delay_max_us: f64,
}

impl Recording {
    /// Creates a recording of packets in order of their sequence numbers.
    pub fn new(timing: Timing, packets: Vec<Packet>, receiver_counts: ReceiverCounts) -> Self {
        let lost = || packets.iter().filter(|packet| packet.received_ns.is_none());
        let (sent, lost_count) = (packets.len() as u32, lost().count() as u32);
        let delays = sorted(packets.iter().filter_map(Packet::delay_ns));
        let summary = Summary {
            sent,
            received: sent - lost_count,
            lost: lost_count,
            duplicated: receiver_counts.duplicated,
            reordered: receiver_counts.reordered,
            dropped_at_receiver: receiver_counts.dropped_at_receiver,
            first_lost: lost().map(|packet| packet.sequence).next(),
            loss_pattern: (lost_count > 0)
                .then(|| hash_numbers(lost().map(|packet| packet.sequence))),
            delay: Delay::of(&delays),
        };
        Self {
            timing,
            packets,
            summary,
        }
    }

    /// Writes the recording as JSON lines.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        let mut line = |text: serde_json::Result<String>| writeln!(to, "{}", text?);
        line(serde_json::to_string(&self.timing))?;
        for packet in &self.packets {
            line(serde_json::to_string(packet))?;
        }
        line(serde_json::to_string(&self.summary))?;
        to.flush()
    }

    /// Reads a recording from the JSON lines that `write` wrote.
    pub fn read(from: impl BufRead) -> io::Result<Self> {
        let mut lines = from.lines().take(COUNT_MAX as usize + 2);
        let timing = serde_json::from_str(&lines.next().unwrap_or_else(|| Ok(String::new()))?)?;
        let mut packets = Vec::new();
        for line in lines {
            let line = line?;
            match serde_json::from_str(&line) {
                Ok(packet) => packets.push(packet),
                Err(_) => {
                    return Ok(Self {
                        timing,
                        packets,
                        summary: serde_json::from_str(&line)?,
                    });
                }
            }
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

impl Delay {
    fn of(sorted_ns: &[i64]) -> Option<Self> {
        Some(Self {
            delay_min_us: micros(*sorted_ns.first()?),
            delay_median_us: quantile(sorted_ns, 0.5)?,
            delay_p99_us: quantile(sorted_ns, 0.99)?,
            delay_max_us: micros(*sorted_ns.last()?),
        })
    }
}

pub(super) fn sorted(times: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    times
}

/// Returns a quantile of the sorted times, µs: the smallest time such that at least a `share` of all times are not
/// larger. It is always the time of one packet, without interpolation.
pub(super) fn quantile(sorted_ns: &[i64], share: f64) -> Option<f64> {
    quantile_by_rank(sorted_ns, share).map(micros)
}

pub(super) fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}

/// Returns the 32-bit FNV-1a hash of the bytes of the numbers.
fn hash_numbers(numbers: impl Iterator<Item = u32>) -> u32 {
    let bytes = numbers.flat_map(u32::to_le_bytes);
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets sent, {} received, {} lost, {} duplicated, {} reordered",
            self.sent, self.received, self.lost, self.duplicated, self.reordered
        )?;
        if self.dropped_at_receiver > 0 {
            let dropped = self.dropped_at_receiver;
            write!(
                f,
                "\n{dropped} of the lost packets reached the receiving socket, which dropped them: it was full, or the checksum was wrong"
            )?;
        }
        let Some(delay) = self.delay else {
            return Ok(());
        };
        write!(
            f,
            "\none-way delay: {:.3} ms min, {:.3} ms median, {:.3} ms p99, {:.3} ms max",
            delay.delay_min_us / 1e3,
            delay.delay_median_us / 1e3,
            delay.delay_p99_us / 1e3,
            delay.delay_max_us / 1e3
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const TIMING: Timing = Timing {
        count: 4,
        interval_ns: 1_000_000,
        packet_size: 100,
        gso_segments: 1,
    };

    /// Returns packets sent every millisecond, each with its delay in microseconds, or lost.
    pub(crate) fn packets(delays: impl IntoIterator<Item = Option<i64>>) -> Vec<Packet> {
        let packet = |(sequence, delay): (u32, Option<i64>)| {
            let sent_ns = i64::from(sequence - 1) * 1_000_000;
            Packet {
                sequence,
                sent_ns: Some(sent_ns),
                received_ns: delay.map(|us| sent_ns + us * 1000),
            }
        };
        (1..).zip(delays).map(packet).collect()
    }

    #[test]
    fn summary_counts_losses_and_orders_delays() {
        let packets = packets([Some(13_100), None, Some(13_000), Some(13_400)]);
        let summary = Recording::new(TIMING, packets, ReceiverCounts::default()).summary;
        let counts = (summary.sent, summary.received, summary.lost);
        assert_eq!((counts, summary.first_lost), ((4, 3, 1), Some(2)));
        let delay = summary.delay.unwrap();
        assert_eq!(
            (delay.delay_min_us, delay.delay_median_us),
            (13_000.0, 13_100.0)
        );
        assert_eq!(
            (delay.delay_p99_us, delay.delay_max_us),
            (13_400.0, 13_400.0)
        );
    }

    #[test]
    fn reads_back_written_records() {
        for delays in [vec![Some(5), None], vec![None, None]] {
            let recording = Recording::new(TIMING, packets(delays), ReceiverCounts::default());
            let mut text = Vec::new();
            recording.write(&mut text).unwrap();
            assert_eq!(Recording::read(&text[..]).unwrap(), recording);
            assert!(Recording::read(&text[..text.len() / 2]).is_err(), "cut off");
        }
    }

    #[test]
    fn equal_losses_have_equal_fingerprints() {
        let pattern = |lost: [u32; 2]| hash_numbers(lost.into_iter());
        assert_eq!(pattern([3, 8]), pattern([3, 8]));
        assert_ne!(pattern([3, 8]), pattern([3, 9]));
        assert_ne!(hash_numbers([3].into_iter()), pattern([3, 8]));
    }

    #[test]
    fn rejects_invalid_timing() {
        let refused = |timing: Timing| timing.check().is_err();
        assert!(!refused(TIMING));
        assert!(refused(Timing { count: 0, ..TIMING }));
        assert!(refused(Timing {
            count: 1_000_001,
            ..TIMING
        }));
        assert!(refused(Timing {
            packet_size: 63,
            ..TIMING
        }));
        assert!(
            refused(Timing {
                gso_segments: 3,
                ..TIMING
            }),
            "4 packets"
        );
        assert!(refused(Timing {
            gso_segments: 65,
            count: 65,
            ..TIMING
        }));
    }
}
