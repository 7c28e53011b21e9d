// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks capture filters: a compiled program ends on every path, and returns the snaplen or 0.

use longhaul_packet::packet_filter::{Instruction, LinkLayer, compile, parse_listing};

const SNAPLEN: u32 = 77;
/// Classic BPF (include/uapi/linux/bpf_common.h): class, unconditional jump, return.
const CLASS: u16 = 0x07;
const JUMP_CLASS: u16 = 0x05;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for layer in [LinkLayer::Ethernet, LinkLayer::None] {
        match compile(text, layer, SNAPLEN) {
            Ok(program) => check_jumps(&program),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
    // The kernel verifies a foreign listing. None of its return values exceeds the bound.
    if let Ok(program) = parse_listing(text, SNAPLEN) {
        let answers = program.iter().filter(|i| i.code == RETURN);
        assert!(answers.into_iter().all(|i| i.operand <= SNAPLEN));
    }
}

/// Checks that jumps go forward only, and stay inside the program.
fn check_jumps(program: &[Instruction]) {
    for (at, instruction) in program.iter().enumerate() {
        let furthest = match instruction.code {
            RETURN => {
                assert!([0, SNAPLEN].contains(&instruction.operand));
                continue;
            }
            JUMP => instruction.operand as usize,
            code if code & CLASS == JUMP_CLASS => {
                usize::from(instruction.jump_true.max(instruction.jump_false))
            }
            _ => 0,
        };
        assert!(at + 1 + furthest < program.len(), "{program:?}");
    }
}
