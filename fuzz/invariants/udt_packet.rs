// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the parser of UDT packets: a packet that is parsed and written reads back as the same packet. The written form is no
//! longer than the input, except for the word that libudt expects after a header. A loss report has no more runs than words.

use longhaul_udt::packet::{Body, HEADER_LEN, LossReport, Packet};

pub(crate) fn check(input: &[u8]) {
    let Some(packet) = Packet::read(input) else {
        return;
    };
    let mut written = Vec::new();
    packet.write(&mut written);
    assert_eq!(Packet::read(&written), Some(packet));
    assert!(written.len() <= input.len().max(HEADER_LEN + 4));
    match packet.body {
        Body::Data(_) => assert_eq!(written, input),
        Body::Nak(losses) => assert_report_reads_back(losses, input.len()),
        _ => {}
    }
}

fn assert_report_reads_back(losses: LossReport<'_>, len: usize) {
    let runs: Vec<_> = losses.runs().collect();
    assert!(runs.len() <= len / 4);
    let mut encoded = Vec::new();
    LossReport::encode(runs.iter().copied(), 2 * len, &mut encoded);
    assert_eq!(
        LossReport::from_encoded(&encoded)
            .runs()
            .collect::<Vec<_>>(),
        runs
    );
}
