// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints what was measured: lines for people, or the file that `plan split` reads.

use super::{
    super::{estimate::rate, split::sites},
    capacity::Capacity,
    config::Config,
    rounds::Rounds,
    target::Target,
};
use anyhow::Result;
use indexmap::IndexMap;
use longhaul_stats::sample;
use longhaul_units::{BitRate, Ratio, Time};
use serde_json::json;

/// A path, as far as it is known.
#[derive(Debug)]
pub(super) struct Measured {
    name: String,
    /// How it was asked.
    by: &'static str,
    sent: u32,
    /// In order of length.
    times: Vec<Time>,
    pub(super) path_mtu: Option<u32>,
    pub(super) capacity: Option<Capacity>,
}

impl Measured {
    pub(super) fn new(target: &Target, by: &'static str, rounds: Rounds) -> Self {
        let mut times = rounds.times;
        times.sort();
        Self {
            name: target.name.clone(),
            by,
            sent: rounds.sent,
            times,
            path_mtu: None,
            capacity: None,
        }
    }

    /// How long an answer may take that is not lost.
    pub(super) fn patience(&self) -> Time {
        let longest = self.times.last().copied().unwrap_or(Time::from_secs(1));
        (longest * 2 + Time::from_millis(100)).min(Time::from_secs(2))
    }

    fn rtt(&self, share: f64) -> Option<Time> {
        let nanos: Vec<f64> = self
            .times
            .iter()
            .map(|time| time.as_nanos() as f64)
            .collect();
        sample::quantile(&nanos, share).map(|nanos| Time::from_nanos(nanos as u64))
    }

    fn lost(&self) -> u32 {
        self.sent - (self.times.len() as u32).min(self.sent)
    }

    fn loss(&self) -> f64 {
        f64::from(self.lost()) / f64::from(self.sent)
    }

    /// Where the true share is, of which 95 % of such measurements say so (Wilson, 1927).
    fn loss_interval(&self) -> [f64; 2] {
        const Z: f64 = 1.96;
        let (n, p) = (f64::from(self.sent), self.loss());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        [middle - half, middle + half].map(|bound| (bound / scale).clamp(0.0, 1.0))
    }
}

/// For people.
pub(super) fn text(here: &str, measured: &Measured) -> String {
    let mut out = format!("{here} → {}, by {}\n", measured.name, measured.by);
    out += &round_trips(measured);
    let [low, high] = measured.loss_interval().map(|share| share * 100.0);
    out += &format!(
        "  loss        {} of {} there and back: {:.2} %, with 95 % within {low:.2} and {high:.2} %\n",
        measured.lost(),
        measured.sent,
        measured.loss() * 100.0,
    );
    let mtu = measured
        .path_mtu
        .map_or("not measured".into(), |mtu| format!("{mtu} bytes"));
    out += &format!("  path MTU    {mtu}\n");
    out + &format!("  capacity    {}\n", capacity(measured.capacity.as_ref()))
}

fn round_trips(measured: &Measured) -> String {
    let at = |share| {
        measured
            .rtt(share)
            .map_or("–".into(), |time| time.to_string())
    };
    format!(
        "  round trip  median {}, {} to {}, 90 % below {}\n",
        at(0.5),
        at(0.0),
        at(1.0),
        at(0.9)
    )
}

fn capacity(found: Option<&Capacity>) -> String {
    let Some(found) = found else {
        return "not measured: it takes a plan probe --serve at the far end".to_owned();
    };
    format!(
        "{}{}, {} to {} over {} trains",
        if found.at_least { "at least " } else { "" },
        rate(found.median_bps),
        rate(found.min_bps),
        rate(found.max_bps),
        found.trains
    )
}

/// A file of sites. Loss there and back stands for that of the data: it is the most that it can be.
pub(super) fn json(config: &Config, all: &[Measured]) -> Result<String> {
    let file = sites::File {
        sites: IndexMap::new(),
        legs: all.iter().map(|measured| leg(config, measured)).collect(),
    };
    Ok(serde_json::to_string_pretty(&file)?)
}

fn leg(config: &Config, measured: &Measured) -> sites::Leg {
    sites::Leg {
        from: config.here.clone(),
        to: measured.name.clone(),
        rtt: measured.rtt(0.5).unwrap_or(Time::from_secs(100)),
        loss: Ratio::new(measured.loss()).unwrap_or(Ratio::ONE),
        rate: measured
            .capacity
            .map(|found| BitRate::from_bits(found.median_bps as u64)),
        queue: None,
        mtu: measured.path_mtu.unwrap_or(1500),
        measured: Some(json!({
            "by": measured.by,
            "sent": measured.sent,
            "lost": measured.lost(),
            "loss_95": measured.loss_interval(),
            "rtt_s": {
                "min": measured.rtt(0.0).map(Time::as_secs_f64),
                "median": measured.rtt(0.5).map(Time::as_secs_f64),
                "p90": measured.rtt(0.9).map(Time::as_secs_f64),
                "max": measured.rtt(1.0).map(Time::as_secs_f64),
            },
            "path_mtu_bytes": measured.path_mtu,
            "capacity": measured.capacity,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(sent: u32, answered: u64) -> Measured {
        Measured {
            name: "b".into(),
            by: "udp",
            sent,
            times: (1..=answered).map(Time::from_millis).collect(),
            path_mtu: Some(1400),
            capacity: None,
        }
    }

    #[test]
    fn nothing_lost_of_a_hundred_may_be_nearly_four_percent() {
        let [low, high] = measured(100, 100).loss_interval();
        assert!(low < 1e-9 && (0.035..0.04).contains(&high), "{low} {high}");
        let [low, high] = measured(1000, 900).loss_interval();
        assert!(
            (0.08..0.1).contains(&low) && (0.1..0.13).contains(&high),
            "{low} {high}"
        );
    }

    #[test]
    fn of_round_trips_the_median_counts() {
        let path = measured(10, 9);
        assert_eq!(path.rtt(0.5), Some(Time::from_millis(5)));
        assert_eq!(
            (path.lost(), path.rtt(1.0)),
            (1, Some(Time::from_millis(9)))
        );
        assert_eq!(measured(10, 0).rtt(0.5), None);
    }
}
