// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which host has what, when several keep a copy between them, each a share on disks of its own: small files whole, a large one in stripes, in turn over
//! all hosts, as the Data Reservoir striped a file over the disks of its servers (paper 002).
//!
//! It follows from names and sizes alone: the same command again finds everything in its place, and no host has to ask another.

use std::ops::Range;

/// The shortest stripe, 64 MiB: a disk reads and writes that much in one go.
pub const STRIPE_MIN: u64 = 64 << 20;

/// The longest, 64 GiB.
pub const STRIPE_MAX: u64 = 64 << 30;

/// Stripes that a file is cut into, as long as they are within the bounds: enough for any number of hosts to have as much, and few to
/// tell of.
const STRIPES_A_FILE: u64 = 1024;

/// One of several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Which, from 0.
    pub host: u16,
    /// So many there are, 2 or more.
    pub hosts: u16,
    /// Bytes of a stripe, if not as [`stripe_len`] says.
    pub stripe: Option<u64>,
}

/// What of a file is at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: another has it.
    Nothing,
    /// All.
    Whole,
    /// These blocks.
    Blocks(Vec<Range<u64>>),
}

/// The length of a file's stripes, in bytes: a power of two from [`STRIPE_MIN`] to [`STRIPE_MAX`].
#[must_use]
pub fn stripe_len(file_len: u64) -> u64 {
    let wanted = file_len.div_ceil(STRIPES_A_FILE);
    wanted.clamp(STRIPE_MIN, STRIPE_MAX).next_power_of_two()
}

impl Placement {
    /// Whether it has something that is at one host alone. `name` is any number that follows from its name.
    #[must_use]
    pub fn has(&self, name: u64) -> bool {
        name % u64::from(self.hosts) == u64::from(self.host)
    }

    /// What it has of a file, the blocks of which are of `block_len` bytes. One that must not be divided is at one host; that
    /// is asked of large ones only.
    pub fn of_file(
        &self,
        name: u64,
        file_len: u64,
        block_len: u64,
        divisible: impl FnOnce() -> bool,
    ) -> Kept {
        let stripe = self.stripe.unwrap_or_else(|| stripe_len(file_len));
        if file_len > stripe && divisible() {
            let stripes = self.stripes(name, file_len, block_len, stripe);
            return match stripes.is_empty() {
                true => Kept::Nothing,
                false => Kept::Blocks(stripes),
            };
        }
        match self.has(name) {
            true => Kept::Whole,
            false => Kept::Nothing,
        }
    }

    /// Files begin at different hosts, so that all have as much of many.
    fn stripes(&self, name: u64, file_len: u64, block_len: u64, stripe: u64) -> Vec<Range<u64>> {
        let blocks = file_len.div_ceil(block_len);
        let step = (stripe / block_len).max(1);
        let hosts = u64::from(self.hosts);
        let first = (u64::from(self.host) + hosts - name % hosts) % hosts;
        let own = (first..blocks.div_ceil(step)).step_by(hosts as usize);
        own.map(|index| index * step..blocks.min((index + 1) * step))
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

    fn blocks_of(kept: &Kept) -> Vec<u64> {
        match kept {
            Kept::Blocks(ranges) => ranges.iter().cloned().flatten().collect(),
            Kept::Nothing => Vec::new(),
            other @ Kept::Whole => panic!("{other:?}"),
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
    fn stripes_go_in_turn() {
        let three: Vec<_> = all(3, Some(2 * BLOCK)).collect();
        let kept =
            |host: usize, name| blocks_of(&three[host].of_file(name, 9 * BLOCK, BLOCK, || true));
        assert_eq!(kept(0, 0), [0, 1, 6, 7]);
        assert_eq!(kept(1, 0), [2, 3, 8]);
        assert_eq!(kept(2, 0), [4, 5]);
        assert_eq!(
            (kept(1, 4), kept(2, 4), kept(0, 4)),
            (kept(0, 0), kept(1, 0), kept(2, 0))
        );
    }

    #[test]
    fn what_must_not_be_divided_is_at_one_host() {
        let whole = |placement: &Placement| placement.of_file(7, 1 << 40, BLOCK, || false);
        let kept: Vec<_> = all(3, None).map(|one| whole(&one)).collect();
        assert_eq!(kept, [Kept::Nothing, Kept::Whole, Kept::Nothing]);
    }

    proptest! {
        #[test]
        fn all_hosts_together_have_all_of_it_once(
            hosts in 2u16..20, name: u64, len in 0u64..1 << 42, stripe in prop::option::of(1u64..1 << 36)
        ) {
            let stripe = stripe.map(|stripe| stripe.max(len / 1000));
            let kept: Vec<_> = all(hosts, stripe).map(|one| one.of_file(name, len, BLOCK, || true)).collect();
            let divided = len > stripe.unwrap_or_else(|| stripe_len(len));
            if !divided {
                prop_assert_eq!(kept.iter().filter(|kept| **kept == Kept::Whole).count(), 1);
                prop_assert_eq!(kept.iter().filter(|kept| **kept == Kept::Nothing).count(), usize::from(hosts) - 1);
                return Ok(());
            }
            let each: Vec<_> = kept.iter().map(blocks_of).collect();
            let mut together: Vec<u64> = each.iter().flatten().copied().collect();
            together.sort_unstable();
            prop_assert!(together.into_iter().eq(0..len.div_ceil(BLOCK)));
            // Nobody has more than a stripe more than another.
            let step = stripe.map_or(stripe_len(len) / BLOCK, |stripe| (stripe / BLOCK).max(1));
            let most = each.iter().map(Vec::len).max().unwrap() as u64;
            let least = each.iter().map(Vec::len).min().unwrap() as u64;
            prop_assert!(most - least <= step, "{} {}", most, least);
        }
    }
}
