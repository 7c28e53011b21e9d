// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario as its TOML file says it. `docs/lab.md` explains every key to its writers.

use super::{
    controls::Control,
    measure::MeasurePlan,
    paper::PaperFigures,
    sending::Pace,
    view_plan::{FigurePlan, TablePlan},
};
use indexmap::IndexMap;
use longhaul_units::{Bytes, Time};
use serde::{Deserialize, Deserializer, Serialize};
use std::{collections::BTreeMap, net::Ipv4Addr};
use toml::{Table, Value};

/// The whole file, with its parameters filled in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// One line for the head of the report.
    pub(crate) title: String,
    /// What the experiment is to answer.
    pub(crate) question: String,
    /// Where the paper's figures come from.
    pub(crate) source: Option<String>,
    /// What differs from the paper's experiment, one sentence each.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// Seed of the order of runs, the files' contents and the links' decisions.
    #[serde(default = "defaults::seed")]
    pub(crate) seed: u64,
    /// Whether this cell runs under simulated time instead of on a testbed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) simulate: bool,
    /// Counted runs of each cell, 1 to 1,000.
    #[serde(default = "defaults::repetitions")]
    pub(crate) repetitions: u32,
    /// How often a run is taken again if the machine was too busy for the emulator (`disturbed.rs`).
    #[serde(default = "defaults::retakes")]
    pub(crate) retakes: u32,
    /// Runs of each cell, shortened as by `--quick`, before the counted ones; their figures are
    /// thrown away. 0 to 10.
    #[serde(default)]
    pub(crate) warmup: u32,
    #[serde(default)]
    pub(crate) order: Order,
    /// Longest that one run may take before it counts as failed.
    #[serde(default = "defaults::limit")]
    pub(crate) limit: Time,
    /// Named values that the rest of the file uses as `${name}`.
    #[serde(default)]
    pub(crate) parameters: Table,
    /// Parameters that `--quick` and warm-up runs use instead, and `repetitions`.
    #[serde(default)]
    pub(crate) quick: Table,
    /// Parameters varied against each other: every combination is a cell. Ranges are spelt out.
    #[serde(default, deserialize_with = "super::range::varied")]
    pub(crate) vary: IndexMap<String, Vec<Value>>,
    /// Parameters that go with a varied value: by its parameter, then by the value.
    #[serde(default)]
    pub(crate) with: IndexMap<String, IndexMap<String, Table>>,
    /// Cells beside those of `vary`.
    #[serde(default)]
    pub(crate) cells: Vec<CellPlan>,
    /// Congestion control of every host's connections; the machine's default if absent.
    pub(crate) congestion_control: Option<String>,
    /// Kernel settings of every host, by their dotted names.
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// What is special about single hosts.
    #[serde(default)]
    pub(crate) hosts: BTreeMap<String, Host>,
    pub(crate) links: Vec<Link>,
    /// Relays by name: that of the host that each runs on, unless it says another host.
    #[serde(default)]
    pub(crate) relays: IndexMap<String, Relay>,
    /// `longhaul decp`, by the host that it runs on.
    #[serde(default)]
    pub(crate) decp: IndexMap<String, Decp>,
    pub(crate) flows: Vec<Flow>,
    /// Metrics computed from others, as expressions.
    #[serde(default)]
    pub(crate) derived: IndexMap<String, String>,
    /// Metrics of how a run went over time.
    #[serde(default)]
    pub(crate) measure: Vec<MeasurePlan>,
    #[serde(default)]
    pub(crate) check: Vec<CheckPlan>,
    /// What the report shows as tables.
    #[serde(default)]
    pub(crate) table: Vec<TablePlan>,
    /// What it draws.
    #[serde(default)]
    pub(crate) figure: Vec<FigurePlan>,
    /// Which number answers the question.
    pub(crate) answer: Option<AnswerPlan>,
    /// The paper's own figures.
    #[serde(default)]
    pub(crate) paper: Vec<PaperFigures>,
}

impl Scenario {
    /// Each relay's name, its host and itself.
    pub(crate) fn relays(&self) -> impl Iterator<Item = (&String, &String, &Relay)> {
        self.relays
            .iter()
            .map(|(name, relay)| (name, relay.host.as_ref().unwrap_or(name), relay))
    }

    /// Whether something relays on `host` in this cell.
    pub(crate) fn relays_on(&self, host: &str) -> bool {
        self.relays()
            .any(|(_, own, relay)| own == host && relay.when)
    }
}

