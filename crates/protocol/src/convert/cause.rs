// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reason and place of a failure on a chain of relays, in a TLV that follows the Error TLV of a refusal.

use super::{
    answer::Answer,
    message::{Message, Tlvs, body},
};

/// Type of the private TLV with a [`Cause`]. Relays that do not know it still have the Error TLV.
const CAUSE_TLV: u8 = 0xC5;

/// Report of a relay about a failure. Its contents come from another host, so names are reduced to at
/// most [`Cause::NAME_LEN_MAX`] printable ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Code of the failure, in longhaul's numbering.
    pub code: u8,
    /// The relay that reports the failure; empty for the relay that answers.
    pub reported_by: String,
    /// The relay that could not be reached; empty for the destination.
    pub failed_at: String,
}

impl Cause {
    /// Maximum characters of a name. Longer names are cut.
    pub const NAME_LEN_MAX: usize = 64;

    /// Returns a cause. Names are cut, and each character that is not printable ASCII becomes `?`.
    #[must_use]
    pub fn new(code: u8, reported_by: &str, failed_at: &str) -> Self {
        Self {
            code,
            reported_by: printable(reported_by),
            failed_at: printable(failed_at),
        }
    }

    /// Encodes `answer`, with this cause as its last TLV.
    #[must_use]
    pub fn append_to(&self, answer: Answer) -> Vec<u8> {
        let mut message = Message(answer.encode());
        let encode_name = |name: &str| [&[name.len() as u8], name.as_bytes()].concat();
        let value = [
            &[self.code][..],
            &encode_name(&self.reported_by),
            &encode_name(&self.failed_at),
        ]
        .concat();
        message.tlv(CAUSE_TLV, &value);
        message.finish()
    }

    /// Finds the cause in a whole answer; `None` if it has no cause that can be parsed.
    #[must_use]
    pub fn find(answer: &[u8]) -> Option<Self> {
        let tlvs = Tlvs(body(answer).ok()??);
        let mut causes = tlvs.flatten().filter(|(kind, _)| *kind == CAUSE_TLV);
        Self::parse(causes.next()?.1)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (code, rest) = value.split_first()?;
        let (reported_by, rest) = split_name(rest)?;
        let (failed_at, _padding) = split_name(rest)?;
        Some(Self::new(*code, &reported_by, &failed_at))
    }
}

/// Splits a name with its length from the bytes after it.
fn split_name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    let rest = &rest[name.len()..];
    Some((String::from_utf8_lossy(name).into_owned(), rest))
}

fn printable(name: &str) -> String {
    let replace = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars()
        .take(Cause::NAME_LEN_MAX)
        .map(replace)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::ErrorCode;
    use proptest::prelude::*;

    const REFUSED: Answer = Answer::Refused {
        code: ErrorCode::ConnectionReset,
        detail: 0,
    };

    #[test]
    fn parses_what_it_encodes_and_old_relays_ignore_it() {
        for (reported_by, failed_at) in
            [("", ""), ("tokyo", ""), ("", "192.0.2.1:5124"), ("a", "b")]
        {
            let cause = Cause::new(7, reported_by, failed_at);
            let bytes = cause.append_to(REFUSED);
            assert_eq!(Cause::find(&bytes), Some(cause));
            assert_eq!(Answer::parse(&bytes), Ok(Some((REFUSED, bytes.len()))));
        }
        assert_eq!(Cause::find(&REFUSED.encode()), None);
    }

    #[test]
    fn bounds_and_escapes_names_of_other_relays() {
        let long = "x".repeat(1000);
        let cause = Cause::new(1, "\u{1b}[2J\r\nX: y\"", &long);
        assert_eq!(cause.reported_by, "?[2J??X:?y\"");
        assert_eq!(cause.failed_at.len(), Cause::NAME_LEN_MAX);
        assert_eq!(Cause::find(&cause.append_to(REFUSED)), Some(cause));
        // The same from a relay that does not cut names.
        let mut message = Message(REFUSED.encode());
        message.tlv(CAUSE_TLV, &[&[1, 0, 200][..], &[b'\n'; 200]].concat());
        let found = Cause::find(&message.finish()).unwrap();
        assert_eq!(found.failed_at, "?".repeat(Cause::NAME_LEN_MAX));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(cause) = Cause::parse(&value) {
                prop_assert!(cause.reported_by.len() <= Cause::NAME_LEN_MAX);
                prop_assert!(cause.failed_at.bytes().all(|b| b.is_ascii_graphic()));
            }
            let _ = Cause::find(&value);
        }
    }
}
