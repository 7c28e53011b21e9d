// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may befall a file between two runs, told by some bytes.

/// Bytes put in at once, at most: more than a reader takes in one piece.
const RUN_MAX: usize = 1 << 21;

/// What a script may make of a file, in bytes.
const LEN_MAX: usize = 1 << 20;

/// Befalls `bytes` whatever a script says, four bytes at a time: what (low three bits), where (16 bits), which byte or
/// how much.
pub(crate) fn befall(bytes: &mut Vec<u8>, script: &[u8]) {
    for [what, high, low, byte] in script.as_chunks().0 {
        let at = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
        let size = usize::from(*byte);
        match what & 7 {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, [*byte])),
            2 => drop(bytes.drain(at..bytes.len().min(at + size))),
            3 => bytes.extend_from_within(at..bytes.len().min(at + size)),
            4 if bytes.len() < LEN_MAX => {
                let run = RUN_MAX >> (what >> 3);
                drop(bytes.splice(at..at, std::iter::repeat_n(*byte, run)));
            }
            _ => {
                if let Some(place) = bytes.get_mut(at) {
                    *place = *byte;
                }
            }
        }
    }
}
