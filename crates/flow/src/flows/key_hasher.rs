// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fast hash of a flow's key. The seed is random, so that a capture cannot be crafted to collide.

use crate::segment::{CapturePoint, Endpoint, FlowKey};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Folded multiplications, as in wyhash.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyHasher {
    seed: u64,
}

/// The golden ratio, odd, as in Fibonacci hashing.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl KeyHasher {
    /// Creates a hasher with a seed that differs from run to run. Results do not differ: nothing depends on the table's
    /// order.
    pub(super) fn new() -> Self {
        Self {
            seed: RandomState::new().hash_one(0u8) | 1,
        }
    }

    /// Returns the hash of a flow.
    #[inline]
    pub(super) fn of(self, capture_point: CapturePoint, key: &FlowKey) -> u64 {
        let ports = u64::from(key.low.port) << 16 | u64::from(key.high.port);
        let hash = self.mix(self.seed, u64::from(capture_point.0) << 32 | ports);
        let hash = self.endpoint(hash, &key.low);
        self.endpoint(hash, &key.high)
    }

    #[inline]
    fn endpoint(self, hash: u64, end: &Endpoint) -> u64 {
        match end.address {
            IpAddr::V4(address) => self.mix(hash, u64::from(address.to_bits())),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                self.mix(self.mix(hash, (bits >> 64) as u64), bits as u64)
            }
        }
    }

    #[inline]
    fn mix(self, hash: u64, word: u64) -> u64 {
        let product =
            u128::from(hash ^ word ^ MULTIPLIER) * u128::from(self.seed ^ word.rotate_left(32));
        product as u64 ^ (product >> 64) as u64 ^ hash.rotate_left(23)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(last: u8, port: u16) -> FlowKey {
        let end = |last, port| Endpoint {
            address: IpAddr::from([10, 0, 0, last]),
            port,
        };
        FlowKey {
            low: end(1, 80),
            high: end(last, port),
        }
    }

    #[test]
    fn spreads_similar_keys() {
        let hash = KeyHasher::new();
        let (mut whole, mut low, mut high) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (capture_point, last, port) in
            (0..2).flat_map(|v| (0..64).flat_map(move |l| (0..64).map(move |p| (v, l, p))))
        {
            let h = hash.of(CapturePoint(capture_point), &key(last, port));
            whole.insert(h);
            low.insert(h & 0xffff);
            high.insert(h >> 57);
        }
        assert_eq!(whole.len(), 8192);
        // Of 65,536 values, 8,192 random ones reach 7,700 different ones.
        assert!(low.len() > 7_300, "{}", low.len());
        assert_eq!(high.len(), 128);
    }
}
