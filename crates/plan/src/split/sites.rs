// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sites and the paths between them, read from files. `plan measure --json` can write such files.

use super::super::path;
use anyhow::Result;
use indexmap::{IndexMap, IndexSet};
use longhaul_command::exit::Refusal;
use longhaul_netem::{LinkConfig, Rate, Setting};
use longhaul_tcpsim::formulas::{HEADERS, Path, window_limit};
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path as FilePath, PathBuf};

/// Contents of a file of sites.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct SitesFile {
    /// Properties of sites that differ from the defaults.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(in super::super) sites: IndexMap<String, Site>,
    pub(in super::super) paths: Vec<SitePath>,
}

/// Site with a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Site {
    /// Whether the site may relay.
    #[serde(default = "default_relay")]
    pub(in super::super) relay: bool,
    /// Maximum rate that a relay there forwards.
    pub(in super::super) forwarding_rate: Option<BitRate>,
}

fn default_relay() -> bool {
    true
}

/// Path between two sites, in the direction of the data.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct SitePath {
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
    /// Largest packet in bytes, with its IP header.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Details of the measurement, for information only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) measured: Option<Value>,
}

fn default_mtu() -> u32 {
    1500
}

/// Sites of all files, numbered, with the paths between them.
#[derive(Debug)]
pub(super) struct Sites {
    sites: IndexMap<String, Site>,
    /// Matrix of paths: rows are sources, columns destinations.
    paths: Vec<Vec<Option<Path>>>,
}

/// Maximum number of sites. A matrix of 500 × 500 is 20 MB.
const SITES_MAX: usize = 500;
/// Maximum size of a file, in bytes.
const FILE_LEN_MAX: u64 = 64 << 20;

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
        let mut paths = Vec::new();
        for file in files {
            sites.extend(file.sites);
            paths.extend(file.paths);
        }
        let ends: IndexSet<String> = paths
            .iter()
            .flat_map(|path| [path.from.clone(), path.to.clone()])
            .collect();
        for name in ends {
            sites.entry(name).or_insert(Site {
                relay: true,
                forwarding_rate: None,
            });
        }
        if sites.len() > SITES_MAX {
            let found = sites.len();
            return Err(Refusal::usage(format!(
                "--sites: {found} sites, but at most {SITES_MAX} are allowed"
            )));
        }
        let matrix = vec![vec![None; sites.len()]; sites.len()];
        let mut all = Self {
            sites,
            paths: matrix,
        };
        for path in &paths {
            all.add(path)?;
        }
        all.add_reverse_paths(&paths)?;
        Ok(all)
    }

    fn add(&mut self, path: &SitePath) -> Result<()> {
        let [from, to] = self.ends(path);
        if from == to || self.paths[from][to].is_some() {
            return Err(path_error(
                path,
                "is given twice, or leads from a site to itself",
            ));
        }
        self.paths[from][to] = Some(path.to_path()?);
        Ok(())
    }

    /// Uses each path in the reverse direction, too, unless the files have a path in that direction.
    fn add_reverse_paths(&mut self, paths: &[SitePath]) -> Result<()> {
        for path in paths {
            let [from, to] = self.ends(path);
            if self.paths[to][from].is_none() {
                self.paths[to][from] = Some(path.to_path()?);
            }
        }
        Ok(())
    }

    fn ends(&self, path: &SitePath) -> [usize; 2] {
        [&path.from, &path.to].map(|name| self.number(name).unwrap_or_default())
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

    /// Returns the maximum forwarding rate of each site, in bits a second. It is `None` if the site may not relay.
    pub(super) fn forwarding_rates_bps(&self) -> Vec<Option<f64>> {
        let rate = |site: &Site| {
            site.forwarding_rate
                .map_or(f64::INFINITY, |rate| rate.bits() as f64)
        };
        let sites = self.sites.values();
        sites.map(|site| site.relay.then(|| rate(site))).collect()
    }
}

impl SitePath {
    /// Converts it to a path for the formulas, with TCP's largest window.
    fn to_path(&self) -> Result<Path> {
        let name = format!("path {} – {}: rtt", self.from, self.to);
        path::check_rtt(&name, self.rtt)?;
        if !(588..=9000).contains(&self.mtu) {
            return Err(path_error(
                self,
                &format!("has an mtu of {}: want 588 to 9000", self.mtu),
            ));
        }
        let no_rate = || path_error(self, "has no rate: measure it with a responder, or add it");
        let rate = self.rate.ok_or_else(no_rate)?;
        Ok(Path {
            rate,
            rtt: self.rtt,
            loss: path::check_loss(
                &format!("path {} – {}: loss", self.from, self.to),
                self.loss,
            )?,
            mss: self.mtu - HEADERS,
            queue: self.queue_bytes(rate)?,
            window: Bytes::new(window_limit::LARGEST_BYTES),
        })
    }

