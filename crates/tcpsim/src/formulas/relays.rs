// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput of a chain of relays: the slowest hop's, less the overhead of the relays.

use super::Formula;

/// Model of Masuya and Shimozono (Kagoshima University).
pub const KAGOSHIMA: Formula = Formula {
    name: "T_n",
    equation: "T_n = rwin / max(RTT_i) - f(n-1); equal hops: T n - f(n-1)",
    source: "Masuya and Shimozono (Kagoshima), equations (2) and (6)",
    range: "no loss, hops limited by the same window, a line faster than the result",
};

/// Model of Hasegawa and Jibiki (NEC).
pub const NEC: Formula = Formula {
    name: "min over hops",
    equation: "B = min over hops of min(W/d, C/(d sqrt(p)))",
    source: "Hasegawa and Jibiki (NEC), section 2 for a hop and section 3 for the cut",
    range: "each hop with the formula that suits its congestion control",
};

/// Throughput that relays cost: the papers' `f`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayOverhead {
    /// Rate that each relay costs, in bits a second. The paper's `f` depends on the number of relays. Here it is
    /// proportional to that number.
    pub per_relay_bps: f64,
    /// Share of the throughput that each relay costs, from 0 to below 1.
    pub share: f64,
}

impl RelayOverhead {
    /// Returns `bps` less the overhead of `relays` relays, in bits a second. The result is 0 or more.
    #[must_use]
    pub fn subtract_from(self, bps: f64, relays: usize) -> f64 {
        let relays = relays as f64;
        (bps * (1.0 - self.share).powf(relays) - self.per_relay_bps * relays).max(0.0)
    }
}

/// Returns the throughput of a chain in bits a second: `T_n`, with the overhead of one relay between any two hops.
/// `hops_bps` has the throughput of each hop alone.
#[must_use]
pub fn chain_throughput_bps(hops_bps: &[f64], overhead: RelayOverhead) -> f64 {
    let slowest = hops_bps.iter().copied().fold(f64::INFINITY, f64::min);
    overhead.subtract_from(slowest, hops_bps.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masuya and Shimozono, table 1: a path of 50 ms split in two, measured MB/s against the model's. The
    /// 10.4 MB/s of the unsplit path give the window. `f` is the difference at equal hops.
    #[test]
    fn model_matches_the_papers_split_positions() {
        let window = 10.4 * 50.0;
        let equal = window / 25.0 - 17.7;
        let overhead = RelayOverhead {
            per_relay_bps: equal,
            share: 0.0,
        };
        assert!((chain_throughput_bps(&[window / 25.0; 2], overhead) - 17.7).abs() < 1e-9);
        // A share fits all five rows. The measured rate is 0.85 of the model without overhead in the middle, and 0.94
        // and 0.95 beside it.
        let share = RelayOverhead {
            per_relay_bps: 0.0,
            share: 0.09,
        };
        for (longer, measured) in [(40.0, 12.4), (30.0, 16.3), (25.0, 17.7)] {
            let model = chain_throughput_bps(&[window / longer, window / (50.0 - longer)], share);
            assert!(
                (model / measured - 1.0).abs() < 0.08,
                "{longer}: {model} {measured}"
            );
        }
    }

    #[test]
    fn four_hops_carry_three_times_the_throughput() {
        let share = RelayOverhead {
            per_relay_bps: 0.0,
            share: 0.09,
        };
        let model = chain_throughput_bps(&[4.0; 4], share);
        assert!((model - 3.0).abs() < 0.05, "{model}");
    }

    #[test]
    fn throughput_is_never_negative() {
        let overhead = RelayOverhead {
            per_relay_bps: 10.0,
            share: 0.0,
        };
        assert_eq!(chain_throughput_bps(&[15.0, 15.0, 15.0], overhead), 0.0);
        assert_eq!(chain_throughput_bps(&[15.0], overhead), 15.0);
    }
}
