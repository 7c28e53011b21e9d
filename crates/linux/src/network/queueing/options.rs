// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of queueing disciplines that limit what passes them, in the kernel's format
//! (`include/uapi/linux/pkt_sched.h`).

use super::message::{attribute, long, word};
use serde::{Deserialize, Serialize};

/// Limits of a queueing discipline on what passes it. A value that the discipline does not have is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum rate of all packets together, bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bits: Option<u64>,
    /// Maximum rate of one connection, bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_rate_bits: Option<u64>,
    /// Maximum length of the queue in packets; a super-packet counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u64>,
    /// Maximum length of the queue in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Maximum number of one connection's packets in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_packets: Option<u64>,
    /// Delay that is added to each packet, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// Packets that are lost or corrupted at random, of a million.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_ppm: Option<u64>,
}

/// Nanoseconds of a tick, in which the kernel states times (PSCHED_SHIFT, `include/net/pkt_sched.h`).
const TICK_NS: u64 = 64;
/// Number of words of `struct tc_ratespec`; its last is the rate in bytes a second.
pub(super) const RATE_WORDS: usize = 3;

/// Returns what a queueing discipline of this kind and these options lets pass.
pub(super) fn limits(kind: &str, options: &[u8]) -> Limits {
    match kind {
        "tbf" => tbf(options),
        "netem" => netem(options),
        "fq" => fq(options),
        "fq_codel" => fq_codel(options),
        "cake" => cake(options),
        // struct tc_sfq_qopt
        "sfq" => packets(word(options, 2)),
        // struct tc_fifo_qopt
        "pfifo" | "pfifo_head_drop" => packets(word(options, 0)),
        "bfifo" => Limits {
            queue_bytes: word(options, 0).map(u64::from),
            ..Limits::default()
        },
        _ => Limits::default(),
    }
}

fn packets(limit: Option<u32>) -> Limits {
    Limits {
        queue_packets: limit.map(u64::from),
        ..Limits::default()
    }
}

/// Returns a rate in bits a second. A rate from 2^32 bytes a second on is in an attribute of its own.
pub(super) fn rate_bits(bytes: Option<u32>, large: Option<&[u8]>) -> Option<u64> {
    let large = large.and_then(long);
    let bytes = large.or(bytes.map(u64::from)).filter(|bytes| *bytes > 0)?;
    Some(bytes.saturating_mul(8))
}

/// Reads TCA_TBF_PARMS (`struct tc_tbf_qopt`) and TCA_TBF_RATE64.
fn tbf(options: &[u8]) -> Limits {
    let parameters = attribute(options, 1).unwrap_or_default();
    Limits {
        rate_bits: rate_bits(word(parameters, RATE_WORDS - 1), attribute(options, 4)),
        queue_bytes: word(parameters, 2 * RATE_WORDS).map(u64::from),
        ..Limits::default()
    }
}

/// Reads `struct tc_netem_qopt` (six words), and the attributes after it.
fn netem(options: &[u8]) -> Limits {
    let attributes = options.get(24..).unwrap_or_default();
    let of_type = |kind| attribute(attributes, kind);
    // TCA_NETEM_LATENCY64; before Linux 4.15, ticks.
    let ticks = word(options, 0).map(|ticks| u64::from(ticks) * TICK_NS);
    let delay_ns = of_type(10).and_then(long).or(ticks);
    // TCA_NETEM_CORRUPT; TCA_NETEM_RATE and TCA_NETEM_RATE64.
    let corrupt = of_type(4).and_then(|corrupt| word(corrupt, 0)).map(ppm);
    let random = word(options, 2).map(ppm);
    let model = of_type(5).and_then(gilbert_elliott_ppm);
    let lost_ppm = [random, corrupt, model].into_iter().flatten().sum();
    let rate = of_type(6).and_then(|rate| word(rate, 0));
    Limits {
        rate_bits: rate_bits(rate, of_type(8)),
        queue_packets: word(options, 1).map(u64::from),
        delay_ns: delay_ns.filter(|delay| *delay > 0),
        lost_ppm: Some(lost_ppm).filter(|lost| *lost > 0),
        ..Limits::default()
    }
}

/// Converts a probability of 2^32 to one of a million, rounded up.
fn ppm(probability: u32) -> u64 {
    (u64::from(probability) * 1_000_000).div_ceil(u64::from(u32::MAX))
}

/// Returns the mean loss of NETEM_LOSS_GE (`struct tc_netem_gemodel`): the probabilities to turn bad, to turn good,
/// to pass while it is bad, and to be lost while it is good.
fn gilbert_elliott_ppm(model: &[u8]) -> Option<u64> {
    let model = attribute(model, 2)?;
    let part = |number| Some(f64::from(word(model, number)?) / f64::from(u32::MAX));
    let [turns_bad, turns_good, passes_bad, lost_good] = [part(0)?, part(1)?, part(2)?, part(3)?];
    let bad = turns_bad / (turns_bad + turns_good).max(f64::MIN_POSITIVE);
    let lost = bad * (1.0 - passes_bad) + (1.0 - bad) * lost_good;
    Some((lost * 1e6).round() as u64)
}