    fn queue_bytes(&self, rate: BitRate) -> Result<Bytes> {
        let mut link = LinkConfig {
            rate: Rate::Constant(rate),
            delay: Time::from_nanos(self.rtt.as_nanos() / 2),
            ..LinkConfig::default()
        };
        let queue = Setting::parse("queue", self.queue.as_deref().unwrap_or("1bdp"));
        link.apply(
            queue.map_err(|error| path_error(self, &format!("has an invalid queue: {error}")))?,
        );
        let limit = link.queue_capacity();
        let packets = (limit.packets as u64).saturating_mul(u64::from(self.mtu));
        Ok(Bytes::new(limit.bytes.min(packets)))
    }
}

fn path_error(path: &SitePath, reason: &str) -> anyhow::Error {
    Refusal::usage(format!(
        "--sites: path {} – {} {reason}",
        path.from, path.to
    ))
}

/// Reads a file: JSON if it begins with a brace, else TOML.
fn read(file: &FilePath) -> Result<SitesFile> {
    let file_error = |reason: &dyn std::fmt::Display| {
        Refusal::usage(format!("--sites {}: {reason}", file.display()))
    };
    let size = std::fs::metadata(file)
        .map_err(|error| file_error(&error))?
        .len();
    if size > FILE_LEN_MAX {
        return Err(file_error(&"larger than 64 MiB"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| file_error(&error))?;
    if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| file_error(&error))
    } else {
        toml::from_str(&text).map_err(|error| file_error(&toml_error_line(&error)))
    }
}

/// Returns an error of TOML as one line: where it is, and what it is.
fn toml_error_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let place = text.lines().next().unwrap_or_default();
    format!("{place}: {}", error.message().replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(text: &str) -> Result<Sites> {
        Sites::of(vec![toml::from_str(text).unwrap()])
    }

    const TWO: &str =
        "[sites.b]\nrelay = false\n[[paths]]\nfrom = 'a'\nto = 'b'\nrtt = '10ms'\nrate = '1gbit'\n";

    #[test]
    fn uses_paths_in_both_directions_unless_the_reverse_has_its_own() {
        let both = sites(TWO).unwrap();
        let [a, b] = ["a", "b"].map(|name| both.number(name).unwrap());
        assert_eq!(both.path(a, b), both.path(b, a));
        assert_eq!(
            (
                both.forwarding_rates_bps()[a],
                both.forwarding_rates_bps()[b]
            ),
            (Some(f64::INFINITY), None)
        );
        let back = "[[paths]]\nfrom = 'b'\nto = 'a'\nrtt = '20ms'\nrate = '1gbit'\n";
        let with_reverse = sites(&format!("{TWO}{back}")).unwrap();
        assert_eq!(with_reverse.path(b, a).unwrap().rtt, Time::from_millis(20));
        assert_eq!(with_reverse.path(a, b).unwrap().rtt, Time::from_millis(10));
    }

    #[test]
    fn errors_of_toml_name_the_line() {
        let parse = |text| toml::from_str::<SitesFile>(text);
        let error = parse("[[paths]]\nfrom = 3\n").unwrap_err().to_string();
        assert!(error.contains("line 2, column 8"), "{error}");
        let error = parse("[sites").unwrap_err();
        assert_eq!(
            toml_error_line(&error),
            "TOML parse error at line 1, column 7: unclosed table, expected `]`"
        );
    }

    #[test]
    fn refuses_invalid_paths() {
        let twice = TWO.replace("[sites.b]\nrelay = false\n", "");
        assert!(sites(&format!("{TWO}{twice}")).is_err());
        assert!(sites(&TWO.replace("'b'\nrtt", "'a'\nrtt")).is_err());
        assert!(sites(&TWO.replace("10ms", "0ms")).is_err());
        assert!(sites(&format!("{TWO}loss = '60%'\n")).is_err());
        assert!(sites(&format!("{TWO}mtu = 100\n")).is_err());
    }
}
