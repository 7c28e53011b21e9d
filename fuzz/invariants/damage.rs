// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage to a file between two runs, as a script of bytes describes it.

/// Maximum number of bytes inserted at once: more than a reader takes in one piece.
const RUN_MAX: usize = 1 << 21;

/// Maximum length of a damaged file, in bytes.
const LEN_MAX: usize = 1 << 20;

/// Applies a script to `bytes`. Each step has four bytes: the kind (low three bits), the position (16 bits), and a
/// byte or an amount.
pub(crate) fn apply_damage(bytes: &mut Vec<u8>, script: &[u8]) {
    for [kind, high, low, byte] in script.as_chunks().0 {
        let at = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
        let size = usize::from(*byte);
        match kind & 7 {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, [*byte])),
            2 => drop(bytes.drain(at..bytes.len().min(at + size))),
            3 => bytes.extend_from_within(at..bytes.len().min(at + size)),
            4 if bytes.len() < LEN_MAX => {
                let run = RUN_MAX >> (kind >> 3);
                drop(bytes.splice(at..at, std::iter::repeat_n(*byte, run)));
            }
            _ => {
                if let Some(target) = bytes.get_mut(at) {
                    *target = *byte;
                }
            }
        }
    }
}
