// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who a site is: a key that stays, made at the first start. Clients know its fingerprint from their tokens.

use super::{certificate::Certificate, state::State};
use crate::protocol::token::Fingerprint;
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use sha2::{Digest, Sha256};

const FILE: &str = "identity.pem";

const FILE_LEN_MAX: u64 = 64 << 10;

/// The key's fingerprint, and a certificate that shows it. Nobody looks at anything else in that.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) fingerprint: Fingerprint,
}

impl Identity {
    /// The one that there is, or a new one.
    pub(crate) fn of(state: &State) -> Result<Self> {
        let held = state.lock()?;
        let path = state.path(FILE);
        let failed = || format!("cannot read {}", path.display());
        let text = match state.read(FILE, FILE_LEN_MAX).with_context(failed)? {
            Some(text) => text,
            None => {
                let text = make()?;
                state.write(FILE, &text, &held)?;
                text
            }
        };
        Self::parse(&text).map_err(|error| Refusal::usage(format!("{}: {error:#}", path.display())))
    }

    fn parse(text: &str) -> Result<Self> {
        let certificate = Certificate::parse(text.as_bytes())?;
        let shown = certificate.chain.first().context("no certificate")?;
        let key = webpki::EndEntityCert::try_from(shown)?.subject_public_key_info();
        Ok(Self {
            fingerprint: Fingerprint(Sha256::digest(&key).into()),
            certificate,
        })
    }
}

fn make() -> Result<String> {
    let made = rcgen::generate_simple_self_signed(["longhaul".to_owned()]);
    let made = made.context("cannot make a key")?;
    Ok(made.signing_key.serialize_pem() + &made.cert.pem())
}
