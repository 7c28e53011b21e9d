// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who relays are to each other: certificates of an authority of their own, read and checked.

pub(crate) mod identity;
pub(crate) mod validity;

use serde::Deserialize;
use std::path::PathBuf;

/// Mutual TLS 1.3 between relays; files are PEM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Certificates of the authorities that vouch for the other side.
    pub(crate) ca: PathBuf,
    /// This relay's certificate, with those between it and the authority.
    pub(crate) certificate: PathBuf,
    /// The private key to it.
    pub(crate) key: PathBuf,
    /// Peers: the name in the peer's certificate, if it is not the peer's name here.
    pub(crate) name: Option<String>,
    /// Listeners: names of the relays that are served; all that the authorities vouch for if
    /// absent.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
}
