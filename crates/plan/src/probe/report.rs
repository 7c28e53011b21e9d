// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements as text, and as the file that `plan split` reads.

use super::{
    super::{estimate::format_rate, split::sites},
    capacity::Capacity,
    config::Config,
    rtt::RttSamples,
    target::Target,
};
use anyhow::Result;
use indexmap::IndexMap;
use longhaul_stats::sample;
use longhaul_units::{BitRate, Ratio, Time};
use serde_json::json;

/// Measurement of a path.
#[derive(Debug)]
pub(super) struct Measurement {
    name: String,
    /// Protocol of the probe.
    method: &'static str,
    sent: u32,
    /// Round-trip times in ascending order.
    times: Vec<Time>,
    pub(super) path_mtu: Option<u32>,
    pub(super) capacity: Option<Capacity>,
}

impl Measurement {
    pub(super) fn new(target: &Target, method: &'static str, samples: RttSamples) -> Self {
        let mut times = samples.times;
        times.sort();
        Self {
            name: target.name.clone(),
            method,
            sent: samples.sent,
            times,
            path_mtu: None,
            capacity: None,
        }
    }

    /// Returns the time after which a reply counts as lost.
    pub(super) fn reply_timeout(&self) -> Time {
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

    /// Returns the 95 % confidence interval of the loss rate (Wilson, 1927).
    fn loss_interval(&self) -> [f64; 2] {
        const Z: f64 = 1.96;
        let (n, p) = (f64::from(self.sent), self.loss());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        [middle - half, middle + half].map(|bound| (bound / scale).clamp(0.0, 1.0))
    }
}

/// Returns the measurement as text.
pub(super) fn text(here: &str, measured: &Measurement) -> String {
    let mut out = format!("{here} → {}, by {}\n", measured.name, measured.method);
    out += &round_trip_text(measured);
    let [low, high] = measured.loss_interval().map(|share| share * 100.0);
    out += &format!(
        "  loss        {} of {} lost, there or back: {:.2} % (95 % interval: {low:.2} to {high:.2} %)\n",
        measured.lost(),
        measured.sent,
        measured.loss() * 100.0,
    );
    let mtu = measured
        .path_mtu
        .map_or("not measured".into(), |mtu| format!("{mtu} bytes"));
    out += &format!("  path MTU    {mtu}\n");
    out + &format!(
        "  capacity    {}\n",
        capacity_text(measured.capacity.as_ref())
    )
}

fn round_trip_text(measured: &Measurement) -> String {
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

fn capacity_text(found: Option<&Capacity>) -> String {
    let Some(found) = found else {
        return "not measured: it needs plan measure --serve at the remote host".to_owned();
    };
    format!(
        "{}{}, {} to {} over {} trains",
        if found.is_lower_bound {
            "at least "
        } else {
            ""
        },
        format_rate(found.median_bps),
        format_rate(found.min_bps),
        format_rate(found.max_bps),
        found.trains
    )
}

/// Returns a file of sites. Round-trip loss is used as the loss of data, of which it is an upper bound.
pub(super) fn json(config: &Config, all: &[Measurement]) -> Result<String> {
    let file = sites::SitesFile {
        sites: IndexMap::new(),
        paths: all
            .iter()
            .map(|measured| site_path(config, measured))
            .collect(),
    };
    Ok(serde_json::to_string_pretty(&file)?)
}

fn site_path(config: &Config, measured: &Measurement) -> sites::SitePath {
    sites::SitePath {
        from: config.name.clone(),
        to: measured.name.clone(),
        rtt: measured.rtt(0.5).unwrap_or(Time::from_secs(100)),
        loss: Ratio::new(measured.loss()).unwrap_or(Ratio::ONE),
        rate: measured
            .capacity
            .map(|found| BitRate::from_bits(found.median_bps as u64)),
        queue: None,
        mtu: measured.path_mtu.unwrap_or(1500),
        measured: Some(json!({
            "method": measured.method,
            "sent": measured.sent,
            "lost": measured.lost(),
            "loss_interval_95": measured.loss_interval(),
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

    fn measurement(sent: u32, answered: u64) -> Measurement {
        Measurement {
            name: "b".into(),
            method: "udp",
            sent,
            times: (1..=answered).map(Time::from_millis).collect(),
            path_mtu: Some(1400),
            capacity: None,
        }
    }

    #[test]
    fn computes_wilson_interval_of_loss() {
        let [low, high] = measurement(100, 100).loss_interval();
        assert!(low < 1e-9 && (0.035..0.04).contains(&high), "{low} {high}");
        let [low, high] = measurement(1000, 900).loss_interval();
        assert!(
            (0.08..0.1).contains(&low) && (0.1..0.13).contains(&high),
            "{low} {high}"
        );
    }

    #[test]
    fn computes_quantiles_of_round_trips() {
        let path = measurement(10, 9);
        assert_eq!(path.rtt(0.5), Some(Time::from_millis(5)));
        assert_eq!(
            (path.lost(), path.rtt(1.0)),
            (1, Some(Time::from_millis(9)))
        );
        assert_eq!(measurement(10, 0).rtt(0.5), None);
    }
}
