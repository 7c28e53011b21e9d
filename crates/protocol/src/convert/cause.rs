// SPDX-License-Identifier: MIT OR Apache-2.0
//! Place and reason of a failure on a chain of relays. It follows the Error TLV of a refusal.

use super::{
    answer::Answer,
    message::{Message, Tlvs, body},
};

/// Private TLV of an answer: a [`Cause`]. Relays that do not know it have the Error TLV.
const CAUSE: u8 = 0xC5;

/// Report of a relay about a failure. Its contents come from another host: names have at most
/// [`Cause::NAME_LEN_MAX`] printable characters of ASCII, whatever was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Code of the failure, in longhaul's numbering.
    pub code: u8,
    /// The relay that says so; empty is the one that answers.
    pub by: String,
    /// The relay that could not be gone on to; empty: the destination.
    pub at: String,
}

impl Cause {
    /// The most characters of a name. Longer ones are cut.
    pub const NAME_LEN_MAX: usize = 64;

    /// Names of relays as they are sent and taken: one that has nothing printable is `?`.
    #[must_use]
    pub fn new(code: u8, by: &str, at: &str) -> Self {
        let (by, at) = (printable(by), printable(at));
        Self { code, by, at }
    }

    /// The answer with this behind it.
    #[must_use]
    pub fn explain(&self, answer: Answer) -> Vec<u8> {
        let mut message = Message(answer.encode());
        let name = |name: &str| [&[name.len() as u8], name.as_bytes()].concat();
        let value = [&[self.code][..], &name(&self.by), &name(&self.at)].concat();
        message.tlv(CAUSE, &value);
        message.finish()
    }

    /// Of a whole answer; `None` if it has none, or one that can't be read.
    #[must_use]
    pub fn find(answer: &[u8]) -> Option<Self> {
        let tlvs = Tlvs(body(answer).ok()??);
        let mut causes = tlvs.flatten().filter(|(kind, _)| *kind == CAUSE);
        Self::parse(causes.next()?.1)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (code, rest) = value.split_first()?;
        let (by, rest) = name(rest)?;
        let (at, _padding) = name(rest)?;
        Some(Self::new(*code, &by, &at))
    }
}

/// A name and what is behind it.
fn name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let name = rest.get(..usize::from(*len))?;
    let rest = &rest[name.len()..];
    Some((String::from_utf8_lossy(name).into_owned(), rest))
}

fn printable(name: &str) -> String {
    let shown = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    name.chars().take(Cause::NAME_LEN_MAX).map(shown).collect()
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
        for (by, at) in [("", ""), ("tokyo", ""), ("", "192.0.2.1:5124"), ("a", "b")] {
            let cause = Cause::new(7, by, at);
            let bytes = cause.explain(REFUSED);
            assert_eq!(Cause::find(&bytes), Some(cause));
            assert_eq!(Answer::parse(&bytes), Ok(Some((REFUSED, bytes.len()))));
        }
        assert_eq!(Cause::find(&REFUSED.encode()), None);
    }

    #[test]
    fn bounds_and_escapes_names_of_other_relays() {
        let long = "x".repeat(1000);
        let cause = Cause::new(1, "\u{1b}[2J\r\nX: y\"", &long);
        assert_eq!(cause.by, "?[2J??X:?y\"");
        assert_eq!(cause.at.len(), Cause::NAME_LEN_MAX);
        assert_eq!(Cause::find(&cause.explain(REFUSED)), Some(cause));
        // The same from one who does not cut.
        let mut message = Message(REFUSED.encode());
        message.tlv(CAUSE, &[&[1, 0, 200][..], &[b'\n'; 200]].concat());
        let found = Cause::find(&message.finish()).unwrap();
        assert_eq!(found.at, "?".repeat(Cause::NAME_LEN_MAX));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some(cause) = Cause::parse(&value) {
                prop_assert!(cause.by.len() <= Cause::NAME_LEN_MAX);
                prop_assert!(cause.at.bytes().all(|b| b.is_ascii_graphic()));
            }
            let _ = Cause::find(&value);
        }
    }
}
