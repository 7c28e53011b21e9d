// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS identity of a relay: mutual TLS 1.3, its own certificate and the trusted authorities.

use crate::config::{
    certificates::{TlsSettings, validity::Certificates},
    location::{Part, refused},
};
use longhaul_linux::private_file;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName,
    OtherError, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use std::{
    fmt::{self, Display},
    io,
    path::Path,
    sync::Arc,
};

/// Most bytes read of a key file: an RSA key of 16,384 bits takes 13 kB.
pub(crate) const KEY_LEN_MAX: u64 = 64 << 10;

/// Own certificate, trusted authorities and key, as read from files.
#[derive(Debug)]
struct Identity {
    certificates: Certificates,
    authorities: Arc<RootCertStore>,
    key: PrivateKeyDer<'static>,
}

/// TLS client: the side that connects.
#[derive(Debug)]
pub(crate) struct Initiator {
    certificates: Certificates,
    config: Arc<ClientConfig>,
    peer: ServerName<'static>,
}

/// TLS server: the side that listens.
#[derive(Debug)]
pub(crate) struct Responder {
    certificates: Certificates,
    config: Arc<ServerConfig>,
}

/// Verifier of client certificates: an authority must have signed them, and `allow` must name them.
#[derive(Debug)]
struct AllowListVerifier {
    authority: Arc<dyn ClientCertVerifier>,
    /// Permitted names; empty permits all.
    allow: Vec<ServerName<'static>>,
}

/// Refuses certificates whose names are not in `allow` by a TLS alert, as any other invalid
/// certificate.
impl ClientCertVerifier for AllowListVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.authority.verify_client_cert(certificate, chain, now)?;
        if self.allow.is_empty() {
            Ok(verified)
        } else {
            self.check_name(certificate).map(|()| verified)
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

impl AllowListVerifier {
    fn check_name(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let certificate = webpki::EndEntityCert::try_from(certificate)
            .map_err(|_| rustls::CertificateError::BadEncoding)?;
        let mut names = Vec::new();
        for name in &self.allow {
            match certificate.verify_is_valid_for_subject_name(name) {
                Ok(()) => return Ok(()),
                Err(webpki::Error::CertNotValidForName(has)) => names = has.presented,
                Err(_) => {}
            }
        }
        Err(NotAllowed { names }.into())
    }
}

/// Error of a valid certificate that `allow` does not name.
#[derive(Debug)]
pub(crate) struct NotAllowed {
    /// Names in the certificate.
    pub(crate) names: Vec<String>,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate is for {}", format_names(&self.names))
    }
}

/// Formats names of a certificate, without characters that are not printable.
pub(crate) fn format_names(names: &[String]) -> String {
    // webpki writes DnsName("tokyo").
    let shown = |name: &String| {
        let name = name.split('"').nth(1).unwrap_or(name);
        let printable = name.chars().filter(char::is_ascii_graphic);
        printable.take(NAME_LEN_MAX).collect::<String>()
    };
    match names {
        [] => "no name".to_owned(),
        names => {
            let shown: Vec<_> = names.iter().take(NAMES_MAX).map(shown).collect();
            shown.join(", ")
        }
    }
}

/// Most names of a certificate in a message, and most bytes of each: certificates are untrusted
/// input.
const NAMES_MAX: usize = 4;
const NAME_LEN_MAX: usize = 64;

impl std::error::Error for NotAllowed {}

impl From<NotAllowed> for rustls::Error {
    fn from(refused: NotAllowed) -> Self {
        CertificateError::Other(OtherError(Arc::new(refused))).into()
    }
}

impl PartialEq for Initiator {
    fn eq(&self, other: &Self) -> bool {
        self.certificates.settings == other.certificates.settings
    }
}

impl PartialEq for Responder {
    fn eq(&self, other: &Self) -> bool {
        self.certificates.settings == other.certificates.settings
    }
}

