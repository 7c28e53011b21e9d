// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program as the kernel does: what our compiler and `tcpdump -ddd` emit of classic BPF.

use super::Instruction;

/// Bytes that the program keeps of `packet`; a load beyond the end keeps none.
pub(super) fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    let mut machine = Machine::default();
    let mut at = 0;
    loop {
        let instruction = &program[at];
        at += 1;
        match machine.step(instruction, packet) {
            Some(Next::Skip(count)) => at += count,
            Some(Next::Return(kept)) => return kept,
            None => return 0,
        }
    }
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
}

enum Next {
    Skip(usize),
    Return(u32),
}

impl Machine {
    fn step(&mut self, instruction: &Instruction, packet: &[u8]) -> Option<Next> {
        let k = instruction.operand;
        let jump = |so: bool| {
            let distance = if so {
                instruction.jump_true
            } else {
                instruction.jump_false
            };
            Some(Next::Skip(distance.into()))
        };
        match instruction.code {
            0x20 => self.a = load(packet, k, 4)?,
            0x28 => self.a = load(packet, k, 2)?,
            0x30 => self.a = load(packet, k, 1)?,
            0x40 => self.a = load(packet, self.x + k, 4)?,
            0x48 => self.a = load(packet, self.x + k, 2)?,
            0x50 => self.a = load(packet, self.x + k, 1)?,
            0xb1 => self.x = 4 * (load(packet, k, 1)? & 0xf),
            0x54 => self.a &= k,
            0x05 => return Some(Next::Skip(k as usize)),
            0x15 => return jump(self.a == k),
            0x25 => return jump(self.a > k),
            0x35 => return jump(self.a >= k),
            0x45 => return jump(self.a & k != 0),
            0x06 => return Some(Next::Return(k)),
            other => panic!("instruction {other:#x} is not needed by any filter"),
        }
        Some(Next::Skip(0))
    }
}

fn load(packet: &[u8], at: u32, length: usize) -> Option<u32> {
    let bytes = packet.get(at as usize..)?.get(..length)?;
    Some(
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
    )
}
