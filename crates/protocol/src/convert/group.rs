// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that carry one byte stream together: what a request offers, and how further ones join.

use super::message::Message;

/// Private TLV: the id of the group that this connection joins, and its number in it, zero-padded.
pub(super) const JOIN: u8 = 0xC4;

/// The most connections of one group.
pub const STRIPES_MAX: u8 = 16;

/// The name of a group of connections: random, so that nobody can guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(pub [u8; GroupId::LEN]);

impl GroupId {
    const LEN: usize = 16;

    /// The id and the byte behind it.
    fn parse_with(value: &[u8]) -> Option<(Self, u8)> {
        let id = value.get(..Self::LEN)?.try_into().ok()?;
        Some((Self(id), *value.get(Self::LEN)?))
    }

    pub(super) fn encode_with(self, byte: u8) -> Vec<u8> {
        [&self.0[..], &[byte]].concat()
    }
}

/// An offer to carry the stream over several connections, once that is worth it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// How the others will name the group.
    pub group: GroupId,
    /// Connections that the group may have, this one included; 2 to [`STRIPES_MAX`].
    pub count: u8,
    /// Whether each sender uses as many of them as it needs, instead of all.
    pub automatic: bool,
}

/// Bit of the number of connections: [`Stripes::automatic`].
const AUTOMATIC: u8 = 0x80;

impl Stripes {
    pub(super) fn encode(self) -> Vec<u8> {
        let flag = if self.automatic { AUTOMATIC } else { 0 };
        self.group.encode_with(self.count | flag)
    }

    /// Parses the fields. `None` if they are padding, or not a number of connections of this version: then the request
    /// has no group.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (group, byte) = GroupId::parse_with(value)?;
        let count = byte & !AUTOMATIC;
        (2..=STRIPES_MAX).contains(&count).then_some(Self {
            group,
            count,
            automatic: byte & AUTOMATIC != 0,
        })
    }
}

/// A further connection of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// Identifier of the group.
    pub group: GroupId,
    /// Its number in it, 1 to [`STRIPES_MAX`] − 1; the one that made the request is 0.
    pub index: u8,
}

impl Join {
    /// The message.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let mut message = Message::new();
        message.tlv(JOIN, &self.group.encode_with(self.index));
        message.finish()
    }

    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (group, index) = GroupId::parse_with(value)?;
        (1..STRIPES_MAX)
            .contains(&index)
            .then_some(Self { group, index })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::convert::{Request, request::tests::example};

    pub(in crate::convert) fn stripes() -> Stripes {
        Stripes {
            group: GroupId(*b"sixteen letters!"),
            count: 4,
            automatic: true,
        }
    }

    #[test]
    fn ignores_groups_of_one_or_too_many() {
        for (count, known) in [
            (0, false),
            (1, false),
            (2, true),
            (STRIPES_MAX, true),
            (STRIPES_MAX + 1, false),
        ] {
            let stripes = Some(Stripes { count, ..stripes() });
            let request = Request {
                stripes,
                ..example()
            };
            let parsed = Request::parse(&request.encode()).unwrap().unwrap().0;
            assert_eq!(parsed.stripes, stripes.filter(|_| known), "{count}");
        }
    }
}
