// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters of captures: whatever text is taken, the program ends whichever way its jumps go, and keeps
//! as much as it was told to, or nothing.

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
            Ok(program) => ends(&program),
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        }
    }
    // A foreign listing is the kernel's to judge; of its answers none is above the bound.
    if let Ok(program) = parse_listing(text, SNAPLEN) {
        let answers = program.iter().filter(|i| i.code == RETURN);
        assert!(answers.into_iter().all(|i| i.operand <= SNAPLEN));
    }
}

/// Jumps go forward only, and stay inside.
fn ends(program: &[Instruction]) {
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