/// Reads TCA_FQ_PLIMIT, TCA_FQ_FLOW_PLIMIT and TCA_FQ_FLOW_MAX_RATE, which is all ones without a limit.
fn fq(options: &[u8]) -> Limits {
    let number = |kind| attribute(options, kind).and_then(|value| word(value, 0));
    Limits {
        queue_packets: number(1).map(u64::from),
        flow_packets: number(2).map(u64::from),
        flow_rate_bits: rate_bits(number(7).filter(|rate| *rate != u32::MAX), None),
        ..Limits::default()
    }
}

/// Reads TCA_FQ_CODEL_LIMIT and TCA_FQ_CODEL_MEMORY_LIMIT.
fn fq_codel(options: &[u8]) -> Limits {
    let number = |kind| attribute(options, kind).and_then(|value| word(value, 0));
    Limits {
        queue_packets: number(2).map(u64::from),
        queue_bytes: number(9).map(u64::from),
        ..Limits::default()
    }
}

/// Reads TCA_CAKE_BASE_RATE64, which is 0 without a limit.
fn cake(options: &[u8]) -> Limits {
    Limits {
        rate_bits: rate_bits(None, attribute(options, 2)),
        ..Limits::default()
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    /// Converts hexadecimal digits, as strace shows what tc sends (iproute2 6.1).
    fn bytes(digits: &str) -> Vec<u8> {
        let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    #[test]
    fn reads_netem_with_delay_loss_and_rate() {
        // netem delay 50ms 10ms loss 1% corrupt 0.5% rate 10mbit limit 500
        let options = "c2eb0b00 f4010000 295c8f02 00000000 00000000 005a6202
            0c000400 14ae4701 00000000 14000600 d0121300 00000000 00000000 00000000";
        let expected = Limits {
            rate_bits: Some(10_000_000),
            queue_packets: Some(500),
            delay_ns: Some(50_000_000),
            lost_ppm: Some(15_000),
            ..Limits::default()
        };
        let mut found = limits("netem", &bytes(options));
        assert!(found.lost_ppm.unwrap().abs_diff(15_000) <= 2, "{found:?}");
        found.lost_ppm = expected.lost_ppm;
        assert_eq!(found, expected);
    }

    #[test]
    fn reads_exact_delay_of_netem() {
        let options = "c2eb0b00 e8030000 00000000 00000000 00000000 00000000
            0c000a00 80f0fa02 00000000";
        let found = limits("netem", &bytes(options));
        assert_eq!(found.delay_ns, Some(50_000_000));
        assert_eq!((found.lost_ppm, found.rate_bits), (None, None));
    }

    #[test]
    fn reads_mean_loss_of_gilbert_elliott_model() {
        // netem loss gemodel 1% 10%: bad for 1/11 of the time, and then all is lost.
        let options = "00000000 e8030000 00000000 00000000 00000000 00000000
            18000580 14000200 295c8f02 9a999919 00000000 00000000";
        let found = limits("netem", &bytes(options));
        assert_eq!(found.lost_ppm, Some(90_909));
        assert_eq!(found.delay_ns, None);
    }

    #[test]
    fn reads_limits_of_fair_queueing() {
        // fq maxrate 100mbit flow_limit 50 limit 2000
        let options = "08000100 d0070000 08000200 32000000 08000700 20bcbe00";
        let found = limits("fq", &bytes(options));
        let expected = Limits {
            flow_rate_bits: Some(100_000_000),
            queue_packets: Some(2000),
            flow_packets: Some(50),
            ..Limits::default()
        };
        assert_eq!(found, expected);
        let unlimited = limits("fq", &bytes("08000700 ffffffff"));
        assert_eq!(unlimited, Limits::default());
        // fq_codel limit 100 memory_limit 1mb
        let found = limits("fq_codel", &bytes("08000200 64000000 08000900 00001000"));
        assert_eq!(found.queue_packets, Some(100));
        assert_eq!(found.queue_bytes, Some(1 << 20));
        // sfq limit 64
        let options = "00000000 00000000 40000000 00000000 00000000";
        assert_eq!(limits("sfq", &bytes(options)), packets(Some(64)));
        // cake bandwidth 20mbit
        let found = limits(
            "cake",
            &bytes("0c000200 a0252600 00000000 08000900 00000000"),
        );
        assert_eq!(found.rate_bits, Some(20_000_000));
        let found = limits("cake", &bytes("0c000200 00000000 00000000"));
        assert_eq!(found.rate_bits, None);
    }

    #[test]
    fn reads_rates_beyond_32_bits() {
        let large = 5_000_000_000_u64.to_ne_bytes();
        assert_eq!(
            rate_bits(Some(u32::MAX), Some(&large)),
            Some(40_000_000_000)
        );
        assert_eq!(rate_bits(Some(125), None), Some(1000));
        assert_eq!(rate_bits(Some(0), None), None);
    }

    #[test]
    fn short_or_unknown_options_have_no_limits() {
        for kind in [
            "tbf", "netem", "fq", "fq_codel", "sfq", "pfifo", "cake", "pie",
        ] {
            assert_eq!(limits(kind, &[1, 2]), Limits::default(), "{kind}");
        }
    }
}
