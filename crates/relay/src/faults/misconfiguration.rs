// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration mismatches between two relays, described for the operator of either: cause and
//! remedy.

use crate::{
    config::certificates::identity::{NotAllowed, format_names},
    faults::fault::Fault,
};
use longhaul_protocol::{
    convert::{ErrorCode, Request},
    failure::Failure,
};
use longhaul_units::Time;
use rustls::{AlertDescription, CertificateError, Error as TlsError, OtherError};
use std::{fmt, io, net::SocketAddr, time::Duration};

/// Error that makes a peer unusable for this relay.
#[derive(Debug)]
pub(crate) enum PeerError {
    /// Connecting failed.
    Unreachable(Failure),
    /// The TLS handshake failed, or an alert ended the connection.
    Tls(io::Error),
    /// The peer closed the connection without an answer. The address is this relay's end of it.
    Closed(Option<SocketAddr>),
    /// No answer within this time.
    NoAnswer(Duration),
    /// The answer is not Convert; it begins with these bytes.
    NotConvert(Vec<u8>),
    /// The answer has another version of Convert.
    Version(u8),
    /// The peer rejects the form of longhaul's message.
    Rejected(ErrorCode),
    /// An earlier relay of the chain reports that it can't reach the peer.
    NextHop(Fault),
}

impl PeerError {
    /// Failure reported to clients.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Unreachable(failure) => *failure,
            Self::NoAnswer(_) => Failure::TimedOut,
            Self::NextHop(fault) => fault.failure,
            _ => Failure::PeerProtocol,
        }
    }

    /// Classifies an I/O error of the connection; `from` is this relay's address.
    pub(crate) fn from_io(error: io::Error, from: Option<SocketAddr>) -> Self {
        match tls_error(&error) {
            Some(_) => Self::Tls(error),
            None => Self::Closed(from),
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(Failure::Refused) => f.write_str(
                "connection refused: start its relay, or correct the port or the transport",
            ),
            // A peer on a short path may reset before connect(2) returns.
            Self::Unreachable(Failure::Reset) => Self::Closed(None).fmt(f),
            Self::Unreachable(Failure::TimedOut) => {
                write!(
                    f,
                    "timed out: check its address and transport, and firewalls on the way"
                )
            }
            Self::Unreachable(failure) => failure.fmt(f),
            Self::Tls(error) => f.write_str(&TlsProblem::new(error).message_about_peer()),
            Self::Closed(from) => {
                f.write_str(
                    "it closes the connection without an answer: its allow_from may not name ",
                )?;
                match from.filter(|from| !from.ip().is_unspecified()) {
                    Some(from) => write!(f, "{}", from.ip().to_canonical())?,
                    None => f.write_str("this relay")?,
                }
                f.write_str(", or it is not a longhaul Convert listener")
            }
            Self::NoAnswer(time) => write!(
                f,
                "it accepts connections and has not answered for {}: check that this is the address of its \
                 Convert listener, and that it has connections left",
                Time::from(*time)
            ),
            Self::NotConvert(bytes) => f.write_str(describe_foreign_answer(bytes)),
            Self::Version(version) => write!(
                f,
                "it speaks version {version} of Convert, and this relay version 1: run the same \
                 longhaul at both ends"
            ),
            Self::NextHop(fault) => write!(f, "{fault}: see the logs of these two relays"),
            Self::Rejected(ErrorCode::MissingCookie) => {
                f.write_str("it requires a cookie: it is not a longhaul Convert listener")
            }
            Self::Rejected(code) => write!(
                f,
                "it does not understand this relay (Convert error {}): it is an older longhaul, or \
                 another converter",
                code.code()
            ),
        }
    }
}

/// Description of an answer that is not Convert.
fn describe_foreign_answer(bytes: &[u8]) -> &'static str {
    if is_tls(bytes) {
        return "it requires TLS: give this peer tls, or remove it from its listener";
    }
    if matches!(Request::parse(bytes), Ok(Some(_))) {
        return "it returns what it receives: correct the address, which is not a Convert listener's";
    }
    if bytes.starts_with(b"HTTP") {
        "it answers in HTTP: correct the address, which is not a Convert listener's"
    } else {
        "its answer is not Convert (RFC 8803): correct the address"
    }
}

/// Whether the bytes begin a TLS record: content type 20 to 24, major version 3 (RFC 8446 §5.1).
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [20..=24, 3, ..])
}

/// Reason for which a listener refuses a client.
#[derive(Debug)]
pub(crate) enum DenialReason {
    /// `allow_from` does not contain the client.
    NotInAllowFrom,
    /// `deny_from` contains the client.
    InDenyFrom,
    /// The TLS handshake failed.
    Tls(io::Error),
    /// The client did not begin a TLS handshake.
    NoTlsHandshake,
    /// The first bytes are not Convert.
    NotConvert(Vec<u8>),
    /// The request has another version of Convert.
    Version(u8),
    /// The connection does not begin with a PROXY protocol header.
    NoProxyHeader,
}

