// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random bytes of the kernel, for secrets, identifiers and initial numbers: nobody can predict them.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Returns random bytes. Waits until the kernel has gathered enough randomness after boot.
///
/// # Errors
///
/// Fails on kernels without getrandom(2), and in sandboxes that forbid it.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    // A signal may cut reads of more than 256 bytes short.
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_all_bytes_each_time_anew() {
        let long = random_bytes::<4096>().unwrap();
        assert!(long.chunks(32).all(|chunk| chunk != [0; 32]));
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
