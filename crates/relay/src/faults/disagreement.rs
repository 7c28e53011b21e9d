// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two relays do not agree on, in words for the operator of either: the cause and the remedy.

use crate::{
    config::certificates::identity::{NotAllowed, listed},
    faults::fault::Fault,
};
use longhaul_protocol::{
    convert::{ErrorCode, Request},
    failure::Failure,
};
use longhaul_units::Time;
use rustls::{AlertDescription, CertificateError, Error as TlsError, OtherError};
use std::{fmt, io, net::SocketAddr, time::Duration};

/// Why a peer does not serve this relay.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// There is no connection to it.
    Unreachable(Failure),
    /// TLS does not come about, or ends with an alert.
    Tls(io::Error),
    /// It closed the connection, to which this relay came from the address, without an answer.
    Closed(Option<SocketAddr>),
    /// It has not answered within this time.
    Silent(Duration),
    /// Its answer begins with these bytes, which are not Convert.
    Foreign(Vec<u8>),
    /// It speaks another version of Convert.
    Version(u8),
    /// It refuses to read what longhaul sends.
    Refuses(ErrorCode),
    /// A relay before it in the chain says that it can't go on to it.
    Beyond(Fault),
}

impl Obstacle {
    /// What clients hear of it.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Unreachable(failure) => *failure,
            Self::Silent(_) => Failure::TimedOut,
            Self::Beyond(fault) => fault.failure,
            _ => Failure::PeerProtocol,
        }
    }

    /// What an error of the connection means.
    pub(crate) fn from_io(error: io::Error, from: Option<SocketAddr>) -> Self {
        match tls_error(&error) {
            Some(_) => Self::Tls(error),
            None => Self::Closed(from),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(Failure::Refused) => f.write_str(
                "connection refused: start its relay, or correct the port or the transport",
            ),
            // One that is near may be as quick as that.
            Self::Unreachable(Failure::Reset) => Self::Closed(None).fmt(f),
            Self::Unreachable(Failure::TimedOut) => {
                write!(
                    f,
                    "timed out: check its address and transport, and firewalls on the way"
                )
            }
            Self::Unreachable(failure) => failure.fmt(f),
            Self::Tls(error) => f.write_str(&TlsProblem::new(error).at_peer()),
            Self::Closed(from) => {
                f.write_str(
                    "it closes the connection without an answer: its allow_from may not name ",
                )?;
                match from.filter(|from| !from.ip().is_unspecified()) {
                    Some(from) => write!(f, "{}", from.ip().to_canonical())?,
                    None => f.write_str("this relay")?,
                }
                f.write_str(", or it is no Convert listener of longhaul")
            }
            Self::Silent(time) => write!(
                f,
                "it takes connections and has not answered for {}: is this address its Convert \
                 listener, and has it places left?",
                Time::from(*time)
            ),
            Self::Foreign(bytes) => f.write_str(foreign_answer(bytes)),
            Self::Version(version) => write!(
                f,
                "it speaks version {version} of Convert, and this relay version 1: run the same \
                 longhaul at both ends"
            ),
            Self::Beyond(fault) => write!(f, "{fault}: what these two say on stderr tells more"),
            Self::Refuses(ErrorCode::MissingCookie) => {
                f.write_str("it wants a cookie: it is no Convert listener of longhaul")
            }
            Self::Refuses(code) => write!(
                f,
                "it does not understand this relay (Convert error {}): it is an older longhaul, or \
                 another converter",
                code.code()
            ),
        }
    }
}

/// What answers in another protocol.
fn foreign_answer(bytes: &[u8]) -> &'static str {
    if is_tls(bytes) {
        return "it wants TLS: give this peer tls, or take it from its listener";
    }
    if matches!(Request::parse(bytes), Ok(Some(_))) {
        return "it returns what it is sent: correct the address, which is no Convert listener's";
    }
    match bytes.starts_with(b"HTTP") {
        true => "it answers in HTTP: correct the address, which is no Convert listener's",
        false => "its answer is not Convert (RFC 8803): correct the address",
    }
}

