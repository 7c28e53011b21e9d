// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree of tests to instructions: tests become comparisons of header fields, joined by all, any and
//! not; comparisons become a load and a jump each.

use super::expression::{End, Expression, SCTP, Test};
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
/// Next header of a fragment (RFC 8200 §4.5), behind the fixed header of 40 bytes.
const FRAGMENT: u8 = 44;
const IP6_HEADER: u32 = 40;
/// Fragment offset in IPv4's flags and offset (RFC 791 §3.1).
const FRAGMENT_OFFSET: u32 = 0x1fff;

/// An instruction of classic BPF (`struct sock_filter`, include/uapi/linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip if so.
    pub jump_true: u8,
    /// Instructions to skip if not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// What stands before the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet, its VLAN tags taken off, as the kernel does before it looks at a filter.
    Ethernet,
    /// Nothing.
    None,
}

/// What is asked of a packet.
enum Condition {
    Compare(Compare),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

struct Compare {
    load: Load,
    mask: u32,
    relation: Relation,
    value: u32,
}

#[derive(Clone, Copy)]
enum Load {
    Word(u32),
    Half(u32),
    Byte(u32),
    /// Behind the IPv4 header that begins at the first, at the second.
    HalfBehind(u32, u32),
}

#[derive(Clone, Copy)]
enum Relation {
    Equal,
    AtLeast,
}

/// The whole program for a tree; without one, every packet is kept.
pub(super) fn assemble(
    expression: Option<&Expression>,
    layer: LinkLayer,
    snaplen: u32,
) -> Vec<Instruction> {
    let headers = Headers { layer };
    let mut code = Code::default();
    let (keep, skip) = (code.label(), code.label());
    if let Some(expression) = expression {
        code.emit(&headers.expression(expression), keep, skip);
    }
    code.place(keep);
    code.plain(code::RETURN, snaplen);
    code.place(skip);
    code.plain(code::RETURN, 0);
    code.link()
}

/// A foreign instruction that keeps no more than `snaplen` bytes.
pub(super) fn keeping_at_most(snaplen: u32, instruction: Instruction) -> Instruction {
    match instruction.code {
        code::RETURN => Instruction {
            operand: instruction.operand.min(snaplen),
            ..instruction
        },
        _ => instruction,
    }
}

/// Where header fields are.
struct Headers {
    layer: LinkLayer,
}

impl Headers {
    fn expression(&self, expression: &Expression) -> Condition {
        match expression {
            Expression::Test(test) => self.test(test),
            Expression::Not(inner) => Condition::Not(Box::new(self.expression(inner))),
            Expression::And(a, b) => Condition::All(vec![self.expression(a), self.expression(b)]),
            Expression::Or(a, b) => Condition::Any(vec![self.expression(a), self.expression(b)]),
        }
    }

    fn test(&self, test: &Test) -> Condition {
        match *test {
            Test::Network(version) => self.version(version),
            Test::Transport(protocol, version) => self.transport(protocol, version),
            Test::Net {
                end,
                address,
                prefix,
            } => self.net(end, address, prefix),
            Test::Port {
                end,
                protocol,
                first,
                last,
            } => {
                let any = [TCP, UDP, SCTP];
                let protocols = protocol.as_ref().map_or(&any[..], std::slice::from_ref);
                Condition::Any(vec![
                    self.port4(end, protocols, first..=last),
                    self.port6(end, protocols, first..=last),
                ])
            }
        }
    }

    /// Where the IP header begins.
    const fn network(&self) -> u32 {
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
            Version::V4 => Condition::All(vec![self.version(Version::V4), self.ip4(protocol)]),
            Version::V6 => Condition::All(vec![self.version(Version::V6), self.ip6(protocol)]),
        };
        Condition::Any(versions.iter().map(over).collect())
    }

    fn ip4(&self, protocol: u8) -> Condition {
        equal(Load::Byte(self.network() + 9), protocol.into())
    }

    /// Also behind a fragment header, as libpcap does.
    fn ip6(&self, protocol: u8) -> Condition {
        let next_header = Load::Byte(self.network() + 6);
        let behind = Load::Byte(self.network() + IP6_HEADER);
        Condition::Any(vec![
            equal(next_header, protocol.into()),
            Condition::All(vec![
                equal(next_header, FRAGMENT.into()),
                equal(behind, protocol.into()),
            ]),
        ])
    }

    fn net(&self, end: End, address: IpAddr, prefix: u8) -> Condition {
        let (version, source, words) = match address {
            IpAddr::V4(address) => (Version::V4, 12, vec![address.to_bits()]),
            IpAddr::V6(address) => (Version::V6, 8, words(address.to_bits())),
        };
        let length = 4 * words.len() as u32;
        let begin = self.network() + source;
        let matches = |offset: u32| Condition::All(within(begin + offset, &words, prefix));
        let found = at_end(end, length, matches);
        Condition::All(vec![self.version(version), found])
    }

    fn port4(&self, end: End, protocols: &[u8], ports: std::ops::RangeInclusive<u16>) -> Condition {
        let begin = self.network();
        let matches = |offset| in_range(Load::HalfBehind(begin, offset), &ports);
        Condition::All(vec![
            self.version(Version::V4),
            Condition::Any(
                protocols
                    .iter()
                    .map(|protocol| self.ip4(*protocol))
                    .collect(),
            ),
            masked(Load::Half(begin + 6), FRAGMENT_OFFSET, 0),
            at_end(end, 2, matches),
        ])
    }