impl Initiator {
    /// Reads the files. `peer` is the name that the other
    /// side's certificate must have if the settings name none.
    pub(crate) fn new(settings: &TlsSettings, peer: &str) -> anyhow::Result<Self> {
        if !settings.allow.is_empty() {
            let problem =
                "tls.allow is for listeners; the name of a peer's certificate is tls.name";
            return Err(refused(Part::value("tls.allow"), problem));
        }
        let Identity {
            certificates,
            authorities,
            key,
        } = Identity::read(settings)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(tls_error)?
            .with_root_certificates(authorities)
            .with_client_auth_cert(certificates.chain.clone(), key)
            .map_err(|error| key_error(settings, error))?;
        Ok(Self {
            certificates,
            config: Arc::new(config),
            peer: server_name(settings.name.as_deref().unwrap_or(peer), "tls.name")?,
        })
    }

    /// Own certificate and trusted authorities.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// TLS state of a new connection, before the handshake.
    pub(crate) fn connection(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(self.config.clone(), self.peer.clone()).map_err(io::Error::other)
    }
}

impl Responder {
    /// Reads the files.
    pub(crate) fn new(settings: &TlsSettings) -> anyhow::Result<Self> {
        if settings.name.is_some() {
            let problem = "tls.name is for peers; the names that a listener serves are tls.allow";
            return Err(refused(Part::value("tls.name"), problem));
        }
        let Identity {
            certificates,
            authorities,
            key,
        } = Identity::read(settings)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider())
            .build()
            .map_err(tls_error)?;
        let allow = settings
            .allow
            .iter()
            .map(|allowed| server_name(allowed, "tls.allow"));
        let guests = AllowListVerifier {
            authority: verifier,
            allow: allow.collect::<Result<_, _>>()?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(tls_error)?
            .with_client_cert_verifier(Arc::new(guests))
            .with_single_cert(certificates.chain.clone(), key)
            .map_err(|error| key_error(settings, error))?;
        // A session ticket that the peer never reads would turn its close into RST (RFC 1122
        // §4.2.2.13). Pooled connections make resumption unnecessary.
        config.send_tls13_tickets = 0;
        Ok(Self {
            certificates,
            config: Arc::new(config),
        })
    }

    /// Own certificate and trusted authorities.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// TLS state of a new connection, before the handshake.
    pub(crate) fn connection(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(self.config.clone()).map_err(io::Error::other)
    }
}

impl Identity {
    fn read(settings: &TlsSettings) -> anyhow::Result<Self> {
        let mut authorities = RootCertStore::empty();
        let trusted = certificates("tls.ca", &settings.ca)?;
        for authority in &trusted {
            let added = authorities.add(authority.clone());
            added.map_err(|error| file_error("tls.ca", &settings.ca, error))?;
        }
        let key = private_file::read(&settings.key, KEY_LEN_MAX)
            .map_err(|error| file_error("tls.key", &settings.key, error))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        Ok(Self {
            certificates: Certificates {
                settings: settings.clone(),
                chain: certificates("tls.certificate", &settings.certificate)?,
                authorities: trusted,
            },
            authorities: authorities.into(),
            key: key
                .map_err(|error| file_error("tls.key", &settings.key, pem_error_text(&error)))?,
        })
    }
}

fn pem_error_text(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => {
            "no private key in it, or one that a password protects".to_owned()
        }
        other => other.to_string(),
    }
}

/// Reads the certificates in the file that the setting `key` names.
fn certificates(key: &'static str, path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(file_error(key, path, "no certificate in it")),
        Err(error) => Err(file_error(key, path, error)),
    }
}

fn server_name(text: &str, path: &'static str) -> anyhow::Result<ServerName<'static>> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| {
        let expected = "expected a host name or an IP address";
        let problem = format!("{text:?} is not a name for a certificate: {expected}");
        refused(Part::value(path), problem)
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn file_error(key: &'static str, path: &Path, error: impl Display) -> anyhow::Error {
    let problem = format!("{}: {error}", path.display());
    refused(Part::value(key), problem)
}

/// Error of a certificate and a key that are each valid but do not match.
fn key_error(settings: &TlsSettings, error: rustls::Error) -> anyhow::Error {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = settings.certificate.display();
            file_error(
                "tls.key",
                &settings.key,
                format!("it is not the key to {certificate}"),
            )
        }
        other => tls_error(other),
    }
}

fn tls_error(error: impl Display) -> anyhow::Error {
    refused(Part::value("tls"), format!("tls: {error}"))
}