/// Content types of TLS records, 20 to 24, and the major version (RFC 8446 §5.1).
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=24, 3, ..])
}

/// Why a client is not let in.
#[derive(Debug)]
pub(crate) enum Stranger {
    /// `allow_from` lacks it.
    NotListed,
    /// `deny_from` has it.
    Denied,
    /// TLS does not come about.
    Tls(io::Error),
    /// It does not begin the handshake of TLS.
    NoHandshake,
    /// Its first bytes are not Convert.
    Foreign(Vec<u8>),
    /// It speaks another version of Convert.
    Version(u8),
    /// It does not begin with a header of the PROXY protocol.
    NoProxyHeader,
    /// Its password is wrong.
    WrongPassword,
}

impl Stranger {
    /// Which cause it is, for those who count causes.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::NotListed => 0,
            Self::Tls(_) => 1,
            Self::NoHandshake => 2,
            Self::Foreign(_) => 3,
            Self::Version(_) => 4,
            Self::NoProxyHeader => 5,
            Self::Denied => 6,
            Self::WrongPassword => 7,
        }
    }

    /// The words, unless it is nobody's mistake: whoever only connects and leaves.
    pub(crate) fn words(&self) -> Option<String> {
        Some(match self {
            Self::NotListed => {
                "allow_from does not name it: add it there if it may use this".into()
            }
            Self::Denied => "deny_from names it".into(),
            Self::Tls(error) => {
                tls_error(error)?;
                TlsProblem::new(error).at_client()
            }
            Self::NoHandshake => {
                "it begins no TLS, which this listener wants: give its peer tls, or \
                                  take it from this listener"
                    .into()
            }
            Self::Foreign(bytes) if is_tls(bytes) => {
                "it speaks TLS, which this listener does not: give this listener tls, or take it \
                 from its peer"
                    .into()
            }
            Self::Foreign(_) => {
                "it does not speak Convert (RFC 8803): only relays with this one as \
                                 peer connect here"
                    .into()
            }
            Self::Version(version) => format!(
                "it speaks version {version} of Convert, and this relay version 1: run the same \
                 longhaul at both ends"
            ),
            Self::NoProxyHeader => {
                "it sends no header of the PROXY protocol, which accept_proxy of \
                                    this listener wants"
                    .into()
            }
            Self::WrongPassword => {
                "its password is wrong; each further one of this address waits longer".into()
            }
        })
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// What is wrong between the two ends of TLS.
enum TlsProblem {
    /// The other side speaks none.
    NoTls,
    /// No version in common.
    NoTls13,
    NoCertificate,
    /// This side does not accept the other one's certificate.
    Theirs(Flaw),
    /// The other side does not accept this one's.
    Ours(Flaw),
    Ended,
    Other(String),
}

/// What is wrong with a certificate.
enum Flaw {
    Authority,
    Expired,
    NotYetValid,
    /// The names that it has.
    Name(String),
    Purpose,
    /// The names that it has, none of them in `allow`.
    NotAllowed(String),
    Other(String),
}

impl TlsProblem {
    fn new(error: &io::Error) -> Self {
        match tls_error(error) {
            None => Self::Ended,
            Some(TlsError::InvalidMessage(_) | TlsError::InappropriateMessage { .. }) => {
                Self::NoTls
            }
            Some(TlsError::PeerIncompatible(_)) => Self::NoTls13,
            Some(TlsError::NoCertificatesPresented) => Self::NoCertificate,
            Some(TlsError::InvalidCertificate(error)) => Self::Theirs(Flaw::new(error)),
            Some(TlsError::AlertReceived(alert)) => Self::alert(*alert),
            Some(error) => Self::Other(error.to_string()),
        }
    }

    /// RFC 8446 §6.2, as rustls uses it.
    fn alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        let nobody = String::new;
        match alert {
            A::UnknownCA | A::DecryptError => Self::Ours(Flaw::Authority),
            A::CertificateExpired => Self::Ours(Flaw::Expired),
            A::CertificateUnknown | A::AccessDenied => Self::Ours(Flaw::NotAllowed(nobody())),
            A::BadCertificate => Self::Ours(Flaw::Name(nobody())),
            A::UnsupportedCertificate => Self::Ours(Flaw::Purpose),
            A::CertificateRequired => Self::Other("it wants a certificate".into()),
            A::ProtocolVersion | A::HandshakeFailure => Self::NoTls13,
            A::UnexpectedMessage | A::DecodeError => Self::NoTls,
            other => Self::Other(format!("it sent the alert {other:?}")),
        }
    }

    /// For the relay that has the other one as its peer.
    fn at_peer(&self) -> String {
        match self {
            Self::NoTls => {
                "it does not speak TLS: take tls from this peer, or give its listener tls".into()
            }
            Self::NoTls13 => "it speaks no TLS 1.3: it is no Convert listener of longhaul".into(),
            Self::NoCertificate => "it shows no certificate".into(),
            Self::Theirs(flaw) => flaw.of_theirs("set tls.name of this peer to one of these"),
            Self::Ours(flaw) => flaw.of_ours(),
            Self::Ended => "it ended the TLS handshake".into(),
            Self::Other(error) => format!("TLS: {error}"),
        }
    }

    /// For the relay that the other one has as its peer.
    fn at_client(&self) -> String {
        match self {
            Self::NoTls => {
                "it does not speak TLS, which this listener wants: give its peer tls, or \
                            take it from this listener"
                    .into()
            }
            Self::NoTls13 => "it speaks no TLS 1.3: it is no longhaul relay".into(),
            Self::NoCertificate => {
                "it shows no certificate: give its peer tls with certificate and key".into()
            }
            Self::Theirs(flaw) => flaw.of_theirs("add one of these to allow"),
            Self::Ours(flaw) => flaw.of_ours(),
            Self::Ended => "it ended the TLS handshake".into(),
            Self::Other(error) => format!("TLS: {error}"),
        }
    }
}

