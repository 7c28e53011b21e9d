// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named counters of a table. Reading one changes nothing in the kernel.

use super::{
    Family,
    message::{self, ACK, Message, TABLES, attributes, attributes_after},
};
use std::io;

/// `NFT_MSG_NEWOBJ` and `NFT_MSG_GETOBJ` (include/uapi/linux/netfilter/nf_tables.h).
const OBJECT: u16 = TABLES << 8 | 18;
const GET_OBJECT: u16 = TABLES << 8 | 19;
/// `NFT_OBJECT_COUNTER`.
const COUNTER: u32 = 1;

/// Returns the number of packets that the counter `name` of the table `table` has counted.
///
/// # Errors
///
/// `NotFound` if there is no such table or counter.
pub fn packets(family: Family, table: &str, name: &str) -> io::Result<u64> {
    const TABLE: u16 = 1;
    const NAME: u16 = 2;
    const TYPE: u16 = 3;
    let request = Message::new(GET_OBJECT, ACK, family.number(), 0)
        .text(TABLE, table)
        .text(NAME, name)
        .bytes(TYPE, &COUNTER.to_be_bytes());
    let mut found = None;
    message::exchange(&message::open()?, &request.finish(), |answer| {
        if answer.kind == OBJECT {
            found = packets_of(answer.body);
        }
    })?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Reads the packets of a counter's message.
fn packets_of(body: &[u8]) -> Option<u64> {
    const DATA: u16 = 4;
    const PACKETS: u16 = 2;
    let (_, data) = attributes(body).find(|(kind, _)| *kind == DATA)?;
    let (_, value) = attributes_after(0, data).find(|(kind, _)| *kind == PACKETS)?;
    value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{super::nft, *};
    use crate::netns::Netns;
    use longhaul_testprograms::skip;

    #[test]
    fn reads_packets_of_a_counter() {
        if !skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)") {
            return;
        }
        let name = format!("counter-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        let outcome = netns.run(|| {
            let none = packets(Family::Ip, "t", "c").unwrap_err().kind();
            assert_eq!(none, io::ErrorKind::NotFound);
            nft::load("table ip t { counter c { packets 7 bytes 500; }\n}\n")
                .map_err(io::Error::other)?;
            packets(Family::Ip, "t", "c")
        });
        Netns::delete(&name).unwrap();
        assert_eq!(outcome.unwrap(), 7);
    }
}
