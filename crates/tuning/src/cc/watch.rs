// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc watch`: connections that use longhaul's congestion controls, as a live table or as JSON lines.

use super::{
    config,
    load::parameters_json,
    output::{print, table},
};
use crate::connection_filter::Filter;
use anyhow::Result;
use longhaul_congestion::{
    Error,
    loader::{self, Loaded},
    math::{Algorithm, Field},
    pins::Pins,
    watch::{Connection, Watch, ack_counts::AckCounts},
};
use longhaul_units::{BitRate, Time};
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    fs,
    io::{IsTerminal, stdout},
    os::unix::fs::MetadataExt,
    rc::Rc,
};

/// Maximum number of rows of a table on a terminal.
const ROWS_MAX: usize = 40;

/// Connection with its congestion control.
struct WatchedConnection {
    cc: Rc<LoadedAlgorithm>,
    connection: Connection,
    acks: Option<AckCounts>,
}

/// Loaded congestion control, read once for all connections of a sample.
struct LoadedAlgorithm {
    loaded: Loaded,
    layout_matches: bool,
    /// Parameters of new connections.
    defaults: Vec<u32>,
}

impl LoadedAlgorithm {
    fn new(loaded: &Loaded) -> Result<Rc<Self>> {
        Ok(Rc::new(Self {
            loaded: loaded.clone(),
            layout_matches: loaded.has_same_layout(),
            defaults: loaded.parameters().map_err(Error::refusal)?,
        }))
    }

    fn algorithm(&self) -> Algorithm {
        self.loaded.algorithm()
    }
}

/// Runs the command.
pub(super) fn run(config: &config::Watch) -> Result<()> {
    let watch = Watch::new().map_err(Error::refusal)?;
    let loaded = || loaded_algorithms(&config.pins, config.only);
    if let (Some(algorithm), true) = (config.only, loaded()?.is_empty()) {
        return Err(Error::NotLoaded(algorithm.system_name()).refusal());
    }
    loop {
        let seen = snapshot(&watch, &loaded()?, &config.filter)?;
        show(config, &seen)?;
        let Some(interval) = config.interval else {
            return Ok(());
        };
        std::thread::sleep(interval.into());
    }
}

fn loaded_algorithms(pins: &Pins, only: Option<Algorithm>) -> Result<Vec<Loaded>> {
    let loaded = match only {
        Some(algorithm) => loader::loaded(pins, algorithm).map(Vec::from_iter),
        None => loader::all_loaded(pins),
    };
    loaded.map_err(Error::refusal)
}

/// Returns the matching connections, largest window first. Listeners are left out: they send nothing.
fn snapshot(watch: &Watch, loaded: &[Loaded], filter: &Filter) -> Result<Vec<WatchedConnection>> {
    const LISTEN: u32 = 10;
    let mut seen = Vec::new();
    for one in loaded {
        let found = watch.connections(one).map_err(Error::refusal)?;
        let cc = LoadedAlgorithm::new(one)?;
        let matching = found.into_iter().filter(|connection| {
            connection.tcp_state != LISTEN && filter.matches(connection.local, connection.remote)
        });
        let acks: HashMap<_, _> = watch
            .acks(one)
            .map_err(Error::refusal)?
            .into_iter()
            .collect();
        seen.extend(matching.map(|connection| WatchedConnection {
            cc: Rc::clone(&cc),
            acks: acks.get(&connection.ends()).copied(),
            connection,
        }));
    }
    seen.sort_by_key(|seen| std::cmp::Reverse(seen.connection.cwnd));
    Ok(seen)
}

fn show(config: &config::Watch, seen: &[WatchedConnection]) -> Result<()> {
    if config.json {
        let timestamp = jiff::Timestamp::now().to_string();
        let lines = seen
            .iter()
            .map(|seen| format!("{}\n", seen.json(&timestamp)));
        return print(&lines.collect::<String>());
    }
    let live = stdout().is_terminal() && config.interval.is_some();
    let (clear, rows) = if live {
        ("\x1b[H\x1b[2J", ROWS_MAX)
    } else {
        ("", usize::MAX)
    };
    print(&format!(
        "{clear}{}{}",
        text(seen, rows),
        if live { "" } else { "\n" }
    ))
}

fn text(seen: &[WatchedConnection], rows_max: usize) -> String {
    if seen.is_empty() {
        return "no connections\n".to_owned();
    }
    let names = namespaces();
    let heading = [
        "netns", "local", "remote", "cc", "state", "cwnd", "ssthresh", "pacing", "rtt", "out",
        "retrans", "cc state",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(seen.iter().take(rows_max).map(|seen| seen.row(&names)));
    let more = seen.len().saturating_sub(rows_max);
    let rest = if more > 0 {
        format!("… and {more} more\n")
    } else {
        String::new()
    };
    format!("{}{rest}{}", table(&rows), foreign_layout_note(seen))
}

/// Returns a note about connections whose own state this build can't read.
fn foreign_layout_note(seen: &[WatchedConnection]) -> String {
    let strange = seen.iter().find(|seen| !seen.cc.layout_matches);
    strange.map_or(String::new(), |seen| {
        format!(
            "{} was loaded by another longhaul ({}): its own state cannot be read by this one\n",
            seen.cc.algorithm().system_name(),
            seen.cc.loaded.loaded_by()
        )
    })
}

/// Names of network namespaces by inode.
fn namespaces() -> HashMap<u64, String> {
    let entries = fs::read_dir(longhaul_linux::netns::DIRECTORY)
        .into_iter()
        .flatten();
    let named = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let inode = fs::metadata(entry.path()).ok()?.ino();
        Some((inode, entry.file_name().into_string().ok()?))
    });
    let here = fs::metadata("/proc/self/ns/net").map(|here| (here.ino(), "(here)".to_owned()));
    named.chain(here.ok()).collect()
}