impl Flaw {
    fn new(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            // Two authorities of the same name differ in their keys.
            E::UnknownIssuer | E::BadSignature => Self::Authority,
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::NotValidForName => Self::Name(String::new()),
            E::NotValidForNameContext { presented, .. } => Self::Name(listed(presented)),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::Purpose,
            E::Other(OtherError(error)) => match error.downcast_ref::<NotAllowed>() {
                Some(refused) => Self::NotAllowed(listed(&refused.names)),
                None => Self::Other(error.to_string()),
            },
            error => Self::Other(error.to_string()),
        }
    }

    /// `names` is what to do with the names of a certificate that has others.
    fn of_theirs(&self, names: &str) -> String {
        match self {
            Self::Authority => "its certificate is of another authority than ca here: make both \
                                relays' files with one authority"
                .into(),
            Self::Expired => "its certificate has expired: renew it there".into(),
            Self::NotYetValid => {
                "its certificate is not valid yet: set the clocks right, here and there".into()
            }
            Self::Name(has) => {
                format!("its certificate is for {has}, which is not its name: {names}")
            }
            Self::NotAllowed(has) => {
                format!("its certificate is for {has}, which allow does not name: {names}")
            }
            Self::Purpose => {
                "its certificate is not for relays, which are servers and clients".into()
            }
            Self::Other(error) => format!("its certificate is not accepted: {error}"),
        }
    }

    fn of_ours(&self) -> String {
        match self {
            Self::Authority => "its ca lacks the authority of this relay's certificate: make both \
                                relays' files with one authority"
                .into(),
            Self::Expired | Self::NotYetValid => {
                "it says that this relay's certificate has expired: \
                                                  renew it here, and set the clocks right"
                    .into()
            }
            Self::NotAllowed(_) => "its listener's allow does not name this relay's certificate: \
                                    add the name there"
                .into(),
            Self::Name(_) => "this relay's certificate does not have the name that it expects: \
                              correct tls.name of its peer"
                .into(),
            Self::Purpose => {
                "this relay's certificate is not for relays, which are servers and clients".into()
            }
            Self::Other(error) => format!("it does not accept this relay's certificate: {error}"),
        }
    }
}
