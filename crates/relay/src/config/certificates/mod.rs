// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates with which relays authenticate each other, issued by their own authority.

pub(crate) mod identity;
pub(crate) mod validity;

use serde::Deserialize;
use std::path::PathBuf;

/// Settings of mutual TLS 1.3 between relays; all files are PEM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSettings {
    /// Certificates of the trusted authorities.
    pub(crate) ca: PathBuf,
    /// This relay's certificate, followed by intermediate certificates.
    pub(crate) certificate: PathBuf,
    /// Private key of the certificate.
    pub(crate) key: PathBuf,
    /// Peers: name in the peer's certificate. Default: the peer's name in this file.
    #[cfg_attr(test, schemars(example = "relay.tokyo.example.org"))]
    pub(crate) name: Option<String>,
    /// Listeners: certificate names of the relays that are served. Default: all that the authority has signed.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
}

impl TlsSettings {
    /// Returns all files.
    pub(crate) fn paths(&mut self) -> [&mut PathBuf; 3] {
        [&mut self.ca, &mut self.certificate, &mut self.key]
    }
}
