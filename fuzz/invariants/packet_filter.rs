// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks programs of capture filters: none of their return values exceeds the snaplen.

use longhaul_packet::packet_filter::parse_listing;

const SNAPLEN: u32 = 77;
/// Classic BPF (include/uapi/linux/bpf_common.h).
const RETURN: u16 = 0x06;

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match parse_listing(text, SNAPLEN) {
        Ok(program) => {
            let mut answers = program.iter().filter(|i| i.code == RETURN);
            assert!(answers.all(|i| i.operand <= SNAPLEN));
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}
