// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers of the converter.

use super::{
    error::{ConvertError, ErrorCode},
    message::{CONNECT, HEADER_LEN, Message, Tlvs, body, message_len},
};

/// The TLV of a refusal (RFC 8803 §6.2.8).
const ERROR: u8 = 0x1E;

/// The converter's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The connection stands; relayed bytes follow.
    Accepted,
    /// Refusal: no connection is made.
    Refused {
        /// Why.
        code: ErrorCode,
        /// For [`ErrorCode::DestinationUnreachable`]: the ICMP code (RFC 8803 §6.2.8).
        detail: u8,
    },
}

impl Answer {
    /// A refusal without detail.
    #[must_use]
    pub fn refused(code: ErrorCode) -> Self {
        Self::Refused { code, detail: 0 }
    }

    /// The message.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut message = Message::new();
        if let Self::Refused { code, detail } = self {
            message.tlv(ERROR, &[code.code(), detail]);
        }
        message.finish()
    }

    /// How many more bytes are needed before [`Answer::parse`] can finish, given those read so
    /// far; 0 when the answer is whole. Reading exactly so much leaves the relayed bytes that
    /// follow in the socket, for splice.
    pub fn bytes_missing(input: &[u8]) -> Result<usize, ConvertError> {
        match input.len() {
            read @ 0..HEADER_LEN => Ok(HEADER_LEN - read),
            read => Ok(message_len(input)?.saturating_sub(read)),
        }
    }

    /// Reads an answer and says how long it was; `Ok(None)` while it is incomplete. TLVs other
    /// than Error (such as Extended TCP Header) are information that longhaul has no use for; Connect
    /// belongs to requests, and what has it is no answer.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        let mut answer = Self::Accepted;
        for tlv in Tlvs(body) {
            let (kind, value) = tlv?;
            // Only a request has it: somebody returns what was sent.
            if kind == CONNECT {
                return Err(ConvertError::Malformed(CONNECT));
            }
            if kind == ERROR {
                let code = *value.first().ok_or(ConvertError::Malformed(ERROR))?;
                let detail = value.get(1).copied().unwrap_or(0);
                answer = Self::Refused {
                    code: ErrorCode::from_code(code),
                    detail,
                };
            }
        }
        Ok(Some((answer, HEADER_LEN + body.len())))
    }
}

impl ConvertError {
    /// Returns the answer to a message with this error (RFC 8803 §6.2.8).
    #[must_use]
    pub fn answer(&self) -> Answer {
        Answer::refused(match self {
            Self::Version(_) => ErrorCode::UnsupportedVersion,
            Self::Unsupported(_) => ErrorCode::UnsupportedMessage,
            _ => ErrorCode::MalformedMessage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::request::tests::example;

    #[test]
    fn parses_what_it_encodes() {
        let unreachable = ErrorCode::DestinationUnreachable;
        let refused = Answer::Refused {
            code: unreachable,
            detail: 1,
        };
        assert_eq!(refused.encode(), [1, 2, 0x22, 0x63, 0x1E, 1, 97, 1]);
        assert_eq!(Answer::Accepted.encode(), [1, 1, 0x22, 0x63]);
        for answer in [
            refused,
            Answer::Accepted,
            Answer::refused(ErrorCode::Other(200)),
        ] {
            let bytes = answer.encode();
            assert_eq!(Answer::parse(&bytes), Ok(Some((answer, bytes.len()))));
        }
    }

    #[test]
    fn counts_missing_bytes_down_to_the_end() {
        let bytes = Answer::refused(ErrorCode::NotAuthorized).encode();
        let missing: Vec<_> = (0..=8)
            .map(|n| Answer::bytes_missing(&bytes[..n]).unwrap())
            .collect();
        assert_eq!(missing, [4, 3, 2, 1, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn rejects_an_echoed_request() {
        let answer = Answer::parse(&example().encode());
        assert_eq!(answer, Err(ConvertError::Malformed(CONNECT)));
    }
}