mod defaults {
    use longhaul_units::Time;

    pub(super) fn seed() -> u64 {
        1
    }
    pub(super) fn retakes() -> u32 {
        2
    }

    pub(super) fn repetitions() -> u32 {
        3
    }
    pub(super) fn limit() -> Time {
        Time::from_secs(600)
    }
    pub(super) fn yes() -> bool {
        true
    }
    pub(super) fn mtu() -> u32 {
        1500
    }
    pub(super) fn segments() -> u16 {
        1
    }
    pub(super) fn one() -> u32 {
        1
    }
}

/// In which order the runs of all cells follow each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Shuffled by the seed, so that a slow drift of the machine hits all cells alike.
    #[default]
    Random,
    /// Cell by cell, as in the file.
    AsWritten,
}

/// A cell that `vary` does not make.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellPlan {
    /// A name for people.
    pub(crate) label: Option<String>,
    /// Parameters that tell this cell from the others.
    pub(crate) vary: Table,
    /// Parameters that go with them, without being named in the result.
    #[serde(default)]
    pub(crate) set: Table,
}

/// A sysctl's value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "a setting is a whole number or a text")]
pub(crate) enum Setting {
    Number(i64),
    Text(String),
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What is special about one host.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Instead of the scenario's.
    pub(crate) congestion_control: Option<String>,
    #[serde(default)]
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// For the drawing in the report.
    pub(crate) note: Option<String>,
}

/// A wire between two hosts. Its name is the name of the interface on both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) name: String,
    #[serde(deserialize_with = "two")]
    pub(crate) between: [String; 2],
    #[serde(default)]
    pub(crate) kind: LinkKind,
    /// Address and prefix length of each end; one subnet a link is chosen if absent.
    #[serde(default, deserialize_with = "two_if_any")]
    pub(crate) addresses: Option<[Address; 2]>,
    /// Bytes, 1,280 to 9,000.
    #[serde(default = "defaults::mtu")]
    pub(crate) mtu: u32,
    /// Another link, whose options and random decisions this one takes.
    pub(crate) like: Option<String>,
    /// Whether its segments are recorded, in the raw records of each run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tap: bool,
    /// Whether that record stays when the run is analysed.
    #[serde(default = "defaults::yes")]
    pub(crate) tap_keep: bool,
    /// Segments that TCP hands down to it as one, at either end, 1 to 65,535; the kernel's choice
    /// if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gso_max_segs: Option<u32>,
    /// Every other key: an option of `longhaul link`.
    #[serde(flatten)]
    pub(crate) options: Table,
}

/// Two, where serde's own arrays take the first two of three.
fn two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<[T; 2], D::Error> {
    let all = Vec::deserialize(input)?;
    all.try_into().map_err(|all: Vec<T>| {
        let problem = format!("two belong here, not {}", all.len());
        serde::de::Error::custom(problem)
    })
}

fn two_if_any<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
) -> Result<Option<[T; 2]>, D::Error> {
    two(input).map(Some)
}

/// What the wire is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LinkKind {
    /// `longhaul link`.
    #[default]
    Emulated,
    /// A plain veth pair: no delay, no limit.
    Veth,
}

/// An IPv4 address with the length of its subnet's prefix, written `10.9.0.1/30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl Address {
    /// The address of the subnet itself.
    pub(crate) fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip.to_bits() & self.mask())
    }

    /// Whether an interface may have it: not that of the subnet or of all of its hosts (RFC 3021 makes an
    /// exception of two), nor one that stands for something else.
    pub(crate) fn is_of_a_host(self) -> bool {
        let host = self.ip.to_bits() & !self.mask();
        let of_the_subnet = self.prefix < 31 && (host == 0 || host == !self.mask());
        let [first, ..] = self.ip.octets();
        !of_the_subnet && !matches!(first, 0 | 127 | 224..)
    }

    /// Whether one subnet lies in the other.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        self.ip.to_bits() & mask == other.ip.to_bits() & mask
    }

    fn mask(self) -> u32 {
        u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(ip, prefix)| {
            let prefix = prefix
                .parse()
                .ok()
                .filter(|prefix| (1..=31).contains(prefix))?;
            Some(Self {
                ip: ip.parse().ok()?,
                prefix,
            })
        });
        parsed
            .ok_or_else(|| format!("{text:?} is no IPv4 address with a prefix such as 10.9.0.1/30"))
    }
}

