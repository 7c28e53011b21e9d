// SPDX-License-Identifier: MIT OR Apache-2.0
//! What window Linux lets a connection have, by the maxima of its socket buffers.

use longhaul_units::Bytes;

/// Payload of the window that a maximum of `tcp_rmem` comes to: 0.58 of it. The kernel begins with
/// half (`TCP_DEFAULT_SCALING_RATIO`, include/net/tcp.h) and since 6.6 takes the share of payload in the
/// memory of the packets that come (`tcp_measure_rcv_mss`, net/ipv4/tcp_input.c): 1,448 of 2,304 bytes
/// for a full packet, 0.63, less where small ones are among them. Measured on 6.18: 0.52 to 0.64.
#[must_use]
pub fn receive_window(rmem_max: Bytes) -> Bytes {
    Bytes::new((rmem_max.get() as f64 * RECEIVE_SHARE) as u64)
}

const RECEIVE_SHARE: f64 = 0.58;

/// Payload that a maximum of `tcp_wmem` lets be out. The kernel asks for two windows
/// (`tcp_sndbuf_expand`, net/ipv4/tcp_input.c), so that half of it is sure.
#[must_use]
pub fn send_window(wmem_max: Bytes) -> Bytes {
    Bytes::new(wmem_max.get() / 2)
}

/// The maximum that a window wants, of either, whatever packets come.
#[must_use]
pub fn buffer_for(window: Bytes) -> Bytes {
    Bytes::new((window.get() * 2).next_multiple_of(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_the_window_that_it_was_made_for() {
        for bytes in [1, 65_535, 1_400_000, 32_500_000] {
            let window = Bytes::new(bytes);
            assert!(receive_window(buffer_for(window)) >= window);
            assert!(send_window(buffer_for(window)) >= window);
        }
    }
}
