// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code generator of packet filters, from a tree of primitives to instructions. Primitives become comparisons of header
//! fields, joined by all, any and not. A comparison becomes a load and a jump.

use super::expression::{Direction, Expression, Primitive, SCTP};
use crate::ip::{TCP, UDP, Version};
use std::net::IpAddr;

/// Operation codes of classic BPF (include/uapi/linux/bpf_common.h).
pub(super) mod code {
    pub(in super::super) const LOAD_WORD: u16 = 0x20;
    pub(in super::super) const LOAD_HALF: u16 = 0x28;
    pub(in super::super) const LOAD_BYTE: u16 = 0x30;
    pub(in super::super) const LOAD_HALF_FROM_X: u16 = 0x48;
    pub(in super::super) const LOAD_X_HEADER_LEN: u16 = 0xb1;
    pub(in super::super) const AND: u16 = 0x54;
    pub(in super::super) const JUMP: u16 = 0x05;
    pub(in super::super) const JUMP_EQUAL: u16 = 0x15;
    pub(in super::super) const JUMP_AT_LEAST: u16 = 0x35;
    pub(in super::super) const RETURN: u16 = 0x06;
}

/// EtherTypes (IEEE 802 numbers).
const ETHERTYPE_IP: u32 = 0x0800;
const ETHERTYPE_IP6: u32 = 0x86dd;
const ETHERNET_HEADER: u32 = 14;
/// Next Header value of a fragment header (RFC 8200 §4.5), which follows the fixed header of 40 bytes.
const FRAGMENT: u8 = 44;
const IP6_HEADER: u32 = 40;
/// Bits of the fragment offset in the 16 bits of flags and offset of IPv4 (RFC 791 §3.1).
const FRAGMENT_OFFSET: u32 = 0x1fff;

/// An instruction of classic BPF (`struct sock_filter`, include/uapi/linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if the condition is true.
    pub jump_true: u8,
    /// Instructions to skip if the condition is false.
    pub jump_false: u8,
    /// Operand `k`: a constant, an offset or a jump distance.
    pub operand: u32,
}

/// Link-layer header before the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet without VLAN tags, which the kernel removes before it runs a filter.
    Ethernet,
    /// Packets that begin with the IP header.
    None,
}

/// A condition on header fields of a packet.
enum Condition {
    Compare(Comparison),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

/// A comparison of a header field, after a mask, with a constant.
struct Comparison {
    load: Load,
    mask: u32,
    relation: Relation,
    value: u32,
}

/// Header field to load, by its offset in the packet.
#[derive(Clone, Copy)]
enum Load {
    Word(u32),
    Half(u32),
    Byte(u32),
    /// 16 bits at `offset` after the IPv4 header that begins at `header`.
    HalfAfterIp4 {
        header: u32,
        offset: u32,
    },
}

#[derive(Clone, Copy)]
enum Relation {
    Equal,
    AtLeast,
}

/// Generates the whole program for a tree. Without a tree, the program captures every packet.
pub(super) fn assemble(
    expression: Option<&Expression>,
    layer: LinkLayer,
    snaplen: u32,
) -> Vec<Instruction> {
    let layout = HeaderLayout { layer };
    let mut assembler = Assembler::default();
    let (accept, reject) = (assembler.label(), assembler.label());
    if let Some(expression) = expression {
        assembler.emit(&layout.expression(expression), accept, reject);
    }
    assembler.bind(accept);
    assembler.statement(code::RETURN, snaplen);
    assembler.bind(reject);
    assembler.statement(code::RETURN, 0);
    assembler.link()
}

/// Limits the bytes that an instruction of another compiler captures to `snaplen`.
pub(super) fn limit_snaplen(snaplen: u32, instruction: Instruction) -> Instruction {
    match instruction.code {
        code::RETURN => Instruction {
            operand: instruction.operand.min(snaplen),
            ..instruction
        },
        _ => instruction,
    }
}

/// Offsets of header fields, and the conditions on them.
struct HeaderLayout {
    layer: LinkLayer,
}

impl HeaderLayout {
    fn expression(&self, expression: &Expression) -> Condition {
        match expression {
            Expression::Primitive(primitive) => self.primitive(primitive),
            Expression::Not(inner) => Condition::Not(Box::new(self.expression(inner))),
            Expression::And(a, b) => Condition::All(vec![self.expression(a), self.expression(b)]),
            Expression::Or(a, b) => Condition::Any(vec![self.expression(a), self.expression(b)]),
        }
    }