impl Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A relay on a host of the path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Relay {
    /// Whether it runs in this cell.
    #[serde(default = "defaults::yes", deserialize_with = "all_hold")]
    pub(crate) when: bool,
    /// Where it runs, if its name is not the host's.
    pub(crate) host: Option<String>,
    #[serde(default)]
    pub(crate) program: RelayProgram,
    /// Destination ports whose connections its transparent listener takes.
    #[serde(default)]
    pub(crate) intercept: Vec<u16>,
    /// What stands in the configuration file of `longhaul relay`; flags come on top.
    #[serde(default)]
    pub(crate) config: Table,
    /// Every other key: an option of `longhaul relay`, of which other programs know some.
    #[serde(flatten)]
    pub(crate) options: Table,
}

/// `longhaul decp` beside the flows that a host sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Decp {
    /// Whether it runs in this cell.
    #[serde(default = "defaults::yes", deserialize_with = "all_hold")]
    pub(crate) when: bool,
    /// Every other key: an option of `longhaul decp`.
    #[serde(flatten)]
    pub(crate) options: Table,
}

/// What relays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RelayProgram {
    #[default]
    Longhaul,
    /// HAProxy in its TCP mode.
    Haproxy,
    /// Dante's `danted`: SOCKS5.
    Dante,
    /// Squid without its cache: HTTP.
    Squid,
}

impl RelayProgram {
    pub(crate) const ALL: [Self; 4] = [Self::Longhaul, Self::Haproxy, Self::Dante, Self::Squid];

    /// As scenarios write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::Haproxy => "haproxy",
            Self::Dante => "dante",
            Self::Squid => "squid",
        }
    }
}

