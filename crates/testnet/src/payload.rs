// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload of tests.

/// Pseudorandom bytes (xorshift64), which differ for each seed, so that a lost or duplicated part is detected. They are
/// computed here, because this crate is optimized in test builds, too.
#[derive(Debug)]
pub struct RandomBytes(u64);

impl RandomBytes {
    /// Starts the bytes of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Fills a buffer with the next bytes. Those of an incomplete word at its end are not continued.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(8) {
            let word = self.next_word().to_ne_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    fn next_word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Returns the first pseudorandom bytes of a seed.
pub fn bytes(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    RandomBytes::new(seed).fill(&mut bytes);
    bytes
}
