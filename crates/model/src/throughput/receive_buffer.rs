// SPDX-License-Identifier: MIT OR Apache-2.0
//! What window Linux lets a connection have, by the maxima of its socket buffers.

use units::Bytes;

/// Payload of the window that a maximum of `tcp_rmem` allows: half of it. The kernel begins with
/// `TCP_DEFAULT_SCALING_RATIO` (half, include/net/tcp.h) and since 6.6 adapts it to the payload of
/// the packets that come (`tcp_measure_rcv_mss`): with large aggregates more than half, which this
/// does not count on; with small packets less.
#[must_use]
pub fn receive_window(rmem_max: Bytes) -> Bytes {
    Bytes::new(rmem_max.get() / 2)
}

/// Payload that a maximum of `tcp_wmem` lets be out. The kernel asks for two windows
/// (`tcp_sndbuf_expand`, net/ipv4/tcp_input.c), so that half of it is sure.
#[must_use]
pub fn send_window(wmem_max: Bytes) -> Bytes {
    Bytes::new(wmem_max.get() / 2)
}

/// The maximum that a window wants, of either.
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
