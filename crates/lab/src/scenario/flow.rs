// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows between two hosts: program, size or duration, and options of the sender.

use super::control::CcSpec;
#[cfg(test)]
use super::schema;
use longhaul_tcpsim::{receiver::AckPolicy, sender::SenderConfig};
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};

/// Flow between two hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    pub(crate) name: String,
    pub(crate) program: Program,
    /// Host that sends the data.
    pub(crate) from: String,
    /// Host that receives the data.
    pub(crate) to: String,
    /// Bytes to transfer; `iperf3` and `udt` take this or `duration`.
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) size: Option<Bytes>,
    /// Time to send (`iperf3`, `udt`, `probe`).
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) duration: Option<Time>,
    /// Time at the beginning that does not count, for example slow start (`iperf3`, `udt`). Needs
    /// `duration`.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) omit: Option<Time>,
    /// Parallel connections, 1 to 128 (`iperf3`) or 64 (`udt`).
    #[serde(default = "one::<u32>")]
    pub(crate) streams: u32,
    #[serde(default)]
    pub(crate) direction: Direction,
    /// Address that the client connects to instead of the server: a relay that forwards to the
    /// server.
    #[serde(default, with = "super::notation::as_text")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) via: Option<HostPort>,
    /// Proxy through which the client reaches the server (`curl`, `ftp`).
    #[serde(default, with = "super::notation::as_text")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) proxy: Option<Proxy>,
    /// Number of packets (`probe`); this or `duration`.
    pub(crate) count: Option<u32>,
    /// Congestion control of the sender (`curl`, `iperf3`, `ftp`). For `udt` only its own, named
    /// `udt`.
    #[serde(default, with = "super::notation::as_text")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) cc: Option<CcSpec>,
    /// Pacing of the sender (`curl`, `iperf3`).
    #[cfg_attr(test, schemars(with = "Option<schema::Pacing>"))]
    pub(crate) pacing: Option<Pacing>,
    /// Time between full packets, instead of a pacing rate.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) inter_packet_gap: Option<Time>,
    /// Socket buffers of both ends, and so the receiver's window (`iperf3`).
    #[cfg_attr(test, schemars(with = "Option<schema::Bytes>"))]
    pub(crate) window: Option<Bytes>,
    /// Whether the server opens the data connections (`ftp`).
    #[serde(default)]
    pub(crate) ftp_active: bool,
    /// Time between messages (`probe`); 0 is back to back.
    #[cfg_attr(test, schemars(with = "Option<schema::Time>"))]
    pub(crate) interval: Option<Time>,
    /// Packet size in bytes with its IP header (`probe`).
    pub(crate) packet_size: Option<u16>,
    /// Packets of one message (`probe`). Several are sent as one GSO packet.
    #[serde(default = "one::<u16>")]
    pub(crate) gso_segments: u16,
    /// Program and arguments of a command that runs on `from` (`command`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
    /// Program and arguments of a server that runs on `to` for the time of the flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) server: Vec<String>,
    /// TCP port at which `server` listens once it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_port: Option<u16>,
    /// File on `to` that must equal `{payload}` when the command has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_file: Option<String>,
    /// Metrics of the command: numbers of the JSON object in the last line that it prints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) figures: Vec<String>,
    /// Assumptions about both ends, for simulated flows only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<Model>,
    /// Start, from the beginning of the run.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema::Time"))]
    pub(crate) start: Time,
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::default_true",
        deserialize_with = "super::notation::bool_or_all"
    )]
    #[cfg_attr(test, schemars(with = "schema::BoolOrAll"))]
    pub(crate) enabled: bool,
}

/// Behaviour of both ends of a simulated flow, where a testbed has that of its kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Model {
    /// Data packets for each ACK.
    pub(crate) ack_ratio: u32,
    /// Time within which the receiver merges packets; zero is no GRO.
    #[cfg_attr(test, schemars(with = "schema::Time"))]
    pub(crate) gro: Time,
    /// Initial congestion window in packets.
    pub(crate) initial_window: u32,
}

impl Default for Model {
    fn default() -> Self {
        let (acks, sender) = (AckPolicy::default(), SenderConfig::default());
        Self {
            ack_ratio: acks.packets,
            gro: acks.gro_interval,
            initial_window: sender.initial_window,
        }
    }
}

impl Flow {
    /// Whether it transfers data, unlike a probe and a command without a size.
    pub(crate) fn transfers(&self) -> bool {
        match self.program {
            Program::Probe => false,
            Program::Command => self.size.is_some(),
            _ => true,
        }
    }
}

fn one<N: From<u8>>() -> N {
    N::from(1)
}

/// Program that generates a flow's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Program {
    /// curl fetches a file from nginx; its SHA-256 is checked.
    Curl,
    /// iperf3 in its TCP mode.
    Iperf3,
    /// curl from or to vsftpd; its SHA-256 is checked.
    Ftp,
    /// `longhaul probe`: single packets with kernel time stamps.
    Probe,
    /// `longhaul udt bench`.
    Udt,
    /// Command of the flow.
    Command,
}

impl Program {
    /// Whether it transfers a file whose content is checked.
    pub(crate) fn carries_a_file(self) -> bool {
        matches!(self, Self::Curl | Self::Ftp)
    }

    /// Whether it gets a file of the flow's size.
    pub(crate) fn takes_a_file(self) -> bool {
        self.carries_a_file() || self == Self::Command
    }

    /// Whether a flow's direction decides which host opens the connection.
    pub(crate) fn has_a_client(self) -> bool {
        matches!(self, Self::Curl | Self::Iperf3 | Self::Ftp | Self::Udt)
    }

    /// Whether its data is known to go over TCP.
    pub(crate) fn is_tcp(self) -> bool {
        !matches!(self, Self::Probe | Self::Udt | Self::Command)
    }

    /// Name in scenarios.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Iperf3 => "iperf3",
            Self::Ftp => "ftp",
            Self::Probe => "probe",
            Self::Udt => "udt",
            Self::Command => "command",
        }
    }
}

/// Host that opens the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// The receiver opens it: a download.
    #[default]
    Download,
    /// The sender opens it: an upload.
    Upload,
}

/// Host and port of the testbed, written `relay1:8080`.
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
        parsed.ok_or_else(|| format!("{text:?} is not HOST:PORT such as relay1:8080"))
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Proxy of a client, written `socks5h://relay1:1080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) scheme: String,
    pub(crate) at: HostPort,
}

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

/// Proxy protocols that curl and relays support.
const PROXY_SCHEMES: [&str; 3] = ["socks5", "socks5h", "http"];

/// Pacing of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "PacingText")]
pub(crate) enum Pacing {
    /// At TCP's own rate, from the first packet on. `false` equals a missing key.
    Own(bool),
    /// At most this much payload (SO_MAX_PACING_RATE).
    Rate(BitRate),
}

/// Pacing as written, so that an invalid rate is refused with its own message.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a rate such as \"800mbit\", or true")]
enum PacingText {
    Own(bool),
    Rate(String),
}

impl TryFrom<PacingText> for Pacing {
    type Error = longhaul_units::ParseError;

    fn try_from(text: PacingText) -> Result<Self, Self::Error> {
        match text {
            PacingText::Own(own) => Ok(Self::Own(own)),
            PacingText::Rate(rate) => rate.parse().map(Self::Rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_printing_of_proxies_are_inverse() {
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
