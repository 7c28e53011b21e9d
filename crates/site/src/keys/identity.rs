// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of a site: a permanent key, created at the first start, whose fingerprint is in clients' tokens. Also the
//! certificates of its listeners.

use super::state::StateDir;
use anyhow::{Context as _, Result};
use longhaul_command::exit::Refusal;
use longhaul_copy::protocol::token::Fingerprint;
use longhaul_linux::private_file;
use longhaul_transport::identity::provider;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use std::{path::Path, sync::Arc};
use tokio_rustls::TlsAcceptor;

const FILE: &str = "identity.pem";

const FILE_LEN_MAX: u64 = 64 << 10;

/// Fingerprint of the key, and a certificate that carries the key. Clients check nothing else in the certificate.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) fingerprint: Fingerprint,
}

impl Identity {
    /// Loads the identity, or creates it.
    pub(crate) fn load_or_create(state: &StateDir) -> Result<Self> {
        let lock = state.lock()?;
        let path = state.path(FILE);
        let failed = || format!("cannot read {}", path.display());
        let text = match state.read(FILE, FILE_LEN_MAX).with_context(failed)? {
            Some(text) => text,
            None => {
                let text = generate()?;
                state.write(FILE, &text, &lock)?;
                text
            }
        };
        Self::parse(&text).map_err(|error| Refusal::usage(format!("{}: {error:#}", path.display())))
    }

    fn parse(text: &str) -> Result<Self> {
        let certificate = Certificate::parse(text.as_bytes())?;
        let end_entity = certificate.chain.first().context("no certificate")?;
        let key = webpki::EndEntityCert::try_from(end_entity)?.subject_public_key_info();
        Ok(Self {
            fingerprint: Fingerprint::of(&key),
            certificate,
        })
    }
}

fn generate() -> Result<String> {
    let made = rcgen::generate_simple_self_signed(["longhaul".to_owned()]);
    let made = made.context("cannot create a key")?;
    Ok(made.signing_key.serialize_pem() + &made.cert.pem())
}

/// Longest certificate file, in bytes.
const PEM_LEN_MAX: u64 = 1 << 20;

/// Certificate chain and its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// Reads a PEM file with the chain and the key. Other users must not be able to read it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let refused = |why: &dyn std::fmt::Display| {
            Refusal::usage(format!("certificate {}: {why}", path.display()))
        };
        let pem = private_file::read(path, PEM_LEN_MAX).map_err(|error| refused(&error))?;
        Self::parse(pem.as_bytes()).map_err(|error| refused(&error))
    }

    /// Parses PEM.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificate = Self {
            chain: chain?,
            key: PrivateKeyDer::from_pem_slice(pem)?,
        };
        certificate.acceptor(b"")?;
        Ok(certificate)
    }

    /// Returns an acceptor of TLS 1.3 connections with `protocol` as ALPN (RFC 7301).
    pub(crate) fn acceptor(&self, protocol: &[u8]) -> Result<TlsAcceptor> {
        let mut tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        tls.alpn_protocols = vec![protocol.to_vec()];
        // Connections are long, so no session tickets are sent.
        tls.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(tls)))
    }
}
