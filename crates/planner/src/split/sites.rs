// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sites and the legs between them, from files, which `plan measure --json` can write.

use super::super::path;
use anyhow::Result;
use indexmap::{IndexMap, IndexSet};
use longhaul_command::exit::Refusal;
use longhaul_netem::{LinkConfig, Rate, Setting};
use longhaul_tcpsim::formulas::{HEADERS, Path, window_limit};
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use serde::{Deserialize, Serialize};
use std::path::{Path as FilePath, PathBuf};

/// Contents of a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct SitesFile {
    /// Properties of sites that differ from the defaults.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(in super::super) sites: IndexMap<String, Site>,
    pub(in super::super) legs: Vec<Leg>,
}

/// Site with a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Site {
    /// Whether the site may relay.
    #[serde(default = "yes")]
    pub(in super::super) relay: bool,
    /// Greatest rate that a relay there forwards.
    pub(in super::super) forwards: Option<BitRate>,
}

fn yes() -> bool {
    true
}

/// Path between two sites, in the direction of the data.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Leg {
    pub(in super::super) from: String,
    pub(in super::super) to: String,
    pub rtt: Time,
    #[serde(default)]
    pub loss: Ratio,
    /// Rate of the bottleneck. If it could not be measured it is absent, and must be added by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Bytes of a full packet from its IP header on.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// Details of the measurement, for information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) measured: Option<serde_json::Value>,
}

fn ethernet() -> u32 {
    1500
}

/// Sites of all files, numbered, with the paths between them.
#[derive(Debug)]
pub(super) struct Sites {
    sites: IndexMap<String, Site>,
    /// Matrix of paths; row: from, column: to.
    paths: Vec<Vec<Option<Path>>>,
}

/// Most sites; a matrix of 500 × 500 is 20 MB.
const SITES_MAX: usize = 500;
/// Greatest size of a file, bytes.
const FILE_MAX: u64 = 64 << 20;

impl Sites {
    pub(super) fn read(files: &[PathBuf]) -> Result<Self> {
        let files = files
            .iter()
            .map(|file| read(file))
            .collect::<Result<Vec<_>>>()?;
        Self::of(files)
    }

    fn of(files: Vec<SitesFile>) -> Result<Self> {
        let mut sites = IndexMap::new();
        let mut legs = Vec::new();
        for file in files {
            sites.extend(file.sites);
            legs.extend(file.legs);
        }
        let ends: IndexSet<String> = legs
            .iter()
            .flat_map(|leg| [leg.from.clone(), leg.to.clone()])
            .collect();
        for name in ends {
            sites.entry(name).or_insert(Site {
                relay: true,
                forwards: None,
            });
        }
        if sites.len() > SITES_MAX {
            let found = sites.len();
            return Err(Refusal::usage(format!(
                "--sites: {found} sites, but {SITES_MAX} are the most"
            )));
        }
        let paths = vec![vec![None; sites.len()]; sites.len()];
        let mut all = Self { sites, paths };
        for leg in &legs {
            all.add(leg)?;
        }
        all.add_reverse_legs(&legs)?;
        Ok(all)
    }

    fn add(&mut self, leg: &Leg) -> Result<()> {
        let [from, to] = self.ends(leg);
        if from == to || self.paths[from][to].is_some() {
            return Err(leg_error(
                leg,
                "is a duplicate, or both ends are the same site",
            ));
        }
        self.paths[from][to] = Some(leg.path()?);
        Ok(())
    }

    /// Uses each leg in the reverse direction too, if that has no leg of its own.
    fn add_reverse_legs(&mut self, legs: &[Leg]) -> Result<()> {
        for leg in legs {
            let [from, to] = self.ends(leg);
            if self.paths[to][from].is_none() {
                self.paths[to][from] = Some(leg.path()?);
            }
        }
        Ok(())
    }

    fn ends(&self, leg: &Leg) -> [usize; 2] {
        [&leg.from, &leg.to].map(|name| self.number(name).unwrap_or_default())
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.sites.get_index_of(name)
    }

    pub(super) fn name(&self, number: usize) -> &str {
        let site = self.sites.get_index(number);
        site.map_or("?", |(name, _)| name.as_str())
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.sites.keys().map(String::as_str).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.sites.len()
    }

    pub(super) fn path(&self, from: usize, to: usize) -> Option<Path> {
        self.paths[from][to]
    }

