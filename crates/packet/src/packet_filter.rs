// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet filters: programs of classic BPF, which a packet socket runs before it copies a packet. libpcap compiles
//! them; `tcpdump -ddd` prints them.

/// Most instructions of a program that the kernel accepts (`BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Code of the instruction that ends a program (`BPF_RET | BPF_K`, include/uapi/linux/bpf_common.h). Its operand is the
/// number of bytes to capture.
const RETURN: u16 = 0x06;

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

/// Reason why a text is not a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the output of `tcpdump -ddd EXPRESSION`, which is given as text, not as a file: {0}")]
pub struct ListingError(String);

/// Returns the program that captures `snaplen` bytes of every packet.
pub fn accept_all(snaplen: u32) -> Vec<Instruction> {
    vec![Instruction {
        code: RETURN,
        jump_true: 0,
        jump_false: 0,
        operand: snaplen,
    }]
}

/// Reads a program as `tcpdump -ddd` prints it: the number of instructions, then four decimal numbers for each,
/// separated by newlines or commas. The program is changed to capture at most `snaplen` bytes of a packet.
///
/// # Errors
///
/// Fails if `text` has another form or count, or has no instructions or more than [`INSTRUCTIONS_MAX`].
pub fn parse_listing(text: &str, snaplen: u32) -> Result<Vec<Instruction>, ListingError> {
    let mut lines = text.split(['\n', ',']).map(str::trim);
    let mut lines = lines.by_ref().filter(|line| !line.is_empty());
    let count: usize =
        lines.next().unwrap_or_default().parse().map_err(|_| {
            ListingError("the first line is not the number of instructions".to_owned())
        })?;
    let program = lines
        .map(|line| parse_instruction(line, snaplen))
        .collect::<Result<Vec<_>, _>>()?;
    if program.len() != count || !(1..=INSTRUCTIONS_MAX).contains(&count) {
        return Err(ListingError(format!(
            "the first line announces {count} instructions, and {} follow; a program has 1 to \
             {INSTRUCTIONS_MAX}",
            program.len()
        )));
    }
    Ok(program)
}

fn parse_instruction(line: &str, snaplen: u32) -> Result<Instruction, ListingError> {
    let invalid = || ListingError(format!("{line:?} is not an instruction"));
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>().ok());
    let mut next = || numbers.next().flatten().ok_or_else(invalid);
    let instruction = Instruction {
        code: next()?.try_into().map_err(|_| invalid())?,
        jump_true: next()?.try_into().map_err(|_| invalid())?,
        jump_false: next()?.try_into().map_err(|_| invalid())?,
        operand: next()?,
    };
    match numbers.next() {
        None => Ok(limit_snaplen(snaplen, instruction)),
        Some(_) => Err(invalid()),
    }
}

fn limit_snaplen(snaplen: u32, instruction: Instruction) -> Instruction {
    if instruction.code == RETURN {
        let operand = instruction.operand.min(snaplen);
        Instruction {
            operand,
            ..instruction
        }
    } else {
        instruction
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_the_snaplen_of_a_tcpdump_listing() {
        // tcpdump -ddd ip
        let listing = "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n";
        let program = parse_listing(listing, 96).unwrap();
        let operands: Vec<u32> = program.iter().map(|i| i.operand).collect();
        assert_eq!(operands, [12, 2048, 96, 0]);
        assert_eq!(parse_listing(&listing.replace('\n', ","), 96), Ok(program));
    }

    #[test]
    fn refuses_texts_that_are_not_listings() {
        for invalid in [
            "",
            "x",
            "2\n6 0 0 0",
            "1\n6 0 0",
            "1\n6 0 0 0 0",
            "1\n6 256 0 0",
            "0",
        ] {
            assert!(parse_listing(invalid, 96).is_err(), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text in "[0-9 ,\n]{0,60}") {
            let _ = parse_listing(&text, 96);
        }
    }
}
