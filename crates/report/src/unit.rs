// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units of metrics: the suffix of each in names, and the formatting of values.

use longhaul_units::rounding::{format_3_digits, format_with_unit};

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bits per second.
    BitsPerSecond,
    /// Packets per second.
    PacketsPerSecond,
    /// Events per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Micros,
    /// Bytes.
    Bytes,
    /// Ratio or share without unit.
    Ratio,
    /// P-value of a statistical test: the probability that a correct path deviates at least as much.
    Probability,
    /// Count.
    Count,
}

/// Suffixes of names. A longer suffix comes before a shorter one that it ends in: `_per_s` before `_s`.
const SUFFIXES: [(&str, Unit); 8] = [
    ("_p", Unit::Probability),
    ("_bps", Unit::BitsPerSecond),
    ("_pps", Unit::PacketsPerSecond),
    ("_per_s", Unit::PerSecond),
    ("_us", Unit::Micros),
    ("_s", Unit::Seconds),
    ("_bytes", Unit::Bytes),
    ("_ratio", Unit::Ratio),
];

impl Unit {
    /// Splits a name into its stem and the unit of its suffix. A name without a known suffix is a count.
    pub fn split(name: &str) -> (&str, Self) {
        let found = SUFFIXES
            .iter()
            .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)));
        found.unwrap_or((name, Self::Count))
    }

    /// Returns the suffix of names of this unit; none for a count.
    pub fn suffix(self) -> Option<&'static str> {
        let found = SUFFIXES.iter().find(|(_, unit)| *unit == self);
        found.map(|(ending, _)| *ending)
    }

    /// Returns the symbol for axes; microseconds are shown as seconds.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::BitsPerSecond => "bit/s",
            Self::PacketsPerSecond => "packets/s",
            Self::PerSecond => "/s",
            Self::Seconds | Self::Micros => "s",
            Self::Bytes => "B",
            Self::Ratio | Self::Probability | Self::Count => "",
        }
    }

    /// Returns the factor that converts values to the unit of [`Self::symbol`].
    pub fn factor(self) -> f64 {
        match self {
            Self::Micros => 1e-6,
            _ => 1.0,
        }
    }

    /// Formats `value` with its unit and three significant digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::BitsPerSecond | Self::PacketsPerSecond | Self::Bytes => {
                format_si(value, self.symbol())
            }
            Self::PerSecond => format!("{}{}", format_count(value), self.symbol()),
            Self::Seconds => format_si_small(value, self.symbol()),
            Self::Micros => format_si_small(value / 1e6, self.symbol()),
            Self::Ratio | Self::Probability => format_3_digits(value),
            Self::Count => format_count(value),
        }
    }
}

/// Formats whole numbers below a million in full, others with three digits.
fn format_count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        format!("{value}")
    } else {
        format_si(value, "").trim_end().to_owned()
    }
}

/// Formats with one of the SI prefixes k, M, G and T, or none for smaller values.
fn format_si(value: f64, unit: &str) -> String {
    format_with_prefix(
        value,
        unit,
        &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")],
    )
}

/// Formats a time with one of the SI prefixes n, µ and m, or none for larger values.
fn format_si_small(value: f64, unit: &str) -> String {
    format_with_prefix(
        value,
        unit,
        &[(1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, "")],
    )
}

fn format_with_prefix(value: f64, unit: &str, scales: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return format!("0 {unit}");
    }
    let (number, prefix) = format_with_unit(value, scales);
    format!("{number} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_at_the_suffix() {
        assert_eq!(Unit::split("download_s"), ("download", Unit::Seconds));
        assert_eq!(
            Unit::split("retransmits_per_s"),
            ("retransmits", Unit::PerSecond)
        );
        assert_eq!(Unit::split("flows"), ("flows", Unit::Count));
        for (ending, unit) in SUFFIXES {
            assert_eq!(Unit::split(&format!("x{ending}")), ("x", unit));
            assert_eq!(unit.suffix(), Some(ending));
        }
    }

    #[test]
    fn formats_three_digits_with_si_prefix() {
        let print = |unit: Unit, value| unit.format(value);
        assert_eq!(print(Unit::BitsPerSecond, 937_120_000.0), "937 Mbit/s");
        assert_eq!(print(Unit::BitsPerSecond, 999_900_000.0), "1 Gbit/s");
        assert_eq!(print(Unit::BitsPerSecond, 2.4e9), "2.4 Gbit/s");
        assert_eq!(print(Unit::Seconds, 91.04), "91 s");
        assert_eq!(print(Unit::Seconds, 132.4), "132 s");
        assert_eq!(print(Unit::Micros, 26_000.0), "26 ms");
        assert_eq!(print(Unit::Micros, 0.0), "0 s");
        assert_eq!(print(Unit::Micros, 3.2), "3.2 µs");
        assert_eq!(print(Unit::Count, 1234.0), "1234");
        assert_eq!(print(Unit::Bytes, 1.4e6), "1.4 MB");
        assert_eq!(print(Unit::PerSecond, 2.0), "2/s");
    }
}
