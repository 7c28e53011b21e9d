// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who a site is: a key that stays, made at the first start. Clients know its fingerprint from their tokens.

use super::{state::State, token::Fingerprint};
use crate::exit::Refusal;
use anyhow::{Context as _, Result};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sha2::{Digest, Sha256};

const FILE: &str = "identity.pem";

const FILE_LEN_MAX: u64 = 64 << 10;

/// The key, and a certificate that shows it. Nobody looks at anything else in the certificate.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// The one that there is, or a new one.
    pub(super) fn of(state: &State) -> Result<Self> {
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
        let identity = Self {
            certificate: CertificateDer::from_pem_slice(text.as_bytes())?,
            key: PrivateKeyDer::from_pem_slice(text.as_bytes())?,
        };
        identity.key_of_certificate()?;
        Ok(identity)
    }

    /// What clients know it by.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint> {
        Ok(Fingerprint(
            Sha256::digest(self.key_of_certificate()?).into(),
        ))
    }

    fn key_of_certificate(&self) -> Result<Vec<u8>> {
        let certificate = webpki::EndEntityCert::try_from(&self.certificate)?;
        Ok(certificate.subject_public_key_info().to_vec())
    }
}

fn make() -> Result<String> {
    let made = rcgen::generate_simple_self_signed(["longhaul".to_owned()]);
    let made = made.context("cannot make a key")?;
    Ok(made.signing_key.serialize_pem() + &made.cert.pem())
}
