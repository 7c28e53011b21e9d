// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interpreter for the instructions of classic BPF that the compiler here and `tcpdump -ddd` emit.

use super::Instruction;

/// Returns the bytes that `program` captures of `packet`; 0 after a load beyond its end, as in the kernel.
pub(super) fn run(program: &[Instruction], packet: &[u8]) -> u32 {
    let mut machine = Machine::default();
    let mut at = 0;
    loop {
        let instruction = &program[at];
        at += 1;
        match machine.step(instruction, packet) {
            Some(Outcome::Skip(count)) => at += count,
            Some(Outcome::Return(snaplen)) => return snaplen,
            None => return 0,
        }
    }
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
}

enum Outcome {
    Skip(usize),
    Return(u32),
}

impl Machine {
    fn step(&mut self, instruction: &Instruction, packet: &[u8]) -> Option<Outcome> {
        let k = instruction.operand;
        let jump = |condition: bool| {
            let distance = if condition {
                instruction.jump_true
            } else {
                instruction.jump_false
            };
            Some(Outcome::Skip(distance.into()))
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
            0x05 => return Some(Outcome::Skip(k as usize)),
            0x15 => return jump(self.a == k),
            0x25 => return jump(self.a > k),
            0x35 => return jump(self.a >= k),
            0x45 => return jump(self.a & k != 0),
            0x06 => return Some(Outcome::Return(k)),
            other => panic!("instruction {other:#x} is not needed by any filter"),
        }
        Some(Outcome::Skip(0))
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