    /// Returns the greatest forwarding rate of each site, bits a second; `None` if it may not relay.
    pub(super) fn forwards(&self) -> Vec<Option<f64>> {
        let most = |site: &Site| {
            site.forwards
                .map_or(f64::INFINITY, |rate| rate.bits() as f64)
        };
        let sites = self.sites.values();
        sites.map(|site| site.relay.then(|| most(site))).collect()
    }
}

impl Leg {
    /// Converts the leg to a path for the formulas, with the largest window.
    fn path(&self) -> Result<Path> {
        let name = format!("leg {} – {}: rtt", self.from, self.to);
        path::check_rtt(&name, self.rtt)?;
        if !(588..=9000).contains(&self.mtu) {
            return Err(leg_error(self, "has an mtu outside of 588 to 9000"));
        }
        let no_rate = || leg_error(self, "has no rate: measure it with a responder, or add it");
        let rate = self.rate.ok_or_else(no_rate)?;
        Ok(Path {
            rate,
            rtt: self.rtt,
            loss: path::check_loss(
                &format!("leg {} – {}: loss", self.from, self.to),
                self.loss.get(),
            )?,
            mss: self.mtu - HEADERS,
            queue: self.queue_bytes(rate)?,
            window: Bytes::new(window_limit::LARGEST_BYTES),
        })
    }

    fn queue_bytes(&self, rate: BitRate) -> Result<Bytes> {
        let mut shape = LinkConfig {
            rate: Rate::Constant(rate),
            delay: Time::from_nanos(self.rtt.as_nanos() / 2),
            ..LinkConfig::default()
        };
        let queue = Setting::parse("queue", self.queue.as_deref().unwrap_or("1bdp"));
        shape.apply(
            queue.map_err(|error| leg_error(self, &format!("has an invalid queue: {error}")))?,
        );
        let limit = shape.limit();
        let packets = (limit.packets as u64).saturating_mul(u64::from(self.mtu));
        Ok(Bytes::new(limit.bytes.min(packets)))
    }
}

fn leg_error(leg: &Leg, why: &str) -> anyhow::Error {
    Refusal::usage(format!("--sites: leg {} – {} {why}", leg.from, leg.to))
}

/// Reads a file: JSON if it begins with a brace, else TOML.
fn read(file: &FilePath) -> Result<SitesFile> {
    let wrong = |reason: &dyn std::fmt::Display| {
        Refusal::usage(format!("--sites {}: {reason}", file.display()))
    };
    let size = std::fs::metadata(file)
        .map_err(|error| wrong(&error))?
        .len();
    if size > FILE_MAX {
        return Err(wrong(&"larger than 64 MiB"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    match text.trim_start().starts_with('{') {
        true => serde_json::from_str(&text).map_err(|error| wrong(&error)),
        false => {
            toml::from_str(&text).map_err(|error| wrong(&error.to_string().replace('\n', " ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(text: &str) -> Result<Sites> {
        Sites::of(vec![toml::from_str(text).unwrap()])
    }

    const TWO: &str =
        "[sites.b]\nrelay = false\n[[legs]]\nfrom = 'a'\nto = 'b'\nrtt = '10ms'\nrate = '1gbit'\n";

    #[test]
    fn uses_legs_in_both_directions_unless_the_reverse_has_its_own() {
        let both = sites(TWO).unwrap();
        let [a, b] = ["a", "b"].map(|name| both.number(name).unwrap());
        assert_eq!(both.path(a, b), both.path(b, a));
        assert_eq!(
            (both.forwards()[a], both.forwards()[b]),
            (Some(f64::INFINITY), None)
        );
        let back = "[[legs]]\nfrom = 'b'\nto = 'a'\nrtt = '20ms'\nrate = '1gbit'\n";
        let own = sites(&format!("{TWO}{back}")).unwrap();
        assert_eq!(own.path(b, a).unwrap().rtt, Time::from_millis(20));
        assert_eq!(own.path(a, b).unwrap().rtt, Time::from_millis(10));
    }

    #[test]
    fn refuses_invalid_legs() {
        let twice = TWO.replace("[sites.b]\nrelay = false\n", "");
        assert!(sites(&format!("{TWO}{twice}")).is_err());
        assert!(sites(&TWO.replace("'b'\nrtt", "'a'\nrtt")).is_err());
        assert!(sites(&TWO.replace("10ms", "0ms")).is_err());
        assert!(sites(&format!("{TWO}loss = '60%'\n")).is_err());
        assert!(sites(&format!("{TWO}mtu = 100\n")).is_err());
    }
}