/// A port of a host of the testbed, written `relay1:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::str::FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':');
        let parsed = parts.and_then(|(host, port)| {
            let port = port.parse().ok().filter(|port| *port > 0)?;
            let host = (!host.is_empty()).then(|| host.to_owned())?;
            Some(Self { host, port })
        });
        parsed.ok_or_else(|| format!("{text:?} is no HOST:PORT such as relay1:8080"))
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A proxy that a client asks, written `socks5h://relay1:1080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) scheme: String,
    pub(crate) at: HostPort,
}

/// The proxy protocols that curl speaks and relays serve.
const PROXY_SCHEMES: [&str; 3] = ["socks5", "socks5h", "http"];

impl std::str::FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, at) = text
            .split_once("://")
            .filter(|(scheme, _)| PROXY_SCHEMES.contains(scheme))
            .ok_or_else(|| {
                let known = PROXY_SCHEMES.join("://, ");
                format!("{text:?} begins with none of {known}://")
            })?;
        let (scheme, at) = (scheme.to_owned(), at.parse()?);
        Ok(Self { scheme, at })
    }
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme, self.at)
    }
}

/// A boolean, or a list of them that must all be true.
fn all_hold<'de, D: serde::Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a boolean or a list of them")]
    enum When {
        One(bool),
        All(Vec<bool>),
    }
    Ok(match When::deserialize(input)? {
        When::One(one) => one,
        When::All(all) => all.into_iter().all(|one| one),
    })
}

/// Values that a file holds as text.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::{fmt::Display, str::FromStr};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    /// An empty text is none, so that a parameter can leave the key out.
    pub(super) fn deserialize<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<T>, D::Error> {
        match String::deserialize(input)?.as_str() {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(D::Error::custom),
        }
    }
}

/// A transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    pub(crate) name: String,
    pub(crate) program: Program,
    /// The host that the data leaves.
    pub(crate) from: String,
    /// The host that the data reaches.
    pub(crate) to: String,
    /// How much; `iperf3` and `udt` take this or `duration`.
    pub(crate) size: Option<Bytes>,
    /// How long (`iperf3`, `udt`, `probe`).
    pub(crate) duration: Option<Time>,
    /// How much of the beginning does not count (`iperf3`, `udt`): slow start, say. Beside `duration`.
    pub(crate) omit: Option<Time>,
    /// Connections at a time, 1 to 128 (`iperf3`) or 64 (`udt`).
    #[serde(default = "defaults::one")]
    pub(crate) parallel: u32,
    #[serde(default)]
    pub(crate) direction: Direction,
    /// Where the client connects instead of to the server: a relay that forwards to it.
    #[serde(default, with = "as_text")]
    pub(crate) via: Option<HostPort>,
    /// The proxy that the client asks for the server (`curl`).
    #[serde(default, with = "as_text")]
    pub(crate) proxy: Option<Proxy>,
    /// How many packets (`probe`); this or `duration`.
    pub(crate) count: Option<u32>,
    /// Congestion control of the data's sender (`curl`, `iperf3`); of `udt` its own, which is called so.
    #[serde(default, with = "as_text")]
    pub(crate) cc: Option<Control>,
    /// Whether, and to which rate, it spaces its packets (`curl`, `iperf3`).
    pub(crate) pace: Option<Pace>,
    /// Or from one full packet to the next.
    pub(crate) gap: Option<Time>,
    /// The socket buffers of both ends, and so the receiver's window (`iperf3`).
    pub(crate) window: Option<Bytes>,
    /// Whether the server opens the data connections (`ftp`).
    #[serde(default)]
    pub(crate) active: bool,
    /// From one message to the next (`probe`); 0 is back to back.
    pub(crate) interval: Option<Time>,
    /// Bytes of a packet from its IP header on (`probe`).
    pub(crate) length: Option<u16>,
    /// Packets of one message (`probe`): more than one goes as a super-packet.
    #[serde(default = "defaults::segments")]
    pub(crate) segments: u16,
    /// When it begins, from the start of the run.
    #[serde(default)]
    pub(crate) start: Time,
    /// Whether it runs in this cell.
    #[serde(default = "defaults::yes", deserialize_with = "all_hold")]
    pub(crate) when: bool,
}

/// What makes a flow's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    /// curl fetches a file from nginx; its SHA-256 is checked.
    Curl,
    /// iperf3 in its TCP mode.
    Iperf3,
    /// curl from or to a vsftpd; its SHA-256 is checked.
    Ftp,
    /// `longhaul probe`: single packets, stamped by the kernel.
    Probe,
    /// `longhaul udt bench`.
    Udt,
}

impl Program {
    /// Whether it is there to move bytes.
    pub(crate) fn transfers(self) -> bool {
        self != Self::Probe
    }

    /// Whether it carries a file whose content is checked.
    pub(crate) fn carries_a_file(self) -> bool {
        matches!(self, Self::Curl | Self::Ftp)
    }

    /// Whether a flow's direction says who opens the connection.
    pub(crate) fn has_a_client(self) -> bool {
        matches!(self, Self::Curl | Self::Iperf3 | Self::Ftp | Self::Udt)
    }

    /// Whether what it moves goes over TCP.
    pub(crate) fn is_tcp(self) -> bool {
        !matches!(self, Self::Probe | Self::Udt)
    }

    /// As scenarios write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Iperf3 => "iperf3",
            Self::Ftp => "ftp",
            Self::Probe => "probe",
            Self::Udt => "udt",
        }
    }
}

/// Which end opens the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// The host that receives: a download.
    #[default]
    Download,
    /// The host that sends: an upload.
    Upload,
}

/// A claim that the run must meet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckPlan {
    pub(crate) name: String,
    /// An expression over the medians of cells.
    pub(crate) value: String,
    /// It must hold of every cell with these varied values: a metric without braces is that cell's,
    /// one with braces that of the cell that differs from it in just those.
    pub(crate) every: Option<Table>,
    /// `>= 6`.
    pub(crate) want: String,
    /// Whether it must hold for runs shortened by `--quick` too.
    #[serde(default = "defaults::yes")]
    pub(crate) quick: bool,
}

/// The number that answers the question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerPlan {
    /// Holds `{}` where the number goes.
    pub(crate) sentence: String,
    pub(crate) metric: String,
    pub(crate) cell: Table,
    pub(crate) baseline: Option<Table>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_runs_when_all_that_it_names_is_so() {
        let when = |text: &str| toml::from_str::<Relay>(text).map(|relay| relay.when);
        assert!(when("").unwrap());
        assert!(!when("when = false").unwrap());
        assert!(when("when = [true, true]").unwrap());
        assert!(!when("when = [true, false]").unwrap());
        assert!(
            when("when = 'yes'")
                .unwrap_err()
                .to_string()
                .contains("a boolean or a list")
        );
    }

    #[test]
    fn ways_through_relays_read_as_they_print() {
        let proxy: Proxy = "socks5h://relay1:1080".parse().unwrap();
        assert_eq!((proxy.at.host.as_str(), proxy.at.port), ("relay1", 1080));
        assert_eq!(proxy.to_string(), "socks5h://relay1:1080");
        for wrong in [
            "relay1:1080",
            "ftp://relay1:21",
            "http://relay1",
            "http://:80",
            "http://a:0",
        ] {
            assert!(wrong.parse::<Proxy>().is_err(), "{wrong}");
        }
    }
}
