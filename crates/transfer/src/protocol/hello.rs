// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first message of an end: by which protocol it speaks, and who it is.
//!
//! Its first two fields stay as they are in every protocol, so that ends of different ones can refuse each other.

use super::message;
use anyhow::{Context as _, Result};
use longhaul_command::{console::escaped, exit::Refusal};
use serde::{Deserialize, Serialize};
use std::{fmt::Display, io::Read, net::IpAddr};

/// The protocol that this longhaul speaks. It is another one when a message between two longhauls changes (`golden`
/// finds out), whatever release that is.
pub const PROTOCOL_VERSION: u32 = 1;

/// Stands before it, and tells an end from whatever a login prints.
pub const GREETING: &[u8] = b"longhaul copy 1\n";

/// From an end to its driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub(super) protocol: u32,
    /// For people.
    pub(super) release: String,
    /// DER.
    pub certificate: Vec<u8>,
    /// The two addresses of the ssh connection that brought it: the near one, its own.
    pub ssh: Option<(IpAddr, IpAddr)>,
}

/// What of it is the same in every protocol.
#[derive(Debug, Deserialize)]
struct Speaker {
    protocol: u32,
    release: String,
}

impl Hello {
    /// Of this program. `ssh` has the addresses of the client and of this machine, where ssh started it.
    pub fn new(certificate: &[u8], ssh: Option<(IpAddr, IpAddr)>) -> Self {
        Self {
            protocol: PROTOCOL_VERSION,
            release: longhaul_command::release().to_owned(),
            certificate: certificate.to_vec(),
            ssh,
        }
    }

    /// Reads that of the end on `host`; `None` if it went away before.
    ///
    /// # Errors
    /// It speaks another protocol, or none.
    pub fn read(from: &mut impl Read, host: &dyn Display) -> Result<Option<Self>> {
        let Some(bytes) = message::read_bytes(from)? else {
            return Ok(None);
        };
        let speaker = postcard::take_from_bytes::<Speaker>(&bytes);
        let (speaker, _) = speaker.context("not a message")?;
        speaker.check(host)?;
        message::parse(&bytes).map(Some)
    }
}

impl Speaker {
    fn check(&self, host: &dyn Display) -> Result<()> {
        let Self { protocol, release } = self;
        if *protocol == PROTOCOL_VERSION {
            return Ok(());
        }
        Err(Refusal::usage(format!(
            "{host} speaks protocol {protocol} (longhaul {}), this one protocol {PROTOCOL_VERSION} (longhaul {}): update the older \
             one (--remote-program names another longhaul there)",
            escaped(release),
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
    fn ends_of_different_protocols_refuse_each_other() {
        let newer = (PROTOCOL_VERSION + 1, "9.9.9", [7_u64; 5]);
        let why = read(&newer).unwrap_err();
        assert!(why.is::<Refusal>(), "nothing mends it");
        let own = longhaul_command::release();
        let wanted = format!(
            "far.example speaks protocol 2 (longhaul 9.9.9), this one protocol 1 (longhaul {own}): update the older one \
             (--remote-program names another longhaul there)"
        );
        assert_eq!(why.to_string(), wanted);
        // Before there were protocols, an end said its release first, as the first of its reports.
        let older = (0_u8, "0.0.9", b"certificate".as_slice(), None::<()>);
        let why = read(&older).unwrap_err().to_string();
        assert!(why.contains("protocol 0 (longhaul 0.0.9)"), "{why}");
    }

    #[test]
    fn another_release_of_the_same_protocol_is_heard() {
        let hello = Hello {
            release: "9.9.9".to_owned(),
            ..Hello::new(b"certificate", None)
        };
        assert_eq!(read(&hello).unwrap(), Some(hello));
    }

    #[test]
    fn what_a_stranger_calls_its_release_is_shown_escaped() {
        let why = read(&(7_u32, "\u{1b}[2J")).unwrap_err().to_string();
        assert!(!why.contains('\u{1b}'), "{why}");
    }
}
