// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first message on a connection, whichever it is.

use super::{
    error::ConvertError,
    group::{JOIN, Join},
    message::{HEADER_LEN, Tlvs, body},
    request::Request,
};

/// The first message on a connection between relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstMessage {
    /// A connection to somewhere.
    Request(Request),
    /// A further connection for a request that was accepted before.
    Join(Join),
}

impl FirstMessage {
    /// Reads either and says how long it was; `Ok(None)` while it is incomplete.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, ConvertError> {
        let Some(body) = body(input)? else {
            return Ok(None);
        };
        let mut tlvs = Tlvs(body);
        let opening = match (tlvs.next(), tlvs.next()) {
            (Some(Ok((JOIN, value))), None) => {
                Self::Join(Join::parse(value).ok_or(ConvertError::Malformed(JOIN))?)
            }
            _ => Self::Request(Request::from_body(body)?),
        };
        Ok(Some((opening, HEADER_LEN + body.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{
        Answer, HOPS_MAX, Stripes, group::tests::stripes, request::tests::example,
    };
    use proptest::prelude::*;

    #[test]
    fn parses_a_join_as_a_message_of_its_own() {
        let Stripes { group, .. } = stripes();
        let join = Join { group, index: 3 };
        let mut bytes = join.encode();
        assert_eq!(bytes[..6], [1, 6, 0x22, 0x63, JOIN, 5]);
        assert_eq!(
            FirstMessage::parse(&bytes),
            Ok(Some((FirstMessage::Join(join), 24)))
        );
        // A relay that knows no groups.
        assert_eq!(Request::parse(&bytes), Err(ConvertError::Unsupported(JOIN)));
        bytes[22] = 0;
        assert_eq!(
            FirstMessage::parse(&bytes),
            Err(ConvertError::Malformed(JOIN))
        );
        let request = example().encode();
        let parsed = FirstMessage::parse(&request).unwrap().unwrap();
        assert_eq!(parsed, (FirstMessage::Request(example()), request.len()));
    }

    proptest! {
        #[test]
        fn no_input_panics(tail in proptest::collection::vec(any::<u8>(), 0..1100), words: u8) {
            let _ = (Request::parse(&tail), Answer::parse(&tail), Answer::bytes_missing(&tail));
            let mut shaped = vec![1, words, 0x22, 0x63];
            shaped.extend(&tail);
            let _ = (Answer::parse(&shaped), Answer::bytes_missing(&shaped));
            if let Ok(Some((request, len))) = Request::parse(&shaped) {
                prop_assert_eq!(len, usize::from(words) * 4);
                prop_assert!(request.hops.len() <= HOPS_MAX);
            }
        }
    }
}
