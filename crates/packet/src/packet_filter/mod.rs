// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet filters: compiles the text of pcap-filter(7) to classic BPF, which a packet socket runs before it copies a
//! packet.
//!
//! The language is the part of pcap-filter(7) that is used for TCP and UDP:
//!
//! ```text
//! expression = term { ("and" | "&&" | "or" | "||") term }      equal precedence, from the left
//!
//! term       = ("not" | "!") term | "(" expression ")" | primitive
//!
//! primitive  = "ip" | "ip6" | "tcp" | "udp" | "sctp" | "icmp" | "icmp6"
//!
//!            | ["ip" | "ip6"] ["src" | "dst"] "host" ADDRESS
//!            | ["ip" | "ip6"] ["src" | "dst"] "net" ADDRESS/PREFIX
//!
//!            | ["tcp" | "udp" | "sctp"] ["src" | "dst"] ("port" N | "portrange" N-M)
//!            | ["src" | "dst"] ADDRESS                         as host
//!
//!            | ADDRESS | N | N-M            with the qualifiers of the primitive before it: port 80 or 443
//! ```
//!
//! The meaning is that of pcap-filter(7), with two exceptions: `host` and `net` do not match ARP, and names of hosts,
//! networks and services are not resolved. As in pcap-filter(7), later fragments have no ports, and `port` does not
//! match after IPv6 extension headers.

mod expression;
#[cfg(test)]
mod interpreter;
mod program;

pub use expression::FilterError;
pub use program::{Instruction, LinkLayer};

/// Most instructions of a program that the kernel accepts (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Compiles `text`. The program returns `snaplen`, the bytes to capture, for packets that match, and 0 for all others.
/// An empty text matches every packet.
///
/// # Errors
///
/// Fails if `text` is not in the language above, or the program has more than [`INSTRUCTIONS_MAX`] instructions.
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

/// Reads a program of another compiler as `tcpdump -ddd` prints it: the number of instructions, then four decimal
/// numbers for each, separated by newlines or commas. The program is changed to capture at most `snaplen` bytes of a
/// packet.
///
/// # Errors
///
/// Fails if `text` has another form or count, or has no instructions or more than [`INSTRUCTIONS_MAX`].
pub fn parse_listing(text: &str, snaplen: u32) -> Result<Vec<Instruction>, FilterError> {
    let mut lines = text.split(['\n', ',']).map(str::trim);
    let mut lines = lines.by_ref().filter(|line| !line.is_empty());
    let count: usize =
        lines.next().unwrap_or_default().parse().map_err(|_| {
            FilterError::listing("the first line is not the number of instructions")
        })?;
    let program = lines
        .map(|line| parse_instruction(line, snaplen))
        .collect::<Result<Vec<_>, _>>()?;
    if program.len() != count || !(1..=INSTRUCTIONS_MAX).contains(&count) {
        let reason = format!(
            "the first line announces {count} instructions, and {} follow; a program has 1 to \
             {INSTRUCTIONS_MAX}",
            program.len()
        );
        return Err(FilterError::listing(&reason));
    }
    Ok(program)
}

fn parse_instruction(line: &str, snaplen: u32) -> Result<Instruction, FilterError> {
    let invalid = || FilterError::listing(&format!("{line:?} is not an instruction"));
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
    let mut next = || numbers.next().flatten().ok_or_else(invalid);
    let instruction = Instruction {
        code: next()?.try_into().map_err(|_| invalid())?,
        jump_true: next()?.try_into().map_err(|_| invalid())?,
        jump_false: next()?.try_into().map_err(|_| invalid())?,
        operand: next()?,
    };
    match numbers.next() {
        None => Ok(program::limit_snaplen(snaplen, instruction)),
        Some(_) => Err(invalid()),
    }
}

#[cfg(test)]
mod tests;