impl DenialReason {
    /// Number of the reason, for counters.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::NotInAllowFrom => 0,
            Self::Tls(_) => 1,
            Self::NoTlsHandshake => 2,
            Self::NotConvert(_) => 3,
            Self::Version(_) => 4,
            Self::NoProxyHeader => 5,
            Self::InDenyFrom => 6,
        }
    }

    /// Message for the operator. `None` if nothing is misconfigured: the client only connected and
    /// left.
    pub(crate) fn message(&self) -> Option<String> {
        Some(match self {
            Self::NotInAllowFrom => {
                "allow_from does not name it: add it there if it may use this".into()
            }
            Self::InDenyFrom => "deny_from names it".into(),
            Self::Tls(error) => {
                tls_error(error)?;
                TlsProblem::new(error).message_about_client()
            }
            Self::NoTlsHandshake => {
                "it begins no TLS handshake, which this listener requires: give its peer tls, or \
                                  remove it from this listener"
                    .into()
            }
            Self::NotConvert(bytes) if is_tls(bytes) => {
                "it speaks TLS, which this listener does not: give this listener tls, or take it \
                 from its peer"
                    .into()
            }
            Self::NotConvert(_) => {
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
                                    this listener requires"
                    .into()
            }
        })
    }
}

fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// Cause of a failed TLS handshake.
enum TlsProblem {
    /// The other side does not use TLS.
    NoTls,
    /// The two sides have no version in common.
    NoTls13,
    NoCertificate,
    /// This side rejects the certificate of the other.
    PeerCertificate(CertificateProblem),
    /// The other side rejects this side's certificate.
    OwnCertificate(CertificateProblem),
    Closed,
    Other(String),
}

/// Problem with a certificate.
enum CertificateProblem {
    Authority,
    Expired,
    NotYetValid,
    /// The certificate has other names: these.
    Name(String),
    Purpose,
    /// The certificate's names, none of them in `allow`.
    NotAllowed(String),
    Other(String),
}

impl TlsProblem {
    fn new(error: &io::Error) -> Self {
        match tls_error(error) {
            None => Self::Closed,
            Some(TlsError::InvalidMessage(_) | TlsError::InappropriateMessage { .. }) => {
                Self::NoTls
            }
            Some(TlsError::PeerIncompatible(_)) => Self::NoTls13,
            Some(TlsError::NoCertificatesPresented) => Self::NoCertificate,
            Some(TlsError::InvalidCertificate(error)) => {
                Self::PeerCertificate(CertificateProblem::new(error))
            }
            Some(TlsError::AlertReceived(alert)) => Self::from_alert(*alert),
            Some(error) => Self::Other(error.to_string()),
        }
    }

    /// Classifies a TLS alert (RFC 8446 §6.2), as rustls uses them.
    fn from_alert(alert: AlertDescription) -> Self {
        use AlertDescription as A;
        let no_names = String::new;
        match alert {
            A::UnknownCA | A::DecryptError => Self::OwnCertificate(CertificateProblem::Authority),
            A::CertificateExpired => Self::OwnCertificate(CertificateProblem::Expired),
            A::CertificateUnknown | A::AccessDenied => {
                Self::OwnCertificate(CertificateProblem::NotAllowed(no_names()))
            }
            A::BadCertificate => Self::OwnCertificate(CertificateProblem::Name(no_names())),
            A::UnsupportedCertificate => Self::OwnCertificate(CertificateProblem::Purpose),
            A::CertificateRequired => Self::Other("it requires a certificate".into()),
            A::ProtocolVersion | A::HandshakeFailure => Self::NoTls13,
            A::UnexpectedMessage | A::DecodeError => Self::NoTls,
            other => Self::Other(format!("it sent the alert {other:?}")),
        }
    }

    /// Message at the connecting relay, which has the other as its peer.
    fn message_about_peer(&self) -> String {
        match self {
            Self::NoTls => {
                "it does not speak TLS: remove tls from this peer, or give its listener tls".into()
            }
            Self::NoTls13 => {
                "it does not speak TLS 1.3: it is not a longhaul Convert listener".into()
            }
            Self::NoCertificate => "it shows no certificate".into(),
            Self::PeerCertificate(problem) => {
                problem.message_about_peer("set tls.name of this peer to one of these")
            }
            Self::OwnCertificate(problem) => problem.message_about_own(),
            Self::Closed => "it ended the TLS handshake".into(),
            Self::Other(error) => format!("TLS: {error}"),
        }
    }

    /// Message at the accepting relay, which the other has as its peer.
    fn message_about_client(&self) -> String {
        match self {
            Self::NoTls => {
                "it does not speak TLS, which this listener requires: give its peer tls, or \
                            remove it from this listener"
                    .into()
            }
            Self::NoTls13 => "it does not speak TLS 1.3: it is not a longhaul relay".into(),
            Self::NoCertificate => {
                "it shows no certificate: give its peer tls with certificate and key".into()
            }
            Self::PeerCertificate(problem) => {
                problem.message_about_peer("add one of these to allow")
            }
            Self::OwnCertificate(problem) => problem.message_about_own(),
            Self::Closed => "it ended the TLS handshake".into(),
            Self::Other(error) => format!("TLS: {error}"),
        }
    }
}

impl CertificateProblem {
    fn new(error: &CertificateError) -> Self {
        use CertificateError as E;
        match error {
            // Two authorities of the same name differ in their keys.
            E::UnknownIssuer | E::BadSignature => Self::Authority,
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::NotValidForName => Self::Name(String::new()),
            E::NotValidForNameContext { presented, .. } => Self::Name(format_names(presented)),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::Purpose,
            E::Other(OtherError(error)) => match error.downcast_ref::<NotAllowed>() {
                Some(refused) => Self::NotAllowed(format_names(&refused.names)),
                None => Self::Other(error.to_string()),
            },
            error => Self::Other(error.to_string()),
        }
    }

    /// Message about the other side's certificate. `names` is the remedy if its names are the
    /// problem.
    fn message_about_peer(&self, names: &str) -> String {
        match self {
            Self::Authority => "its certificate is from another authority than ca here: make both \
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

    fn message_about_own(&self) -> String {
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
