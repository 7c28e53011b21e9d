// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS to the server, with its certificate verified.

use crate::error::Error;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::{path::Path, sync::Arc};
use tokio_postgres::config::{Config, Host, SslMode, SslNegotiation};
use tokio_postgres_rustls::MakeRustlsConnect;

/// TLS connector. `authorities`: a PEM file instead of the system's authorities.
pub(crate) fn connector(
    config: &Config,
    authorities: Option<&Path>,
) -> Result<MakeRustlsConnect, Error> {
    let roots = match authorities {
        Some(file) => roots_from_file(file)?,
        None if may_be_used(config) => roots_from_system(),
        None => RootCertStore::empty(),
    };
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    if config.get_ssl_negotiation() == SslNegotiation::Direct {
        tls.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(tls))
}

/// Whether TLS may be used. PostgreSQL has no TLS over Unix sockets.
fn may_be_used(config: &Config) -> bool {
    let over_tcp = |host: &Host| matches!(host, Host::Tcp(_));
    config.get_ssl_mode() != SslMode::Disable && config.get_hosts().iter().any(over_tcp)
}

fn roots_from_file(file: &Path) -> Result<RootCertStore, Error> {
    let wrong =
        |error: &dyn std::fmt::Display| Error::Authorities(format!("{}: {error}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"it contains no certificate"));
    }
    Ok(roots)
}

/// System's authorities. Certificates that cannot be read are not trusted; a server that needs one
/// is refused by the handshake.
fn roots_from_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
