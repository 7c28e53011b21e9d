// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of one link: flags of the command line, and keys of a table in a file.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are printed unchanged"
)]

use super::{Endpoint, Link, directions};
use crate::capture::CaptureOptions;
use anyhow::Result;
use clap::{Args, FromArgMatches as _};
use longhaul_command::exit::Refusal;
#[cfg(test)]
use longhaul_testprograms::schema;
use longhaul_units::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Header bytes of a segment that a capture records by default.
const SNAP_LENGTH: u32 = 128;
/// Memory of a capture by default.
const CAPTURE_MEMORY: Bytes = Bytes::new(256_000_000);

/// Options of one link.
#[derive(clap::Args)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename_all = "kebab-case", deny_unknown_fields, transform = schema::accept_both_spellings))]
#[group(skip)]
pub(crate) struct LinkOptions {
    /// Left end: [NAMESPACE:]INTERFACE:ADDRESS/PREFIX[,ADDRESS/PREFIX]
    #[arg(long, value_name = "END")]
    #[cfg_attr(test, schemars(required))]
    left: Option<String>,
    /// Right end, in the same form
    #[arg(long, value_name = "END")]
    #[cfg_attr(test, schemars(required))]
    right: Option<String>,
    /// Name in records, and for `longhaul link set` and `show`
    #[arg(long, default_value = "link")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(super) name: String,
    #[command(flatten)]
    #[cfg_attr(test, schemars(flatten))]
    settings: Settings,
    /// Setting of the direction left to right only: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    #[cfg_attr(test, schemars(with = "Option<Overrides>"))]
    forward: Vec<String>,
    /// Setting of the direction right to left only: KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    #[cfg_attr(test, schemars(with = "Option<Overrides>"))]
    backward: Vec<String>,
    /// Largest packet in bytes, 1280 to 9000
    #[arg(long, default_value_t = 1500)]
    #[cfg_attr(test, schemars(with = "Option<u32>", range(min = 1280, max = 9000)))]
    mtu: u32,
    /// Delivery of segments: per-packet (each at its own time) or batched[:QUANTUM] (those due within QUANTUM together)
    #[arg(long, value_name = "DELIVERY", default_value = "batched")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    delivery: String,
    /// Disable super-packets (GSO): the kernel cuts data to MTU size before the link reads it. Slow
    #[arg(long)]
    #[cfg_attr(test, schemars(default))]
    no_offload: bool,
    /// Seed of all random decisions
    #[arg(long, default_value_t = 1)]
    #[cfg_attr(test, schemars(with = "Option<u64>"))]
    seed: u64,
    /// Most memory for segments in each direction [default: twice what delay, rate and queue need]
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    memory: Option<Bytes>,
    /// Record each segment's headers at both ends, and its outcome on the link, to this pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Most header bytes that --capture records of a segment, 40 to 256 [default: 128]
    #[arg(long, value_name = "BYTES")]
    #[cfg_attr(test, schemars(range(min = 40, max = 256)))]
    snap_length: Option<u32>,
    /// Most memory for records that --capture has not written yet; beyond it records are dropped, never segments
    /// [default: 256MB]
    #[arg(long, value_name = "SIZE")]
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    capture_memory: Option<Bytes>,
}

/// Settings of both directions. `longhaul_netem` defines the grammar of the values.
#[derive(clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(deny_unknown_fields, transform = as_in_files, transform = schema::accept_both_spellings))]
#[group(id = "settings", multiple = true)]
struct Settings {
    /// Propagation delay, one way, such as 13ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Part of the delay that varies: [normal:|uniform:|pareto:|lognormal:]TIME, table:FILE or trace:FILE, with
    /// ,correlation=TIME (varies slowly) or ,reorder (segments overtake). With neither, each segment waits for the one
    /// before it, so close segments have longer delays
    #[arg(long, value_name = "JITTER", allow_hyphen_values = true)]
    jitter: Option<String>,
    /// Whether segments sent after a change to a shorter delay may overtake those in flight: no or yes [default: no]
    #[arg(long, value_name = "NO|YES")]
    allow_reordering: Option<String>,
    /// Rate in bits per second, such as 100mbit or 10gbit [default: unlimited]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Follow a packet-delivery trace in Mahimahi's format instead of a rate
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<String>,
    /// Bytes added to each segment on the wire, which take transmission time: 38 for Ethernet
    #[arg(long, value_name = "BYTES")]
    overhead: Option<String>,
    /// Queue limit: 64KB, 1000p, 1bdp or default [default: 1bdp, but at least 1000p]
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    queue: Option<String>,
    /// Active queue management: tail, codel[:target=5ms,interval=100ms], red[:min=100KB,max=300KB,p=10%]
    #[arg(long, value_name = "AQM")]
    aqm: Option<String>,
    /// Loss: 0.1%, gilbert:p=1%,r=30%[,good=0%,bad=100%], at:5,17,100-110 (counted from 1), none
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<String>,
    /// Share of segments that arrive twice
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    duplicate: Option<String>,
    /// Share of segments with one wrong bit
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    corrupt: Option<String>,
    /// Segments delayed so that others overtake them: SHARE:TIME
    #[arg(long, value_name = "REORDER", allow_hyphen_values = true)]
    reorder: Option<String>,
    /// Keep one pure ACK in 2^N, where that is safe
    #[arg(long, value_name = "N")]
    ack_thin: Option<String>,
    /// Longest time that ACK thinning holds an ACK back
    #[arg(long, value_name = "TIME")]
    max_ack_delay: Option<String>,
    /// Pace pure ACKs to N per second
    #[arg(long, value_name = "N")]
    ack_rate: Option<String>,
    /// Most pure ACKs that wait for --ack-rate
    #[arg(long, value_name = "N")]
    ack_buffer: Option<String>,
    /// Change of both directions at a time after the start: 'TIME: KEY VALUE'; repeatable
    #[arg(long, value_name = "CHANGE")]
    #[serde(default)]
    at: Vec<String>,
}

