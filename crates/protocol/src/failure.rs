// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection was not made, and how each protocol says it.

use crate::{
    convert::{Answer, ErrorCode},
    socks5::Reply,
};
use hyper::StatusCode;
use rustix::io::Errno;
use std::io;

/// Why a client's connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// RST in answer to the SYN.
    #[error("connection refused")]
    Refused,
    /// No route, or ICMP says so.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// ICMP, or no answer to ARP.
    #[error("host unreachable")]
    HostUnreachable,
    /// No answer in time.
    #[error("timed out")]
    TimedOut,
    /// The resolver does not know the name.
    #[error("no such host")]
    NameNotFound,
    /// No name server can say whether there is such a name.
    #[error("the name servers failed")]
    NameServers,
    /// Rules forbid it.
    #[error("not allowed")]
    NotAllowed,
    /// Descriptors, ports or memory have run out.
    #[error("out of resources")]
    Exhausted,
    /// The request came round to a relay that it had passed.
    #[error("relay loop")]
    Loop,
    /// The peer's answer is not Convert.
    #[error("protocol error")]
    PeerProtocol,
    /// The client's request is malformed or not supported.
    #[error("bad request")]
    BadRequest,
    /// The client did not finish its request in time.
    #[error("handshake timed out")]
    HandshakeTimeout,
    /// The client left before its request was whole.
    #[error("client disconnected")]
    ClientGone,
    /// RST right behind the handshake.
    #[error("connection reset")]
    Reset,
    /// ICMP: a router or firewall on the way forbids it.
    #[error("administratively prohibited")]
    Prohibited,
    /// Anything else.
    #[error("failed")]
    Other,
}

impl Failure {
    /// All causes, in the order of their discriminants.
    pub const ALL: [Self; 16] = [
        Self::Refused,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::TimedOut,
        Self::NameNotFound,
        Self::NameServers,
        Self::NotAllowed,
        Self::Exhausted,
        Self::Loop,
        Self::PeerProtocol,
        Self::BadRequest,
        Self::HandshakeTimeout,
        Self::ClientGone,
        Self::Reset,
        Self::Prohibited,
        Self::Other,
    ];

    /// Classifies an error of socket(2), bind(2) or connect(2).
    pub fn from_connect(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::CONNRESET) => Self::Reset,
            Some(Errno::NETUNREACH | Errno::NETDOWN) => Self::NetworkUnreachable,
            Some(Errno::HOSTUNREACH | Errno::HOSTDOWN) => Self::HostUnreachable,
            Some(Errno::TIMEDOUT) => Self::TimedOut,
            Some(Errno::ACCESS) => Self::Prohibited,
            Some(Errno::PERM) => Self::NotAllowed,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Self::Exhausted,
            Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Self::Exhausted,
            _ => Self::Other,
        }
    }

    /// RFC 1928 §6.
    pub fn socks5(self) -> Reply {
        match self {
            Self::Refused | Self::Reset => Reply::ConnectionRefused,
            Self::NetworkUnreachable => Reply::NetworkUnreachable,
            Self::HostUnreachable | Self::TimedOut | Self::NameNotFound | Self::NameServers => {
                Reply::HostUnreachable
            }
            Self::NotAllowed | Self::Prohibited => Reply::NotAllowed,
            Self::Loop => Reply::TtlExpired,
            _ => Reply::GeneralFailure,
        }
    }

    /// RFC 9110 §15.6, and 508 from RFC 5842.
    pub fn http(self) -> StatusCode {
        match self {
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::NotAllowed | Self::Prohibited => StatusCode::FORBIDDEN,
            Self::Exhausted => StatusCode::SERVICE_UNAVAILABLE,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the answer in Convert (RFC 8803 §6.2.8). Unreachable destinations carry the code of the ICMP message
    /// (RFC 792, RFC 1122 §3.2.2.1) for the same case. The protocol has no codes for loops, timeouts and failed name
    /// servers: a [`Cause`](crate::convert::Cause) reports these.
    pub fn convert(self) -> Answer {
        let unreachable = |detail| Answer::Refused {
            code: ErrorCode::DestinationUnreachable,
            detail,
        };
        match self {
            Self::Refused | Self::Reset => Answer::refused(ErrorCode::ConnectionReset),
            Self::NetworkUnreachable => unreachable(ICMP_NET_UNREACHABLE),
            Self::HostUnreachable => unreachable(ICMP_HOST_UNREACHABLE),
            Self::NameNotFound | Self::NameServers => unreachable(ICMP_HOST_UNKNOWN),
            Self::Prohibited => unreachable(ICMP_PROHIBITED),
            Self::NotAllowed => Answer::refused(ErrorCode::NotAuthorized),
            Self::Exhausted => Answer::refused(ErrorCode::ResourceExceeded),
            Self::BadRequest => Answer::refused(ErrorCode::MalformedMessage),
            _ => Answer::refused(ErrorCode::NetworkFailure),
        }
    }

    /// Converts a peer's refusal.
    pub fn from_convert(code: ErrorCode, detail: u8) -> Self {
        match (code, detail) {
            (ErrorCode::ConnectionReset, _) => Self::Refused,
            (ErrorCode::DestinationUnreachable, ICMP_NET_UNREACHABLE) => Self::NetworkUnreachable,
            (ErrorCode::DestinationUnreachable, ICMP_HOST_UNKNOWN) => Self::NameNotFound,
            (ErrorCode::DestinationUnreachable, ICMP_PROHIBITED) => Self::Prohibited,
            (ErrorCode::DestinationUnreachable, _) => Self::HostUnreachable,
            (ErrorCode::NotAuthorized | ErrorCode::MissingCookie, _) => Self::NotAllowed,
            (ErrorCode::ResourceExceeded, _) => Self::Exhausted,
            (ErrorCode::NetworkFailure, _) => Self::TimedOut,
            _ => Self::PeerProtocol,
        }
    }
}

const ICMP_NET_UNREACHABLE: u8 = 0;
const ICMP_HOST_UNREACHABLE: u8 = 1;
const ICMP_HOST_UNKNOWN: u8 = 7;
/// Communication administratively prohibited (RFC 1812 §5.2.7.1).
const ICMP_PROHIBITED: u8 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_failure_through_a_peer() {
        use Failure::*;
        for failure in [
            Refused,
            NetworkUnreachable,
            HostUnreachable,
            TimedOut,
            NameNotFound,
            NotAllowed,
            Exhausted,
            Prohibited,
        ] {
            let Answer::Refused { code, detail } = failure.convert() else {
                panic!("{failure} is no refusal");
            };
            assert_eq!(Failure::from_convert(code, detail), failure);
        }
    }

    #[test]
    fn the_table_is_in_discriminant_order() {
        for (index, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, index);
        }
    }
}
