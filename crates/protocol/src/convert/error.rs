// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection was not made, as RFC 8803 numbers it, and why bytes are no message.

/// RFC 8803 §6.2.8, table 3: why a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// The header's version is not 1.
    UnsupportedVersion,
    /// The message can't be read.
    MalformedMessage,
    /// A TLV that the converter does not know.
    UnsupportedMessage,
    /// The converter wants a cookie.
    MissingCookie,
    /// The client may not use this converter, or not for this destination.
    NotAuthorized,
    /// A TCP option that the converter does not know.
    UnsupportedTcpOption,
    /// The converter has no room for another connection.
    ResourceExceeded,
    /// The converter's network failed, or nobody answered.
    NetworkFailure,
    /// The destination answered with RST.
    ConnectionReset,
    /// ICMP said that the destination can't be reached.
    DestinationUnreachable,
    /// A code that the RFC does not list.
    Other(u8),
}

impl ErrorCode {
    const TABLE: [(Self, u8); 10] = [
        (Self::UnsupportedVersion, 0),
        (Self::MalformedMessage, 1),
        (Self::UnsupportedMessage, 2),
        (Self::MissingCookie, 3),
        (Self::NotAuthorized, 32),
        (Self::UnsupportedTcpOption, 33),
        (Self::ResourceExceeded, 64),
        (Self::NetworkFailure, 65),
        (Self::ConnectionReset, 96),
        (Self::DestinationUnreachable, 97),
    ];

    pub(super) fn from_code(code: u8) -> Self {
        let known = Self::TABLE.iter().find(|(_, c)| *c == code);
        known.map_or(Self::Other(code), |(error, _)| *error)
    }

    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Other(code) => code,
            known => Self::TABLE
                .iter()
                .find(|(e, _)| *e == known)
                .map_or(0, |(_, c)| *c),
        }
    }
}

/// Why bytes are not a Convert message that longhaul understands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The magic number is missing: the peer does not speak Convert.
    #[error("the peer does not speak TCP Convert (RFC 8803)")]
    Magic,
    /// A version other than 1.
    #[error("TCP Convert version {0}, not 1")]
    Version(u8),
    /// A length of zero, or one that runs past the message.
    #[error("TCP Convert message with a wrong length field")]
    Length,
    /// A TLV that must be understood and is not.
    #[error("TCP Convert TLV {0:#04x} is not supported")]
    Unsupported(u8),
    /// A TLV with an impossible value, or one too many of it.
    #[error("TCP Convert TLV {0:#04x} is malformed")]
    Malformed(u8),
    /// A request without Connect TLV.
    #[error("TCP Convert request without a Connect TLV")]
    NoConnect,
}
