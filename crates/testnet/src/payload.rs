// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload of tests.

/// Returns pseudorandom bytes (xorshift64), which differ for each seed, so that a lost or duplicated part is detected.
pub fn bytes(seed: u64, length: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = length.div_ceil(8) as usize;
    let mut bytes = Vec::with_capacity(words * 8);
    (0..words).for_each(|_| bytes.extend(next().to_ne_bytes()));
    bytes.truncate(length as usize);
    bytes
}
