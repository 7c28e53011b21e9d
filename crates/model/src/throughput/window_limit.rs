// SPDX-License-Identifier: MIT OR Apache-2.0
//! A window a round trip: what flow control allows, whatever the line.

use super::formula::Formula;

/// Window over round trip.
pub const FORMULA: Formula = Formula {
    name: "window/RTT",
    equation: "B = W / RTT",
    source: "RFC 7323 section 1.1; Masuya and Shimozono, equation (1); Hasegawa and Jibiki, section 2",
    range: "no loss, and a line faster than that",
};

/// TCP's largest window: 65,535 bytes shifted by 14 (RFC 7323 section 2.3).
pub const LARGEST_BYTES: u64 = 65_535 << 14;

/// Bits a second of `window_bytes` a round trip of `rtt_s` seconds.
#[must_use]
pub fn goodput_bps(window_bytes: u64, rtt_s: f64) -> f64 {
    window_bytes as f64 * 8.0 / rtt_s
}

/// Bytes of window that `bps` want over `rtt_s` seconds.
#[must_use]
pub fn window_bytes(bps: f64, rtt_s: f64) -> u64 {
    (bps * rtt_s / 8.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hasegawa and Jibiki: 64 KB over the paper's 28.6 ms are 18.3 Mbit/s. Masuya and Shimozono:
    /// some 10 Mbit/s over 50 ms.
    #[test]
    fn the_papers_windows_come_to_the_papers_rates() {
        assert!((goodput_bps(65_535, 0.0286) / 18.3e6 - 1.0).abs() < 0.01);
        assert!((goodput_bps(65_535, 0.05) / 10.5e6 - 1.0).abs() < 0.01);
        assert_eq!(window_bytes(10e9, 0.026), 32_500_000);
    }
}