impl WatchedConnection {
    fn row(&self, names: &HashMap<u64, String>) -> Vec<String> {
        let c = &self.connection;
        let netns = names.get(&u64::from(c.netns));
        vec![
            netns.cloned().unwrap_or_else(|| c.netns.to_string()),
            c.local.to_string(),
            c.remote.to_string(),
            c.algorithm.clone(),
            c.ca_state.name().to_owned(),
            c.cwnd.to_string(),
            c.ssthresh
                .map_or("-".to_owned(), |packets| packets.to_string()),
            c.pacing_rate_bps
                .map_or("-".to_owned(), |bits| BitRate::from_bits(bits).to_string()),
            Time::from_micros(u64::from(c.srtt_us)).to_string(),
            c.packets_out.to_string(),
            c.retransmits.to_string(),
            self.own_text(),
        ]
    }

    fn json(&self, timestamp: &str) -> Value {
        let c = &self.connection;
        let mut line = json!({
            "timestamp": timestamp, "cc": c.algorithm, "netns": c.netns, "local": c.local, "remote": c.remote,
            "ca_state": c.ca_state, "cwnd": c.cwnd, "ssthresh": c.ssthresh,
            "pacing_rate_bps": c.pacing_rate_bps, "srtt_us": c.srtt_us, "mss": c.mss,
            "packets_out": c.packets_out, "retransmits": c.retransmits,
            "bytes_acked": c.bytes_acked,
        });
        if let Some(acks) = &self.acks {
            line["acks"] = json!({
                "acks": acks.acks, "bytes": acks.bytes, "non_advancing": acks.non_advancing,
                "bytes_per_ack_max": acks.bytes_per_ack_max,
                "bytes_per_ack_mean": acks.bytes_per_ack_mean(),
                "interval_us_min": acks.interval_us_min(), "interval_us_mean": acks.interval_us_mean(),
                "packets_per_ack_histogram": acks.packets_histogram,
            });
        }
        if self.cc.layout_matches {
            let algorithm = self.cc.algorithm();
            line["parameters"] =
                parameters_json(algorithm, &algorithm.connection_parameters(&c.own)).into();
            line["cc_state"] = Value::Object(self.own());
        }
        line
    }

    fn own(&self) -> Map<String, Value> {
        let fields = self.fields();
        fields
            .map(|(field, value)| (field.name.to_owned(), json!(value)))
            .collect()
    }

    fn fields(&self) -> impl Iterator<Item = (Field, f64)> + use<> {
        let algorithm = self.cc.algorithm();
        let values = algorithm.values(&self.connection.own);
        let shown = |(field, stored): (Field, i64)| {
            (field, stored as f64 / f64::from(field.divisor.max(1)))
        };
        algorithm.fields().zip(values).map(shown)
    }

    /// Returns the state fields, and the parameters that differ from those of new connections.
    fn own_text(&self) -> String {
        if !self.cc.layout_matches {
            return "?".to_owned();
        }
        let algorithm = self.cc.algorithm();
        let own = algorithm.connection_parameters(&self.connection.own);
        let changed = algorithm
            .parameters()
            .zip(own.iter().zip(&self.cc.defaults));
        let changed = changed.filter(|(_, (own, usual))| own != usual);
        let changed = changed.map(|(parameter, (own, _))| format!("{}={own}", parameter.name));
        let fields = self.fields();
        let fields =
            fields.map(|(field, value)| format!("{}={}", field.name, format_decimal(value)));
        let acks = self.acks.as_ref().map(|acks| self.acks_text(acks));
        let all = fields.chain(changed).chain(acks);
        all.collect::<Vec<_>>().join(" ")
    }

    fn acks_text(&self, acks: &AckCounts) -> String {
        let packets =
            acks.bytes_per_ack_mean().unwrap_or(0.0) / f64::from(self.connection.mss.max(1));
        let interval = acks.interval_us_mean().unwrap_or(0.0);
        format!(
            "acks={} packets/ack={} (max {}) interval={}us",
            acks.acks,
            format_decimal(packets),
            acks.bytes_per_ack_max / self.connection.mss.max(1),
            format_decimal(interval)
        )
    }
}

/// Formats a number with at most three decimals.
fn format_decimal(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_at_most_three_decimals() {
        assert_eq!(format_decimal(2.0), "2");
        assert_eq!(format_decimal(0.125), "0.125");
        assert_eq!(format_decimal(-1.5004), "-1.5");
        assert_eq!(format_decimal(100.0), "100");
    }
}
