// SPDX-License-Identifier: MIT OR Apache-2.0
//! A transfer between two hosts: its program, its size or length, and how its sender is told to send.

use super::control::Control;
use longhaul_units::{BitRate, Bytes, Time};
use serde::{Deserialize, Serialize};

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
    #[serde(default = "one")]
    pub(crate) parallel: u32,
    #[serde(default)]
    pub(crate) direction: Direction,
    /// Where the client connects instead of to the server: a relay that forwards to it.
    #[serde(default, with = "super::notation::as_text")]
    pub(crate) via: Option<HostPort>,
    /// The proxy that the client asks for the server (`curl`).
    #[serde(default, with = "super::notation::as_text")]
    pub(crate) proxy: Option<Proxy>,
    /// How many packets (`probe`); this or `duration`.
    pub(crate) count: Option<u32>,
    /// Congestion control of the data's sender (`curl`, `iperf3`); of `udt` its own, which is called so.
    #[serde(default, with = "super::notation::as_text")]
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
    #[serde(default = "one")]
    pub(crate) segments: u16,
    /// The words of a command that runs on `from` (`command`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
    /// Those of one that runs on `to` from before the flows to behind them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) server: Vec<String>,
    /// The TCP port at which `server` listens when it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready: Option<u16>,
    /// The file on `to` that then is what `{payload}` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arrives: Option<String>,
    /// When it begins, from the start of the run.
    #[serde(default)]
    pub(crate) start: Time,
    /// Whether it runs in this cell.
    #[serde(
        default = "super::notation::yes",
        deserialize_with = "super::notation::all_hold"
    )]
    pub(crate) when: bool,
}

fn one<N: From<u8>>() -> N {
    N::from(1)
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
    /// Whatever the flow says.
    Command,
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

    /// Whether it is given a file of its size.
    pub(crate) fn takes_a_file(self) -> bool {
        self.carries_a_file() || self == Self::Command
    }

    /// Whether a flow's direction says who opens the connection.
    pub(crate) fn has_a_client(self) -> bool {
        matches!(self, Self::Curl | Self::Iperf3 | Self::Ftp | Self::Udt)
    }

    /// Whether what it moves is known to go over TCP.
    pub(crate) fn is_tcp(self) -> bool {
        !matches!(self, Self::Probe | Self::Udt | Self::Command)
    }

    /// As scenarios write it.
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

/// The proxy protocols that curl speaks and relays serve.
const PROXY_SCHEMES: [&str; 3] = ["socks5", "socks5h", "http"];

/// Whether a sender spaces its packets, and to which rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, try_from = "PaceText")]
pub(crate) enum Pace {
    /// At TCP's own rate, from the first packet on; `false` is as if the key were not there.
    Own(bool),
    /// At most this much payload (SO_MAX_PACING_RATE).
    Rate(BitRate),
}

/// As it is written, so that a rate that is none is refused with what is wrong with it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a rate such as \"800mbit\", or true")]
enum PaceText {
    Own(bool),
    Rate(String),
}

impl TryFrom<PaceText> for Pace {
    type Error = longhaul_units::ParseError;

    fn try_from(text: PaceText) -> Result<Self, Self::Error> {
        match text {
            PaceText::Own(own) => Ok(Self::Own(own)),
            PaceText::Rate(rate) => rate.parse().map(Self::Rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
