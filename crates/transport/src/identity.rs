// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who the two ends of a copy are to each other: each makes a certificate for this one conversation, the other learns
//! it over a channel that both trust (ssh's), and TLS 1.3 accepts that one and no other.

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

/// A name that certificates must have and nobody looks at.
const SERVER_NAME: &str = "longhaul";

/// A key that lives as long as this process, and the certificate that shows it.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    /// A fresh key and its certificate.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new() -> Result<Self> {
        let generated = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]);
        let made = generated.context("cannot make a certificate")?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
        })
    }

    /// What the other end must be told.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    /// The side that connects, to whoever shows `peer`.
    pub fn initiator(&self, peer: &[u8]) -> Result<Initiator> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PinnedPeer::Certificate(peer.to_vec())))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key())?;
        Ok(Initiator(Arc::new(config)))
    }

    /// The side that listens, for whoever shows `peer`.
    pub fn responder(&self, peer: &[u8]) -> Result<Responder> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(PinnedPeer::Certificate(peer.to_vec())))
            .with_single_cert(vec![self.certificate.clone()], self.key())?;
        // Nobody resumes: every conversation has certificates of its own.
        config.send_tls13_tickets = 0;
        Ok(Responder(Arc::new(config)))
    }
}

/// Opens connections.
#[derive(Debug, Clone)]
pub struct Initiator(Arc<ClientConfig>);

impl Initiator {
    /// A connection that this end opens, before its handshake.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn connection(&self) -> Result<ClientConnection> {
        let name = ServerName::try_from(SERVER_NAME).context("no name")?;
        Ok(ClientConnection::new(self.0.clone(), name)?)
    }
}

/// Accepts connections.
#[derive(Debug, Clone)]
pub struct Responder(Arc<ServerConfig>);

impl Responder {
    /// A connection that this end accepts, before its handshake.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn connection(&self) -> Result<ServerConnection> {
        Ok(ServerConnection::new(self.0.clone())?)
    }
}

/// AES-128 first: a key lives as long as a conversation, and 256 bits cost a fifth more time (docs/copy.md).
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

/// For who connects to a site: the far end has the key with this fingerprint, and is shown nothing by TLS.
pub fn client_config_for_key(fingerprint: [u8; 32]) -> Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedPeer::Key(fingerprint)))
        .with_no_client_auth();
    Ok(config)
}

/// What counts of a certificate (DER): all of it, or the SHA-256 hash of its public key (SubjectPublicKeyInfo, as in
/// RFC 7469 §2.4). Who shows it must also sign with its key: TLS 1.3 asks for that
/// (RFC 8446 §4.4.3), and here it is checked.
#[derive(Debug)]
enum PinnedPeer {
    Certificate(Vec<u8>),
    Key([u8; 32]),
}

impl PinnedPeer {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let is_it = match self {
            Self::Certificate(certificate) => shown.as_ref() == certificate,
            Self::Key(fingerprint) => {
                let key = webpki::EndEntityCert::try_from(shown);
                key.is_ok_and(|shown| {
                    let key = shown.subject_public_key_info();
                    Sha256::digest(&key)[..] == fingerprint[..]
                })
            }
        };
        match is_it {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            )),
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

/// TLS 1.2 is never offered.
fn reject_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.3 only".to_owned()))
}

fn signature_schemes() -> Vec<SignatureScheme> {
    provider()
        .signature_verification_algorithms
        .supported_schemes()
}

/// What rustls asks of the verifiers of both sides alike: certificates sign, and in TLS 1.3 only.
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
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for PinnedPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::Connection;

    /// Carries what each says to the other until both are content, or one is not.
    fn shake_hands(initiator: &Initiator, responder: &Responder) -> Result<(), Error> {
        let mut near: Connection = initiator.connection().unwrap().into();
        let mut far: Connection = responder.connection().unwrap().into();
        while near.is_handshaking() || far.is_handshaking() {
            carry(&mut near, &mut far)?;
            carry(&mut far, &mut near)?;
        }
        Ok(())
    }

    fn carry(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
        let mut said = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut said).unwrap();
        }
        let mut heard = said.as_slice();
        while !heard.is_empty() {
            to.read_tls(&mut heard).unwrap();
            to.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn only_the_two_that_know_each_other_shake_hands() {
        let [near, far, stranger] = [(); 3].map(|()| Identity::new().unwrap());
        let meet = |opens: &Identity, believes: &Identity, accepts: &Identity, of: &Identity| {
            let initiator = opens.initiator(believes.certificate()).unwrap();
            let responder = accepts.responder(of.certificate()).unwrap();
            shake_hands(&initiator, &responder)
        };
        assert_eq!(meet(&near, &far, &far, &near), Ok(()));
        assert!(
            meet(&near, &far, &stranger, &near).is_err(),
            "a false target"
        );
        assert!(
            meet(&stranger, &far, &far, &near).is_err(),
            "a false source"
        );
        // Who shows another's certificate does not have its key.
        let thief = Identity {
            certificate: near.certificate.clone(),
            key: stranger.key.clone(),
        };
        let theft = thief.initiator(far.certificate());
        assert!(theft.is_err() || meet(&thief, &far, &far, &near).is_err());
    }
}
