// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule that queues packets on a kernel with x_tables' NFQUEUE target, but without nf_tables' own `queue`
//! (CONFIG_NFT_QUEUE). nft cannot write such a rule; iptables-nft does (net/netfilter/nft_compat.c).

use super::{
    Family,
    message::{self, ACK, APPEND, CREATE, Message, TABLES},
};
use std::io;

/// `NFT_MSG_NEWRULE`.
const NEW_RULE: u16 = TABLES << 8 | 6;

/// Appends to `chain` of `table` a rule that sends every packet to the queue `number`, or accepts it if no
/// process reads the queue.
pub fn append_queue_rule(family: Family, table: &str, chain: &str, number: u16) -> io::Result<()> {
    const TABLE: u16 = 1;
    const CHAIN: u16 = 2;
    const EXPRESSIONS: u16 = 4;
    let rule = Message::new(NEW_RULE, CREATE | APPEND | ACK, family.number(), 0)
        .text(TABLE, table)
        .text(CHAIN, chain)
        .nested(EXPRESSIONS, |m| queue_expression(m, number));
    message::request(&message::open()?, &message::batch([rule]))
}

/// Adds the expression (`enum nft_expr_attributes`, `enum nft_target_attributes`).
fn queue_expression(message: Message, number: u16) -> Message {
    const ELEMENT: u16 = 1;
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    const REVISION: u16 = 2;
    const INFO: u16 = 3;
    message.nested(ELEMENT, |m| {
        m.text(NAME, "target").nested(DATA, |m| {
            m.text(NAME, "NFQUEUE")
                .bytes(REVISION, &3u32.to_be_bytes())
                .bytes(INFO, &queue_info(number))
        })
    })
}

/// Encodes `struct xt_NFQ_info_v3` of include/uapi/linux/netfilter/xt_NFQUEUE.h, in the host's byte order
/// and padded to 8 bytes (XT_ALIGN).
fn queue_info(number: u16) -> [u8; 8] {
    const BYPASS: u16 = 1;
    let mut info = [0; 8];
    info[0..2].copy_from_slice(&number.to_ne_bytes());
    info[2..4].copy_from_slice(&1u16.to_ne_bytes());
    info[4..6].copy_from_slice(&BYPASS.to_ne_bytes());
    info
}
