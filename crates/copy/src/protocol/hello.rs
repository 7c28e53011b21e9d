// SPDX-License-Identifier: MIT OR Apache-2.0
//! First message of an endpoint: its protocol version and its identity.
//!
//! The first two fields are the same in every protocol version, so that processes of different versions can reject each
//! other.

use super::message;
use anyhow::{Context as _, Result};
use longhaul_command::{console::escape, exit::Refusal};
use serde::{Deserialize, Serialize};
use std::{fmt::Display, io::Read, net::IpAddr};

/// Protocol version of this longhaul. It changes with any message between two longhauls (the tests in `golden` detect
/// that), independently of the release.
pub const PROTOCOL_VERSION: u32 = 3;

/// Line before the first message. It separates the messages of an endpoint from the output of a login.
pub const GREETING: &[u8] = b"longhaul copy 1\n";

/// First message from an endpoint to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub(super) protocol: u32,
    /// Release name, for people.
    pub(super) release: String,
    /// X.509 certificate of the endpoint, DER.
    pub certificate: Vec<u8>,
    /// Addresses of the ssh connection over which the endpoint was started: the client's and the endpoint's own.
    pub ssh: Option<(IpAddr, IpAddr)>,
}

/// Fields of [`Hello`] that every protocol version has.
#[derive(Debug, Deserialize)]
struct HelloPrefix {
    protocol: u32,
    release: String,
}

impl Hello {
    /// Creates the message of this program. `ssh` has the addresses of the client and of this machine if ssh started it.
    pub fn new(certificate: &[u8], ssh: Option<(IpAddr, IpAddr)>) -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            release: longhaul_command::release().to_owned(),
            certificate: certificate.to_vec(),
            ssh,
        }
    }

    /// Reads the message of the endpoint on `host`; `None` if the endpoint exited before.
    ///
    /// # Errors
    /// Fails if the endpoint has another protocol version, or sends something else.
    pub fn read(from: &mut impl Read, host: &dyn Display) -> Result<Option<Self>> {
        let Some(bytes) = message::read_bytes(from)? else {
            return Ok(None);
        };
        let speaker = postcard::take_from_bytes::<HelloPrefix>(&bytes);
        let (speaker, _) = speaker.context("not a message")?;
        speaker.check_version(host)?;
        message::parse(&bytes).map(Some)
    }
}

impl HelloPrefix {
    fn check_version(&self, host: &dyn Display) -> Result<()> {
        let Self { protocol, release } = self;
        if *protocol == PROTOCOL_VERSION {
            return Ok(());
        }
        Err(Refusal::usage(format!(
            "{host} uses protocol {protocol} (longhaul {}), this host protocol {PROTOCOL_VERSION} (longhaul {}): update the older \
             one (--remote-program selects another longhaul there)",
            escape(release),
            longhaul_command::release()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &impl Serialize) -> Result<Option<Hello>> {
        let mut bytes = Vec::new();
        message::write(&mut bytes, message).unwrap();
        Hello::read(&mut bytes.as_slice(), &"far.example")
    }

    #[test]
    fn rejects_another_protocol_version() {
        let newer = (PROTOCOL_VERSION + 1, "9.9.9", [7_u64; 5]);
        let why = read(&newer).unwrap_err();
        assert!(why.is::<Refusal>(), "a retry does not help");
        let own_release = longhaul_command::release();
        let wanted = format!(
            "far.example uses protocol 4 (longhaul 9.9.9), this host protocol 3 (longhaul {own_release}): update the older one \
             (--remote-program selects another longhaul there)"
        );
        assert_eq!(why.to_string(), wanted);
        // Before there were protocol versions, an endpoint sent its release first, as the first of its reports.
        let older = (0_u8, "0.0.9", b"certificate".as_slice(), None::<()>);
        let why = read(&older).unwrap_err().to_string();
        assert!(why.contains("protocol 0 (longhaul 0.0.9)"), "{why}");
    }

    #[test]
    fn accepts_another_release_of_the_same_protocol() {
        let hello = Hello {
            release: "9.9.9".to_owned(),
            ..Hello::new(b"certificate", None)
        };
        assert_eq!(read(&hello).unwrap(), Some(hello));
    }

    #[test]
    fn escapes_the_release_name_of_a_peer() {
        let why = read(&(7_u32, "\u{1b}[2J")).unwrap_err().to_string();
        assert!(!why.contains('\u{1b}'), "{why}");
    }
}
