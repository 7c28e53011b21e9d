// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a listener shows, and the key for it.

use crate::transport::identity::provider;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::private_file;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use std::{path::Path, sync::Arc};
use tokio_rustls::TlsAcceptor;

/// Bytes of a certificate's file that are read.
const PEM_LEN_MAX: u64 = 1 << 20;

/// A certificate, those that vouch for it, and its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// From a PEM file with all of it, which nobody else may read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let refused = |why: &dyn std::fmt::Display| {
            Refusal::usage(format!("certificate {}: {why}", path.display()))
        };
        let pem = private_file::read(path, PEM_LEN_MAX).map_err(|error| refused(&error))?;
        Self::parse(pem.as_bytes()).map_err(|error| refused(&error))
    }

    /// From PEM.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificate = Self {
            chain: chain?,
            key: PrivateKeyDer::from_pem_slice(pem)?,
        };
        certificate.acceptor(b"")?;
        Ok(certificate)
    }

    /// Accepts TLS 1.3 connections that speak `protocol` in it (RFC 7301).
    pub(crate) fn acceptor(&self, protocol: &[u8]) -> Result<TlsAcceptor> {
        let mut tls = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        tls.alpn_protocols = vec![protocol.to_vec()];
        // Nobody resumes: connections stay.
        tls.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(tls)))
    }
}