    fn primitive(&self, primitive: &Primitive) -> Condition {
        match *primitive {
            Primitive::Network(version) => self.version(version),
            Primitive::Transport(protocol, version) => self.transport(protocol, version),
            Primitive::Net {
                direction,
                address,
                prefix,
            } => self.net(direction, address, prefix),
            Primitive::Port {
                direction,
                protocol,
                first,
                last,
            } => {
                let any = [TCP, UDP, SCTP];
                let protocols = protocol.as_ref().map_or(&any[..], std::slice::from_ref);
                Condition::Any(vec![
                    self.port4(direction, protocols, first..=last),
                    self.port6(direction, protocols, first..=last),
                ])
            }
        }
    }

    /// Offset of the IP header.
    const fn ip_offset(&self) -> u32 {
        match self.layer {
            LinkLayer::Ethernet => ETHERNET_HEADER,
            LinkLayer::None => 0,
        }
    }

    fn version(&self, version: Version) -> Condition {
        let (ethertype, nibble) = match version {
            Version::V4 => (ETHERTYPE_IP, 0x40),
            Version::V6 => (ETHERTYPE_IP6, 0x60),
        };
        match self.layer {
            LinkLayer::Ethernet => equal(Load::Half(12), ethertype),
            LinkLayer::None => masked(Load::Byte(0), 0xf0, nibble),
        }
    }

    fn transport(&self, protocol: u8, version: Option<Version>) -> Condition {
        let both = [Version::V4, Version::V6];
        let versions = version.as_ref().map_or(&both[..], std::slice::from_ref);
        let over = |version: &Version| match version {
            Version::V4 => {
                Condition::All(vec![self.version(Version::V4), self.protocol4(protocol)])
            }
            Version::V6 => {
                Condition::All(vec![self.version(Version::V6), self.protocol6(protocol)])
            }
        };
        Condition::Any(versions.iter().map(over).collect())
    }

    fn protocol4(&self, protocol: u8) -> Condition {
        equal(Load::Byte(self.ip_offset() + 9), protocol.into())
    }

    /// Matches the protocol also after a fragment header, as libpcap does.
    fn protocol6(&self, protocol: u8) -> Condition {
        let next_header = Load::Byte(self.ip_offset() + 6);
        let after_fragment = Load::Byte(self.ip_offset() + IP6_HEADER);
        Condition::Any(vec![
            equal(next_header, protocol.into()),
            Condition::All(vec![
                equal(next_header, FRAGMENT.into()),
                equal(after_fragment, protocol.into()),
            ]),
        ])
    }

    fn net(&self, direction: Direction, address: IpAddr, prefix: u8) -> Condition {
        let (version, source, words) = match address {
            IpAddr::V4(address) => (Version::V4, 12, vec![address.to_bits()]),
            IpAddr::V6(address) => (Version::V6, 8, words(address.to_bits())),
        };
        let length = 4 * words.len() as u32;
        let begin = self.ip_offset() + source;
        let matches =
            |offset: u32| Condition::All(prefix_conditions(begin + offset, &words, prefix));
        let address = in_direction(direction, length, matches);
        Condition::All(vec![self.version(version), address])
    }

    fn port4(
        &self,
        direction: Direction,
        protocols: &[u8],
        ports: std::ops::RangeInclusive<u16>,
    ) -> Condition {
        let header = self.ip_offset();
        let matches = |offset| port_in_range(Load::HalfAfterIp4 { header, offset }, &ports);
        Condition::All(vec![
            self.version(Version::V4),
            Condition::Any(
                protocols
                    .iter()
                    .map(|protocol| self.protocol4(*protocol))
                    .collect(),
            ),
            masked(Load::Half(header + 6), FRAGMENT_OFFSET, 0),
            in_direction(direction, 2, matches),
        ])
    }