    fn port6(&self, end: End, protocols: &[u8], ports: std::ops::RangeInclusive<u16>) -> Condition {
        let begin = self.network() + IP6_HEADER;
        let next_header = Load::Byte(self.network() + 6);
        let is = |protocol: &u8| equal(next_header, (*protocol).into());
        Condition::All(vec![
            self.version(Version::V6),
            Condition::Any(protocols.iter().map(is).collect()),
            at_end(end, 2, |offset| {
                in_range(Load::Half(begin + offset), &ports)
            }),
        ])
    }
}

/// The source's field is first, the destination's `length` bytes later.
fn at_end(end: End, length: u32, matches: impl Fn(u32) -> Condition) -> Condition {
    match end {
        End::Source => matches(0),
        End::Destination => matches(length),
        End::Either => Condition::Any(vec![matches(0), matches(length)]),
    }
}

fn in_range(load: Load, ports: &std::ops::RangeInclusive<u16>) -> Condition {
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

fn words(address: u128) -> Vec<u32> {
    (0..4).rev().map(|i| (address >> (32 * i)) as u32).collect()
}

/// The words of an address that lie within `prefix` bits.
fn within(begin: u32, words: &[u32], prefix: u8) -> Vec<Condition> {
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
    Condition::Compare(Compare {
        load,
        mask,
        relation,
        value,
    })
}

/// A place in the program that is not known yet.
type Label = usize;

enum Step {
    Plain(u16, u32),
    Jump {
        code: u16,
        operand: u32,
        so: Label,
        not: Label,
    },
}

/// A program whose jumps go to labels.
#[derive(Default)]
struct Code {
    steps: Vec<Step>,
    /// Before which step each label is.
    labels: Vec<usize>,
}

impl Code {
    fn label(&mut self) -> Label {
        self.labels.push(usize::MAX);
        self.labels.len() - 1
    }

    fn place(&mut self, label: Label) {
        self.labels[label] = self.steps.len();
    }

    fn plain(&mut self, code: u16, operand: u32) {
        self.steps.push(Step::Plain(code, operand));
    }

    /// Goes to `so` or to `not`.
    fn emit(&mut self, condition: &Condition, so: Label, not: Label) {
        match condition {
            Condition::Compare(compare) => self.compare(compare, so, not),
            Condition::Not(inner) => self.emit(inner, not, so),
            Condition::All(parts) => self.chain(parts, so, |code, part, next| {
                code.emit(part, next, not);
            }),
            Condition::Any(parts) => self.chain(parts, not, |code, part, next| {
                code.emit(part, so, next);
            }),
        }
    }

    /// Each part goes on to the next one, the last to `end`.
    fn chain(
        &mut self,
        parts: &[Condition],
        end: Label,
        mut emit: impl FnMut(&mut Self, &Condition, Label),
    ) {
        let Some((last, before)) = parts.split_last() else {
            // A network of no bits: every address of its version.
            return self.go(end);
        };
        for part in before {
            let next = self.label();
            emit(self, part, next);
            self.place(next);
        }
        emit(self, last, end);
    }

    fn go(&mut self, label: Label) {
        self.steps.push(Step::Jump {
            code: code::JUMP_AT_LEAST,
            operand: 0,
            so: label,
            not: label,
        });
    }

    fn compare(&mut self, compare: &Compare, so: Label, not: Label) {
        match compare.load {
            Load::Word(at) => self.plain(code::LOAD_WORD, at),
            Load::Half(at) => self.plain(code::LOAD_HALF, at),
            Load::Byte(at) => self.plain(code::LOAD_BYTE, at),
            Load::HalfBehind(header, at) => {
                self.plain(code::LOAD_X_HEADER_LEN, header);
                self.plain(code::LOAD_HALF_FROM_X, header + at);
            }
        }
        if compare.mask != u32::MAX {
            self.plain(code::AND, compare.mask);
        }
        self.steps.push(Step::Jump {
            code: match compare.relation {
                Relation::Equal => code::JUMP_EQUAL,
                Relation::AtLeast => code::JUMP_AT_LEAST,
            },
            operand: compare.value,
            so,
            not,
        });
    }

    /// Puts distances for labels. A conditional jump reaches 255 instructions; one that goes further
    /// becomes three, which can make others too short: again, until all fit.
    fn link(&self) -> Vec<Instruction> {
        let mut far = vec![false; self.steps.len()];
        loop {
            let places = self.places(&far);
            let reaches = |(i, step): (usize, &Step)| match step {
                Step::Jump { so, not, .. } if !far[i] => [so, not]
                    .iter()
                    .all(|label| places[self.labels[**label]] - places[i] - 1 <= 255),
                _ => true,
            };
            let short: Vec<bool> = self.steps.iter().enumerate().map(reaches).collect();
            if short.iter().all(|short| *short) {
                return self.instructions(&far, &places);
            }
            for (far, short) in far.iter_mut().zip(short) {
                *far |= !short;
            }
        }
    }

    /// Where each step begins.
    fn places(&self, far: &[bool]) -> Vec<usize> {
        let lengths = far.iter().map(|far| if *far { 3 } else { 1 });
        let begin = |place: &mut usize, length| {
            let here = *place;
            *place += length;
            Some(here)
        };
        lengths.scan(0, begin).collect()
    }

    fn instructions(&self, far: &[bool], places: &[usize]) -> Vec<Instruction> {
        let mut out = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            match *step {
                Step::Plain(code, operand) => out.push(instruction(code, [0, 0], operand)),
                Step::Jump {
                    code,
                    operand,
                    so,
                    not,
                } => {
                    let [so, not] =
                        [so, not].map(|label| places[self.labels[label]] - places[i] - 1);
                    if far[i] {
                        out.push(instruction(code, [0, 1], operand));
                        out.push(instruction(code::JUMP, [0, 0], so as u32 - 1));
                        out.push(instruction(code::JUMP, [0, 0], not as u32 - 2));
                    } else {
                        out.push(instruction(code, [so as u8, not as u8], operand));
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
