// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of the endpoints of a copy. Each creates a certificate for this session, and the other learns it over a
//! channel that both trust (ssh). TLS 1.3 accepts that certificate and no other.

use anyhow::{Context as _, Result};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    version::TLS13,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Server name in the certificates, which TLS requires and no verifier reads.
const SERVER_NAME: &str = "longhaul";

/// Private key, and its certificate. It is never stored.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    /// Creates a key and its certificate.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn new() -> Result<Self> {
        let generated = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]);
        let generated = generated.context("cannot make a certificate")?;
        Ok(Self {
            certificate: generated.cert.der().clone(),
            key: generated.signing_key.serialize_der(),
        })
    }

    /// Returns the certificate (DER), which the peer must learn.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    /// Returns the connecting side, for a peer with the certificate `peer`.
    pub fn initiator(&self, peer: &[u8]) -> Result<Initiator> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PinnedPeer::Certificate(peer.to_vec())))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key())?;
        Ok(Initiator(Arc::new(config)))
    }

    /// Returns the listening side, for a peer with the certificate `peer`.
    pub fn responder(&self, peer: &[u8]) -> Result<Responder> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(PinnedPeer::Certificate(peer.to_vec())))
            .with_single_cert(vec![self.certificate.clone()], self.key())?;
        // Sessions are not resumed: each has its own certificates.
        config.send_tls13_tickets = 0;
        Ok(Responder(Arc::new(config)))
    }
}

/// Configuration of the connecting side.
#[derive(Debug, Clone)]
pub struct Initiator(Arc<ClientConfig>);

impl Initiator {
    /// Creates a connection before its handshake.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn connection(&self) -> Result<ClientConnection> {
        let name = ServerName::try_from(SERVER_NAME).context("invalid server name")?;
        Ok(ClientConnection::new(self.0.clone(), name)?)
    }
}

/// Configuration of the listening side.
#[derive(Debug, Clone)]
pub struct Responder(Arc<ServerConfig>);

impl Responder {
    /// Creates a connection before its handshake.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub fn connection(&self) -> Result<ServerConnection> {
        Ok(ServerConnection::new(self.0.clone())?)
    }
}

/// Returns the crypto provider, with AES-128 first: a key lives as long as a session, and 256 bits cost a fifth more
/// time (docs/copy.md).
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// Returns the configuration of a client of a site: the server has the key with this fingerprint, and gets no client
/// certificate.
pub fn client_config_for_key(fingerprint: [u8; 32]) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedPeer::Key(fingerprint)))
        .with_no_client_auth();
    Ok(config)
}

/// Pinned part of a peer's certificate: the whole (DER), or the SHA-256 hash of its public key (SubjectPublicKeyInfo,
/// as in RFC 7469 §2.4). The peer must also sign with the key: TLS 1.3 requires that (RFC 8446 §4.4.3), and the
/// verifier checks it.
#[derive(Debug)]
enum PinnedPeer {
    Certificate(Vec<u8>),
    Key([u8; 32]),
}

impl PinnedPeer {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let matches = match self {
            Self::Certificate(certificate) => presented.as_ref() == certificate,
            Self::Key(fingerprint) => {
                let key = webpki::EndEntityCert::try_from(presented);
                key.is_ok_and(|presented| {
                    let key = presented.subject_public_key_info();
                    Sha256::digest(&key)[..] == fingerprint[..]
                })
            }
        };
        if matches {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn check_signature(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }
}

/// Rejects a TLS 1.2 signature: that version is never offered.
fn reject_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.3 only".to_owned()))
}

fn signature_schemes() -> Vec<SignatureScheme> {
    provider()
        .signature_verification_algorithms
        .supported_schemes()
}

/// Methods that both verifiers share: signature checks, for TLS 1.3 only.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            reject_tls12()
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Self::check_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            signature_schemes()
        }
    };
}

impl ServerCertVerifier for PinnedPeer {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(presented)
            .map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for PinnedPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(presented)
            .map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::Connection;

    /// Exchanges messages until both handshakes are complete or one fails.
    fn complete_handshake(initiator: &Initiator, responder: &Responder) -> Result<(), Error> {
        let mut client: Connection = initiator.connection().unwrap().into();
        let mut server: Connection = responder.connection().unwrap().into();
        while client.is_handshaking() || server.is_handshaking() {
            transfer_records(&mut client, &mut server)?;
            transfer_records(&mut server, &mut client)?;
        }
        Ok(())
    }

    fn transfer_records(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
        let mut sent = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut sent).unwrap();
        }
        let mut received = sent.as_slice();
        while !received.is_empty() {
            to.read_tls(&mut received).unwrap();
            to.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn accepts_only_the_pinned_certificates() {
        let [source, target, outsider] = [(); 3].map(|()| Identity::new().unwrap());
        let connect = |client: &Identity,
                       expected_server: &Identity,
                       server: &Identity,
                       expected_client: &Identity| {
            let initiator = client.initiator(expected_server.certificate()).unwrap();
            let responder = server.responder(expected_client.certificate()).unwrap();
            complete_handshake(&initiator, &responder)
        };
        assert_eq!(connect(&source, &target, &target, &source), Ok(()));
        assert!(
            connect(&source, &target, &outsider, &source).is_err(),
            "a false target"
        );
        assert!(
            connect(&outsider, &target, &target, &source).is_err(),
            "a false source"
        );
        // An attacker that presents another's certificate lacks its key.
        let impostor = Identity {
            certificate: source.certificate.clone(),
            key: outsider.key.clone(),
        };
        let impostor_initiator = impostor.initiator(target.certificate());
        assert!(
            impostor_initiator.is_err() || connect(&impostor, &target, &target, &source).is_err()
        );
    }
}