    fn port6(
        &self,
        direction: Direction,
        protocols: &[u8],
        ports: std::ops::RangeInclusive<u16>,
    ) -> Condition {
        let begin = self.ip_offset() + IP6_HEADER;
        let next_header = Load::Byte(self.ip_offset() + 6);
        let is = |protocol: &u8| equal(next_header, (*protocol).into());
        Condition::All(vec![
            self.version(Version::V6),
            Condition::Any(protocols.iter().map(is).collect()),
            in_direction(direction, 2, |offset| {
                port_in_range(Load::Half(begin + offset), &ports)
            }),
        ])
    }
}

/// Applies `matches` to the offset of the source's field, which is 0, or of the destination's, `length` bytes later,
/// or to both.
fn in_direction(
    direction: Direction,
    length: u32,
    matches: impl Fn(u32) -> Condition,
) -> Condition {
    match direction {
        Direction::Source => matches(0),
        Direction::Destination => matches(length),
        Direction::Either => Condition::Any(vec![matches(0), matches(length)]),
    }
}

fn port_in_range(load: Load, ports: &std::ops::RangeInclusive<u16>) -> Condition {
    let (first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
    if first == last {
        return equal(load, first);
    }
    let beyond = compare(load, u32::MAX, Relation::AtLeast, last + 1);
    Condition::All(vec![
        compare(load, u32::MAX, Relation::AtLeast, first),
        Condition::Not(Box::new(beyond)),
    ])
}

/// Splits an IPv6 address into words, the most significant first.
fn words(address: u128) -> Vec<u32> {
    (0..4).rev().map(|i| (address >> (32 * i)) as u32).collect()
}

/// Compares the words of an address at `begin` that lie within the first `prefix` bits.
fn prefix_conditions(begin: u32, words: &[u32], prefix: u8) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (i, word) in (0..).zip(words) {
        let bits = u32::from(prefix).saturating_sub(32 * i).min(32);
        if bits > 0 {
            let mask = u32::MAX << (32 - bits);
            conditions.push(masked(Load::Word(begin + 4 * i), mask, *word));
        }
    }
    conditions
}

fn equal(load: Load, value: u32) -> Condition {
    masked(load, u32::MAX, value)
}

fn masked(load: Load, mask: u32, value: u32) -> Condition {
    compare(load, mask, Relation::Equal, value)
}

fn compare(load: Load, mask: u32, relation: Relation, value: u32) -> Condition {
    Condition::Compare(Comparison {
        load,
        mask,
        relation,
        value,
    })
}

/// Index of a jump target that may not be bound to an operation yet.
type Label = usize;

/// An operation before its jump distances are known.
enum Operation {
    Statement(u16, u32),
    Jump {
        code: u16,
        operand: u32,
        if_true: Label,
        if_false: Label,
    },
}

/// Assembler for a program whose jumps go to labels.
#[derive(Default)]
struct Assembler {
    operations: Vec<Operation>,
    /// Index of the operation at each label.
    labels: Vec<usize>,
}

impl Assembler {
    /// Creates a label that is not bound yet.
    fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        self.labels.len() - 1
    }

    /// Binds a label to the next operation.
    fn bind(&mut self, label: Label) {
        self.labels[label] = self.operations.len();
    }

    fn statement(&mut self, code: u16, operand: u32) {
        self.operations.push(Operation::Statement(code, operand));
    }

    /// Emits operations that jump to `if_true` if the condition holds, else to `if_false`.
    fn emit(&mut self, condition: &Condition, if_true: Label, if_false: Label) {
        match condition {
            Condition::Compare(compare) => self.compare(compare, if_true, if_false),
            Condition::Not(inner) => self.emit(inner, if_false, if_true),
            Condition::All(parts) => self.chain(parts, if_true, |assembler, part, next| {
                assembler.emit(part, next, if_false);
            }),
            Condition::Any(parts) => self.chain(parts, if_false, |assembler, part, next| {
                assembler.emit(part, if_true, next);
            }),
        }
    }

