// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions (RFC 9669) and the labels that jumps name.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Registers: `R0` is what a call returns, `R1` to `R5` are its arguments and lost by it, `R6` to
/// `R9` survive it.
#[derive(Debug, Clone, Copy)]
#[allow(
    dead_code,
    reason = "the whole set, not the part that one program uses"
)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
}

/// `struct bpf_insn` (include/uapi/linux/bpf.h).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// How much a load takes; the context's fields allow no other than their own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Width {
    U32,
    U64,
}

/// A line of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<'a> {
    Instruction(Instruction),
    /// A jump forward; conditional unless its code is that of `ja`.
    Jump(Instruction, &'static str),
    /// Where jumps of this name lead to.
    Label(&'static str),
    /// The address of a map, 64 bits wide: two instructions.
    Map(Register, BorrowedFd<'a>),
}

const fn instruction(code: u8, to: Register, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: to as u8 | from << 4,
        offset,
        immediate,
    }
}

// Opcodes of RFC 9669 §3: class, source and operation put together.
const MOV64_REGISTER: u8 = 0xbf;
const MOV64_IMMEDIATE: u8 = 0xb7;
const AND32_IMMEDIATE: u8 = 0x54;
const OR32_IMMEDIATE: u8 = 0x44;
const LOAD_U32: u8 = 0x61;
const LOAD_U64: u8 = 0x79;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source of a [`LOAD_IMMEDIATE_64`] whose immediate is a map's descriptor (BPF_PSEUDO_MAP_FD).
const MAP_DESCRIPTOR: u8 = 1;

/// `to = from`
pub(crate) fn copy(to: Register, from: Register) -> Line<'static> {
    Line::Instruction(instruction(MOV64_REGISTER, to, from as u8, 0, 0))
}

/// `to = value`
pub(crate) fn set(to: Register, value: i32) -> Line<'static> {
    Line::Instruction(instruction(MOV64_IMMEDIATE, to, 0, 0, value))
}

/// `to &= value`, 32 bits
pub(crate) fn and(to: Register, value: i32) -> Line<'static> {
    Line::Instruction(instruction(AND32_IMMEDIATE, to, 0, 0, value))
}

/// `to |= value`, 32 bits
pub(crate) fn or(to: Register, value: i32) -> Line<'static> {
    Line::Instruction(instruction(OR32_IMMEDIATE, to, 0, 0, value))
}

/// `to = *(base + offset)`
pub(crate) fn load(width: Width, to: Register, base: Register, offset: i16) -> Line<'static> {
    let code = match width {
        Width::U32 => LOAD_U32,
        Width::U64 => LOAD_U64,
    };
    Line::Instruction(instruction(code, to, base as u8, offset, 0))
}

/// `to = map`
pub(crate) fn map(to: Register, map: BorrowedFd<'_>) -> Line<'_> {
    Line::Map(to, map)
}

/// `r0 = helper(r1, …, r5)`
pub(crate) fn call(helper: i32) -> Line<'static> {
    Line::Instruction(instruction(CALL, Register::R0, 0, 0, helper))
}

/// Returns `r0`.
pub(crate) fn exit() -> Line<'static> {
    Line::Instruction(instruction(EXIT, Register::R0, 0, 0, 0))
}

/// Goes on at `label`.
pub(crate) fn jump(label: &'static str) -> Line<'static> {
    Line::Jump(instruction(JUMP, Register::R0, 0, 0, 0), label)
}

/// Goes on at `label` if the register has this value.
pub(crate) fn jump_if(register: Register, value: i32, label: &'static str) -> Line<'static> {
    let jump = instruction(JUMP_IF_EQUAL, register, 0, 0, value);
    Line::Jump(jump, label)
}

/// Goes on at `label` unless the register has this value.
pub(crate) fn jump_unless(register: Register, value: i32, label: &'static str) -> Line<'static> {
    let jump = instruction(JUMP_IF_NOT_EQUAL, register, 0, 0, value);
    Line::Jump(jump, label)
}

impl Line<'_> {
    fn slots(&self) -> usize {
        match self {
            Line::Instruction(_) | Line::Jump(..) => 1,
            Line::Label(_) => 0,
            Line::Map(..) => 2,
        }
    }
}

/// The instructions of a program.
///
/// # Panics
/// If a jump's label is missing, or stands before it: a mistake in the program's text.
pub(crate) fn assemble(lines: &[Line<'_>]) -> Vec<Instruction> {
    let mut code = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        match *line {
            Line::Instruction(instruction) => code.push(instruction),
            Line::Label(_) => {}
            Line::Jump(jump, label) => code.push(Instruction {
                offset: distance(&lines[at + 1..], label),
                ..jump
            }),
            Line::Map(to, map) => {
                let fd = map.as_raw_fd();
                code.push(instruction(LOAD_IMMEDIATE_64, to, MAP_DESCRIPTOR, 0, fd));
                code.push(instruction(0, Register::R0, 0, 0, 0));
            }
        }
    }
    code
}

/// Instructions between a jump and its label.
fn distance(behind: &[Line<'_>], label: &str) -> i16 {
    let target = |line: &Line<'_>| matches!(line, Line::Label(name) if *name == label);
    let lines = behind.iter().position(target).expect("a label behind it");
    let skipped: usize = behind[..lines].iter().map(Line::slots).sum();
    skipped.try_into().expect("a short program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn jumps_skip_what_is_between_them_and_their_label() {
        let stdin = std::io::stdin();
        let code = assemble(&[
            jump_if(Register::R2, 7, "out"),
            map(Register::R1, stdin.as_fd()),
            call(3),
            Line::Label("out"),
            exit(),
        ]);
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!(code.len(), 5);
        let jump = code[0];
        assert_eq!((jump.code, jump.registers, jump.offset), (0x15, 2, 3));
        assert_eq!((code[1].registers, code[1].immediate), (0x11, 0));
    }
}
