// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet that is read and written again is the same packet, no longer than it was but for the word that libudt wants behind
//! a header; a loss report has no more runs than words.

use longhaul_udt::packet::{Body, HEADER, Losses, Packet};

pub(crate) fn check(input: &[u8]) {
    let Some(packet) = Packet::read(input) else {
        return;
    };
    let mut written = Vec::new();
    packet.write(&mut written);
    assert_eq!(Packet::read(&written), Some(packet));
    assert!(written.len() <= input.len().max(HEADER + 4));
    match packet.body {
        Body::Data(_) => assert_eq!(written, input),
        Body::Nak(losses) => report_reads_back(losses, input.len()),
        _ => {}
    }
}

fn report_reads_back(losses: Losses<'_>, len: usize) {
    let runs: Vec<_> = losses.runs().collect();
    assert!(runs.len() <= len / 4);
    let mut encoded = Vec::new();
    Losses::encode(runs.iter().copied(), 2 * len, &mut encoded);
    assert_eq!(Losses::of(&encoded).runs().collect::<Vec<_>>(), runs);
}
