// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement of a copy on several hosts, each with a share on its own disks. A small file is whole on one host. A large
//! file is divided into stripes, which go to all hosts in turn. The Data Reservoir striped files over its servers'
//! disks in the same way (paper 002).
//!
//! The placement follows from names and sizes alone. So a repeated command finds every file in its place, and no host
//! has to ask another.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The shortest stripe, 64 MiB: long enough for a disk to read and write it at full speed.
pub const STRIPE_MIN: u64 = 64 << 20;

/// The longest stripe, 64 GiB.
pub const STRIPE_MAX: u64 = 64 << 30;

/// Largest number of stripes in a file, unless they reach [`STRIPE_MAX`]: enough to balance the load of many hosts, and
/// few enough to list.
const STRIPES_PER_FILE: u64 = 1024;

/// The position of one host among those that share a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Number of the host, from 0.
    pub host: u16,
    /// Number of hosts, 2 or more.
    pub hosts: u16,
    /// Length of stripes in bytes. `None` means that of [`stripe_len`].
    pub stripe: Option<u64>,
}

/// The part of a file that a host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostShare {
    /// No block: other hosts have the file.
    Nothing,
    /// The whole file.
    Whole,
    /// Ranges of blocks.
    Blocks(Vec<Range<u64>>),
}

/// Returns the length of a file's stripes, in bytes: a power of two from [`STRIPE_MIN`] to [`STRIPE_MAX`].
#[must_use]
pub fn stripe_len(file_len: u64) -> u64 {
    let len = file_len.div_ceil(STRIPES_PER_FILE);
    len.clamp(STRIPE_MIN, STRIPE_MAX).next_power_of_two()
}

impl Placement {
    /// Whether this host has an entry that is on one host only. The hash is that of the entry's name.
    #[must_use]
    pub fn owns(&self, name_hash: u64) -> bool {
        name_hash % u64::from(self.hosts) == u64::from(self.host)
    }

    /// Returns the part of a file that this host has. Lengths are in bytes. A file that is not `divisible` is on one
    /// host; `divisible` is called for large files only.
    pub fn share_of_file(
        &self,
        name_hash: u64,
        file_len: u64,
        block_len: u64,
        divisible: impl FnOnce() -> bool,
    ) -> HostShare {
        let stripe = self.stripe.unwrap_or_else(|| stripe_len(file_len));
        if file_len > stripe && divisible() {
            let stripes = self.stripes(name_hash, file_len, block_len, stripe);
            return if stripes.is_empty() {
                HostShare::Nothing
            } else {
                HostShare::Blocks(stripes)
            };
        }
        if self.owns(name_hash) {
            HostShare::Whole
        } else {
            HostShare::Nothing
        }
    }

    /// Returns the block ranges of the stripes that this host has. The host of the first stripe depends on the file's
    /// name, so that many files are balanced.
    fn stripes(
        &self,
        name_hash: u64,
        file_len: u64,
        block_len: u64,
        stripe: u64,
    ) -> Vec<Range<u64>> {
        let blocks = file_len.div_ceil(block_len);
        let step = (stripe / block_len).max(1);
        let hosts = u64::from(self.hosts);
        let first = (u64::from(self.host) + hosts - name_hash % hosts) % hosts;
        let indices = (first..blocks.div_ceil(step)).step_by(hosts as usize);
        indices
            .map(|index| index * step..blocks.min((index + 1) * step))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: u64 = 4 << 20;

    fn all(hosts: u16, stripe: Option<u64>) -> impl Iterator<Item = Placement> {
        (0..hosts).map(move |host| Placement {
            host,
            hosts,
            stripe,
        })
    }

    fn blocks_of(share: &HostShare) -> Vec<u64> {
        match share {
            HostShare::Blocks(ranges) => ranges.iter().cloned().flatten().collect(),
            HostShare::Nothing => Vec::new(),
            other @ HostShare::Whole => panic!("{other:?}"),
        }
    }

    #[test]
    fn stripes_grow_with_the_file_within_bounds() {
        let mib = |gib: u64| stripe_len(gib << 30) >> 20;
        assert_eq!(
            [0, 64, 65, 1024, 100_000].map(mib),
            [64, 64, 128, 1024, 65_536]
        );
    }

    #[test]
    fn stripes_go_to_hosts_in_turn() {
        let three: Vec<_> = all(3, Some(2 * BLOCK)).collect();
        let blocks = |host: usize, name| {
            blocks_of(&three[host].share_of_file(name, 9 * BLOCK, BLOCK, || true))
        };
        assert_eq!(blocks(0, 0), [0, 1, 6, 7]);
        assert_eq!(blocks(1, 0), [2, 3, 8]);
        assert_eq!(blocks(2, 0), [4, 5]);
        assert_eq!(
            (blocks(1, 4), blocks(2, 4), blocks(0, 4)),
            (blocks(0, 0), blocks(1, 0), blocks(2, 0))
        );
    }

    #[test]
    fn an_indivisible_file_is_on_one_host() {
        let whole = |placement: &Placement| placement.share_of_file(7, 1 << 40, BLOCK, || false);
        let shares: Vec<_> = all(3, None).map(|one| whole(&one)).collect();
        assert_eq!(
            shares,
            [HostShare::Nothing, HostShare::Whole, HostShare::Nothing]
        );
    }

    proptest! {
        #[test]
        fn hosts_together_have_each_block_once(
            hosts in 2u16..20, name_hash: u64, len in 0u64..1 << 42, stripe in prop::option::of(1u64..1 << 36)
        ) {
            let stripe = stripe.map(|stripe| stripe.max(len / 1000));
            let shares: Vec<_> = all(hosts, stripe).map(|one| one.share_of_file(name_hash, len, BLOCK, || true)).collect();
            let divided = len > stripe.unwrap_or_else(|| stripe_len(len));
            if !divided {
                prop_assert_eq!(shares.iter().filter(|share| **share == HostShare::Whole).count(), 1);
                prop_assert_eq!(shares.iter().filter(|share| **share == HostShare::Nothing).count(), usize::from(hosts) - 1);
                return Ok(());
            }
            let each: Vec<_> = shares.iter().map(blocks_of).collect();
            let mut together: Vec<u64> = each.iter().flatten().copied().collect();
            together.sort_unstable();
            prop_assert!(together.into_iter().eq(0..len.div_ceil(BLOCK)));
            // The largest share exceeds the smallest by a stripe at most.
            let step = stripe.map_or(stripe_len(len) / BLOCK, |stripe| (stripe / BLOCK).max(1));
            let largest = each.iter().map(Vec::len).max().unwrap() as u64;
            let smallest = each.iter().map(Vec::len).min().unwrap() as u64;
            prop_assert!(largest - smallest <= step, "{} {}", largest, smallest);
        }
    }
}
