// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packets to capture: text as pcap-filter(7) has it to classic BPF, which a packet socket runs
//! before it copies anything.
//!
//! It is the part of that language that people use for TCP and UDP:
//!
//! ```text
//! expression = term { ("and" | "&&" | "or" | "||") term }      both bind alike, from the left
//! term       = ("not" | "!") term | "(" expression ")" | test
//! test       = "ip" | "ip6" | "tcp" | "udp" | "sctp" | "icmp" | "icmp6"
//!            | ["ip" | "ip6"] ["src" | "dst"] "host" ADDRESS
//!            | ["ip" | "ip6"] ["src" | "dst"] "net" ADDRESS/PREFIX
//!            | ["tcp" | "udp" | "sctp"] ["src" | "dst"] ("port" N | "portrange" N-M)
//!            | ["src" | "dst"] ADDRESS                         as host
//!            | ADDRESS | N | N-M                               as the test before it: port 80 or 443
//! ```
//!
//! It means what it means there, with two exceptions: `host` and `net` leave ARP out, and names of
//! hosts, networks and services are not looked up. Like there, later fragments have no ports and
//! IPv6 extension headers hide them.

mod expression;
#[cfg(test)]
mod interpreter;
mod program;

pub use expression::FilterError;
pub use program::{Instruction, LinkLayer};

/// Most instructions that the kernel takes (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// The program for `text`: it returns `snaplen`, bytes to keep, for packets that match, and 0 for all
/// others. An empty text is every packet.
pub fn compile(
    text: &str,
    layer: LinkLayer,
    snaplen: u32,
) -> Result<Vec<Instruction>, FilterError> {
    let expression = expression::parse(text)?;
    let program = program::assemble(expression.as_ref(), layer, snaplen);
    match program.len() {
        0..=INSTRUCTIONS_MAX => Ok(program),
        length => Err(FilterError::TooLong { length }),
    }
}

/// A program that another compiler made, as `tcpdump -ddd` prints it: the number of instructions,
/// then four decimal numbers each, by lines or commas. It keeps at most `snaplen` bytes.
pub fn read_listing(text: &str, snaplen: u32) -> Result<Vec<Instruction>, FilterError> {
    let mut lines = text.split(['\n', ',']).map(str::trim);
    let mut lines = lines.by_ref().filter(|line| !line.is_empty());
    let count: usize = lines.next().unwrap_or_default().parse().map_err(|_| {
        FilterError::listing("begins with the number of instructions, alone on its line")
    })?;
    let program = lines
        .map(|line| instruction(line, snaplen))
        .collect::<Result<Vec<_>, _>>()?;
    if program.len() != count || !(1..=INSTRUCTIONS_MAX).contains(&count) {
        let says = format!("says {count} instructions and has {}", program.len());
        return Err(FilterError::listing(&says));
    }
    Ok(program)
}

fn instruction(line: &str, snaplen: u32) -> Result<Instruction, FilterError> {
    let wrong = || FilterError::listing(&format!("has no instruction in {line:?}"));
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
    let mut next = || numbers.next().flatten().ok_or_else(wrong);
    let instruction = Instruction {
        code: next()?.try_into().map_err(|_| wrong())?,
        jump_true: next()?.try_into().map_err(|_| wrong())?,
        jump_false: next()?.try_into().map_err(|_| wrong())?,
        operand: next()?,
    };
    match numbers.next() {
        None => Ok(program::keeping_at_most(snaplen, instruction)),
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