impl LinkOptions {
    fn command() -> clap::Command {
        let command = clap::Command::new("link")
            .no_binary_name(true)
            .disable_help_flag(true);
        Self::augment_args(command)
    }

    /// Returns the names of all flags, without their hyphens.
    pub(super) fn names() -> Vec<String> {
        let command = Self::command();
        let names = command.get_arguments().filter_map(clap::Arg::get_long);
        names.map(str::to_owned).collect()
    }

    /// Parses flags.
    ///
    /// # Errors
    /// Exit code 2: an unknown flag, or an invalid value.
    pub(super) fn parse(flags: Vec<String>) -> Result<Self> {
        let matches = Self::command().try_get_matches_from(flags);
        let options = matches.and_then(|matches| Self::from_arg_matches(&matches));
        options.map_err(|error| Refusal::usage(first_paragraph(&error)))
    }

    /// Returns the link. Files that its options name are relative to `base`.
    ///
    /// # Errors
    /// Exit code 2: the option with the error.
    pub(crate) fn link(&self, base: &Path) -> Result<Link> {
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return Err(Refusal::usage(
                "give both ends of the link, --left and --right, or a file of links, --config",
            ));
        };
        if self.capture.is_none() && (self.snap_length.is_some() || self.capture_memory.is_some()) {
            return Err(Refusal::usage(
                "--snap-length and --capture-memory have no effect without --capture FILE",
            ));
        }
        let (settings, [forward, backward]) = (self.settings.given()?, self.overrides());
        let settings = settings.iter().map(|(key, text)| (&**key, &**text));
        let options: Vec<_> = settings.chain(forward).chain(backward).collect();
        let [forward, backward] = directions(&options, self.mtu, self.memory, base)?;
        let delivery = self.delivery.parse();
        Ok(Link {
            name: self.name.clone(),
            left: Endpoint::parse(left)?,
            right: Endpoint::parse(right)?,
            forward,
            backward,
            mtu: self.mtu,
            delivery: delivery.map_err(|error: String| Refusal::option("delivery", error))?,
            offload: !self.no_offload,
            seed: self.seed,
            capture: self.capture.as_ref().map(|path| CaptureOptions {
                path: base.join(path),
                snap_length: self.snap_length.unwrap_or(SNAP_LENGTH),
                memory: self.capture_memory.unwrap_or(CAPTURE_MEMORY),
            }),
        })
    }

    fn overrides(&self) -> [impl Iterator<Item = (&str, &str)>; 2] {
        let both = [("forward", &self.forward), ("backward", &self.backward)];
        both.map(|(key, all)| all.iter().map(move |text| (key, &**text)))
    }
}

impl Settings {
    /// Returns the settings that were given, each with its key.
    fn given(&self) -> Result<Vec<(String, String)>> {
        let Value::Object(all) = serde_json::to_value(self)? else {
            return Ok(Vec::new());
        };
        let mut given = Vec::new();
        for (key, value) in all {
            match value {
                Value::String(text) => given.push((key, text)),
                Value::Array(texts) => {
                    let texts = texts.iter().filter_map(Value::as_str);
                    given.extend(texts.map(|text| (key.clone(), text.to_owned())));
                }
                _ => {}
            }
        }
        Ok(given)
    }
}

/// Returns the first paragraph of clap's message in one line, without the prefix `error: `.
fn first_paragraph(error: &clap::Error) -> String {
    let message = error.to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let lines = message.lines().take_while(|line| !line.trim().is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Overrides of one direction in a file.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it only describes a value")]
enum Overrides {
    /// Settings of the direction.
    Table(Box<Settings>),
    /// Settings as `KEY=VALUE`.
    Texts(Vec<String>),
    Text(String),
}

/// Describes the settings as a file may write them: with numbers, and with one text in place of a list.
#[cfg(test)]
fn as_in_files(schema: &mut schemars::Schema) {
    let settings = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, setting) in settings.into_iter().flatten() {
        let is_list = setting["type"] == "array";
        let types = if is_list {
            ["array", "string"]
        } else {
            ["string", "number"]
        };
        setting["type"] = types.into();
    }
}
