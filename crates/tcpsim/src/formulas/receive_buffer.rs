// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows that the maxima of Linux's socket buffers allow.

use longhaul_units::Bytes;

/// Returns the payload window that a maximum of `tcp_rmem` allows: 0.58 of the maximum.
///
/// The kernel begins with half (`TCP_DEFAULT_SCALING_RATIO`, include/net/tcp.h). Since 6.6 it takes the share
/// of payload in the memory of the packets that arrive (`tcp_measure_rcv_mss`, net/ipv4/tcp_input.c). A full
/// packet has 1,448 of 2,304 bytes, 0.63. Small packets lower the share. Measured on 6.18: 0.52 to 0.64.
#[must_use]
pub fn receive_window(rmem_max: Bytes) -> Bytes {
    Bytes::new((rmem_max.get() as f64 * RECEIVE_SHARE) as u64)
}

/// Share of a maximum of `tcp_rmem` that is window.
const RECEIVE_SHARE: f64 = 0.58;

/// Returns the payload that a maximum of `tcp_wmem` allows in flight: half. The kernel asks for two windows of
/// buffer (`tcp_sndbuf_expand`, net/ipv4/tcp_input.c), so half is certain.
#[must_use]
pub fn send_window(wmem_max: Bytes) -> Bytes {
    Bytes::new(wmem_max.get() / 2)
}

/// Returns the maximum of either buffer that `window` needs, whatever the packets' sizes.
#[must_use]
pub fn buffer_for(window: Bytes) -> Bytes {
    Bytes::new((window.get() * 2).next_multiple_of(4096))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_for_a_window_holds_that_window() {
        for bytes in [1, 65_535, 1_400_000, 32_500_000] {
            let window = Bytes::new(bytes);
            assert!(receive_window(buffer_for(window)) >= window);
            assert!(send_window(buffer_for(window)) >= window);
        }
    }
}