    /// Emits all parts. Each part continues at the next one, the last part at `end`.
    fn chain(
        &mut self,
        parts: &[Condition],
        end: Label,
        mut emit: impl FnMut(&mut Self, &Condition, Label),
    ) {
        let Some((last, before)) = parts.split_last() else {
            // A prefix of 0 bits matches every address of its version.
            return self.jump(end);
        };
        for part in before {
            let next = self.label();
            emit(self, part, next);
            self.bind(next);
        }
        emit(self, last, end);
    }

    fn jump(&mut self, label: Label) {
        self.operations.push(Operation::Jump {
            code: code::JUMP_AT_LEAST,
            operand: 0,
            if_true: label,
            if_false: label,
        });
    }

    fn compare(&mut self, compare: &Comparison, if_true: Label, if_false: Label) {
        match compare.load {
            Load::Word(at) => self.statement(code::LOAD_WORD, at),
            Load::Half(at) => self.statement(code::LOAD_HALF, at),
            Load::Byte(at) => self.statement(code::LOAD_BYTE, at),
            Load::HalfAfterIp4 { header, offset } => {
                self.statement(code::LOAD_X_HEADER_LEN, header);
                self.statement(code::LOAD_HALF_FROM_X, header + offset);
            }
        }
        if compare.mask != u32::MAX {
            self.statement(code::AND, compare.mask);
        }
        self.operations.push(Operation::Jump {
            code: match compare.relation {
                Relation::Equal => code::JUMP_EQUAL,
                Relation::AtLeast => code::JUMP_AT_LEAST,
            },
            operand: compare.value,
            if_true,
            if_false,
        });
    }

    /// Replaces labels by jump distances. A conditional jump reaches 255 instructions. A longer jump becomes three
    /// instructions, which can put other targets out of reach, so this repeats until every jump reaches its targets.
    fn link(&self) -> Vec<Instruction> {
        let mut long = vec![false; self.operations.len()];
        loop {
            let offsets = self.offsets(&long);
            let reaches = |(i, operation): (usize, &Operation)| match operation {
                Operation::Jump {
                    if_true, if_false, ..
                } if !long[i] => [if_true, if_false]
                    .iter()
                    .all(|label| offsets[self.labels[**label]] - offsets[i] - 1 <= 255),
                _ => true,
            };
            let fits: Vec<bool> = self.operations.iter().enumerate().map(reaches).collect();
            if fits.iter().all(|fits| *fits) {
                return self.instructions(&long, &offsets);
            }
            for (long, fits) in long.iter_mut().zip(fits) {
                *long |= !fits;
            }
        }
    }

    /// Index of the first instruction of each operation.
    fn offsets(&self, long: &[bool]) -> Vec<usize> {
        let lengths = long.iter().map(|long| if *long { 3 } else { 1 });
        let begin = |next: &mut usize, length| {
            let offset = *next;
            *next += length;
            Some(offset)
        };
        lengths.scan(0, begin).collect()
    }

    fn instructions(&self, long: &[bool], offsets: &[usize]) -> Vec<Instruction> {
        let mut out = Vec::new();
        for (i, operation) in self.operations.iter().enumerate() {
            match *operation {
                Operation::Statement(code, operand) => {
                    out.push(instruction(code, [0, 0], operand));
                }
                Operation::Jump {
                    code,
                    operand,
                    if_true,
                    if_false,
                } => {
                    let [if_true, if_false] = [if_true, if_false]
                        .map(|label| offsets[self.labels[label]] - offsets[i] - 1);
                    if long[i] {
                        out.push(instruction(code, [0, 1], operand));
                        out.push(instruction(code::JUMP, [0, 0], if_true as u32 - 1));
                        out.push(instruction(code::JUMP, [0, 0], if_false as u32 - 2));
                    } else {
                        let jumps = [if_true as u8, if_false as u8];
                        out.push(instruction(code, jumps, operand));
                    }
                }
            }
        }
        out
    }
}

fn instruction(code: u16, jumps: [u8; 2], operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true: jumps[0],
        jump_false: jumps[1],
        operand,
    }
}
