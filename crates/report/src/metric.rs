// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a metric's name says: its unit, how to print it and which direction is better.

/// Unit of a metric, from the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `_bps`: bits a second.
    BitsPerSecond,
    /// `_pps`: packets a second.
    PacketsPerSecond,
    /// `_s`: seconds.
    Seconds,
    /// `_us`: microseconds.
    Micros,
    /// `_bytes`.
    Bytes,
    /// `_ratio`: a plain factor or share.
    Ratio,
    /// `_p`: a p-value. More is not better: it is the chance that a true path looks so odd.
    Probability,
    /// No known ending.
    Count,
}

const ENDINGS: [(&str, Unit); 7] = [
    ("_p", Unit::Probability),
    ("_bps", Unit::BitsPerSecond),
    ("_pps", Unit::PacketsPerSecond),
    ("_us", Unit::Micros),
    ("_s", Unit::Seconds),
    ("_bytes", Unit::Bytes),
    ("_ratio", Unit::Ratio),
];

/// A metric as its name describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The name without its unit, for people: "Download".
    pub label: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Less of it is better: times, and what is lost or sent again.
    pub less_is_better: bool,
}

impl Metric {
    /// The metric of this name. A name without a known ending is a count.
    pub fn of(name: &str) -> Self {
        let (stem, unit) = ENDINGS
            .iter()
            .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
            .unwrap_or((name, Unit::Count));
        let lossy = ["loss", "lost", "retrans", "drop", "error"];
        Self {
            label: match unit {
                Unit::Probability => format!("{}, p", label(stem)),
                _ => label(stem),
            },
            unit,
            less_is_better: matches!(unit, Unit::Seconds | Unit::Micros)
                || unit != Unit::Probability && lossy.iter().any(|word| stem.contains(word)),
        }
    }

    /// By what factor `ours` is better than `baseline`; below 1 if it is worse. `None` if either
    /// is not above zero.
    pub fn factor(&self, ours: f64, baseline: f64) -> Option<f64> {
        let factor = match self.less_is_better {
            true => baseline / ours,
            false => ours / baseline,
        };
        (ours > 0.0 && baseline > 0.0).then_some(factor)
    }

    /// `value` with its unit and three significant digits.
    pub fn print(&self, value: f64) -> String {
        match self.unit {
            Unit::BitsPerSecond => si(value, "bit/s"),
            Unit::PacketsPerSecond => si(value, "packets/s"),
            Unit::Seconds => si_small(value, "s"),
            Unit::Micros => si_small(value / 1e6, "s"),
            Unit::Bytes => si(value, "B"),
            Unit::Ratio | Unit::Probability => digits(value),
            Unit::Count => count(value),
        }
    }
}

/// How many letters must be put in, left out or replaced to make one name of the other (Levenshtein).
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (column, its) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *its);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// `5.7×`.
pub fn times(factor: f64) -> String {
    format!("{}×", digits(factor))
}

/// A share as percent: `0.1 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

/// Whole numbers below a million in full, others with three digits.
fn count(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e6 {
        true => format!("{value}"),
        false => si(value, "").trim_end().to_owned(),
    }
}

/// With the prefix, from one upward, that leaves one to three digits before the point.
fn si(value: f64, unit: &str) -> String {
    prefixed(
        value,
        unit,
        &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")],
    )
}

/// As [`si`], from one downward: times.
fn si_small(value: f64, unit: &str) -> String {
    prefixed(
        value,
        unit,
        &[(1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, "")],
    )
}

fn prefixed(value: f64, unit: &str, scales: &[(f64, &str)]) -> String {
    if value == 0.0 {
        return format!("0 {unit}");
    }
    // 999.5 would round to 1000 of the smaller prefix.
    let (scale, prefix) = scales
        .iter()
        .rev()
        .find(|(scale, _)| value.abs() >= scale * 0.9995)
        .unwrap_or(&scales[0]);
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// Three significant digits, without zeros at the end of a fraction.
fn digits(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let before_point = x.abs().log10().floor() as i32 + 1;
    let decimals = (3 - before_point).clamp(0, 9) as usize;
    let text = format!("{x:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `client_cpu` → "Client CPU".
fn label(stem: &str) -> String {
    let word = |word: &str| match word {
        "cpu" | "rtt" | "rto" | "ack" | "tcp" => word.to_uppercase(),
        "acks" => "ACKs".to_owned(),
        "srtt" => "smoothed RTT".to_owned(),
        word => word.to_owned(),
    };
    sentence_case(&stem.split('_').map(word).collect::<Vec<_>>().join(" "))
}

fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_gives_label_unit_and_direction() {
        let download = Metric::of("download_s");
        assert_eq!(
            (download.label.as_str(), download.unit),
            ("Download", Unit::Seconds)
        );
        assert!(download.less_is_better);
        assert!(!Metric::of("goodput_bps").less_is_better);
        assert!(Metric::of("retransmits").less_is_better);
        assert_eq!(Metric::of("client_cpu_s").label, "Client CPU");
        assert_eq!(Metric::of("flows").unit, Unit::Count);
        let losses = Metric::of("losses_p");
        assert_eq!(
            (losses.label.as_str(), losses.unit),
            ("Losses, p", Unit::Probability)
        );
        assert!(!Metric::of("losses_p").less_is_better);
        assert_eq!(Metric::of("srtt_us").unit, Unit::Micros);
    }

    #[test]
    fn three_significant_digits_with_an_si_unit() {
        let print = |name: &str, value| Metric::of(name).print(value);
        assert_eq!(print("goodput_bps", 937_120_000.0), "937 Mbit/s");
        assert_eq!(print("goodput_bps", 999_900_000.0), "1 Gbit/s");
        assert_eq!(print("goodput_bps", 2.4e9), "2.4 Gbit/s");
        assert_eq!(print("download_s", 91.04), "91 s");
        assert_eq!(print("download_s", 132.4), "132 s");
        assert_eq!(print("rtt_us", 26_000.0), "26 ms");
        assert_eq!(print("rtt_us", 0.0), "0 s");
        assert_eq!(print("delay_error_us", 3.2), "3.2 µs");
        assert_eq!(print("retransmits", 1234.0), "1234");
        assert_eq!(print("cwnd_bytes", 1.4e6), "1.4 MB");
        assert_eq!(times(5.6875), "5.69×");
        assert_eq!(percent(0.001), "0.1 %");
    }

    #[test]
    fn names_are_as_far_apart_as_it_takes_letters() {
        assert_eq!(distance("goodput", "godput"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn a_factor_above_one_is_better() {
        assert_eq!(Metric::of("download_s").factor(16.0, 80.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 16.0), Some(5.0));
        assert_eq!(Metric::of("goodput_bps").factor(80.0, 0.0), None);
    }
}
