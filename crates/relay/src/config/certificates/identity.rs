// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a relay shows and believes: TLS 1.3, and both sides must show a certificate.

use crate::config::certificates::{TlsSettings, validity::Certificates};
use longhaul_command::exit::Refusal;
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

/// Bytes read of a key's file: an RSA key of 16,384 bits takes 13 kB.
pub(crate) const KEY_LEN_MAX: u64 = 64 << 10;

/// What a relay shows and believes, read and checked.
#[derive(Debug)]
struct Identity {
    certificates: Certificates,
    authorities: Arc<RootCertStore>,
    key: PrivateKeyDer<'static>,
}

/// The side that connects.
#[derive(Debug)]
pub(crate) struct Initiator {
    certificates: Certificates,
    config: Arc<ClientConfig>,
    peer: ServerName<'static>,
}

/// The side that listens.
#[derive(Debug)]
pub(crate) struct Responder {
    certificates: Certificates,
    config: Arc<ServerConfig>,
}

/// Whom a listener serves: relays that the authority vouches for, and of these whom `allow` names.
#[derive(Debug)]
struct Guests {
    authority: Arc<dyn ClientCertVerifier>,
    /// Empty is all.
    allow: Vec<ServerName<'static>>,
}

/// The authority's answer, and a refusal of names that are not in `allow`: the other side hears of it
/// by an alert, as of any other certificate that is not accepted.
impl ClientCertVerifier for Guests {
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
        match self.allow.is_empty() {
            true => Ok(verified),
            false => self.check_name(certificate).map(|()| verified),
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

impl Guests {
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

/// A certificate that the authority vouches for, and `allow` does not name.
#[derive(Debug)]
pub(crate) struct NotAllowed {
    /// The names that it is for.
    pub(crate) names: Vec<String>,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate is for {}", listed(&self.names))
    }
}

/// Names of a certificate, as far as they can be shown.
pub(crate) fn listed(names: &[String]) -> String {
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

/// Names in a certificate that are printed, each with so many bytes: they come from elsewhere.
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
        self.certificates.written == other.certificates.written
    }
}

impl PartialEq for Responder {
    fn eq(&self, other: &Self) -> bool {
        self.certificates.written == other.certificates.written
    }
}

impl Initiator {
    /// Reads the files; `user` is who asks for them, and `peer` the name that the other side's
    /// certificate must have if the settings name none.
    pub(crate) fn new(written: &TlsSettings, user: &str, peer: &str) -> anyhow::Result<Self> {
        if !written.allow.is_empty() {
            let problem =
                "tls.allow is for listeners; the name of a peer's certificate is tls.name";
            return Err(Refusal::usage(format!("{user}: {problem}")));
        }
        let Identity {
            certificates,
            authorities,
            key,
        } = Identity::read(written, user)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| refused(user, error))?
            .with_root_certificates(authorities)
            .with_client_auth_cert(certificates.chain.clone(), key)
            .map_err(|error| unfit(written, user, error))?;
        Ok(Self {
            certificates,
            config: Arc::new(config),
            peer: name(written.name.as_deref().unwrap_or(peer), user)?,
        })
    }

    /// What it shows and believes.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// A connection that has not shaken hands yet.
    pub(crate) fn connection(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(self.config.clone(), self.peer.clone()).map_err(io::Error::other)
    }
}

impl Responder {
    /// Reads the files; `user` is who asks for them.
    pub(crate) fn new(written: &TlsSettings, user: &str) -> anyhow::Result<Self> {
        if written.name.is_some() {
            let problem = "tls.name is for peers; the names that a listener serves are tls.allow";
            return Err(Refusal::usage(format!("{user}: {problem}")));
        }
        let Identity {
            certificates,
            authorities,
            key,
        } = Identity::read(written, user)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider())
            .build()
            .map_err(|error| refused(user, error))?;
        let allow = written.allow.iter().map(|allowed| name(allowed, user));
        let guests = Guests {
            authority: verifier,
            allow: allow.collect::<Result<_, _>>()?,
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| refused(user, error))?
            .with_client_cert_verifier(Arc::new(guests))
            .with_single_cert(certificates.chain.clone(), key)
            .map_err(|error| unfit(written, user, error))?;
        // A ticket that nobody reads would turn the peer's close into RST (RFC 1122 §4.2.2.13),
        // and ready connections make resumption needless.
        config.send_tls13_tickets = 0;
        Ok(Self {
            certificates,
            config: Arc::new(config),
        })
    }

    /// What it shows and believes.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// A connection that has not shaken hands yet.
    pub(crate) fn connection(&self) -> io::Result<ServerConnection> {
        ServerConnection::new(self.config.clone()).map_err(io::Error::other)
    }
}

impl Identity {
    fn read(written: &TlsSettings, user: &str) -> anyhow::Result<Self> {
        let mut authorities = RootCertStore::empty();
        let trusted = certificates(&written.ca, user)?;
        for authority in &trusted {
            let added = authorities.add(authority.clone());
            added.map_err(|error| unusable(&written.ca, user, error))?;
        }
        let key = private_file::read(&written.key, KEY_LEN_MAX)
            .map_err(|error| unusable(&written.key, user, error))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        Ok(Self {
            certificates: Certificates {
                written: written.clone(),
                chain: certificates(&written.certificate, user)?,
                authorities: trusted,
            },
            authorities: authorities.into(),
            key: key.map_err(|error| unusable(&written.key, user, in_words(&error)))?,
        })
    }
}

fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => {
            "no private key in it, or one that a password protects".to_owned()
        }
        other => other.to_string(),
    }
}

fn certificates(path: &Path, user: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(unusable(path, user, "no certificate in it")),
        Err(error) => Err(unusable(path, user, error)),
    }
}

fn name(text: &str, user: &str) -> anyhow::Result<ServerName<'static>> {
    let name = ServerName::try_from(text.to_owned());
    name.map_err(|_| {
        Refusal::usage(format!(
            "{user}: {text:?} is no name for a certificate: want a host name or an IP address"
        ))
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(path: &Path, user: &str, error: impl Display) -> anyhow::Error {
    Refusal::usage(format!("{user}: {}: {error}", path.display()))
}

/// Of a certificate and a key, each of which is one.
fn unfit(written: &TlsSettings, user: &str, error: rustls::Error) -> anyhow::Error {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = written.certificate.display();
            unusable(
                &written.key,
                user,
                format!("it is not the key to {certificate}"),
            )
        }
        other => refused(user, other),
    }
}

fn refused(user: &str, error: impl Display) -> anyhow::Error {
    Refusal::usage(format!("{user}: tls: {error}"))
}
