// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence numbers without their wrap-around, which at 10 Gbit/s comes every 3.4 s.

/// What a flow's first number is put upon, so that none that comes later is below zero.
const START: u64 = 1 << 32;

/// No window is larger (RFC 7323 §2.2), so a number further ahead than this is damage.
pub(crate) const WINDOW_MAX: u64 = 1 << 30;

/// The first number that is known of a direction; never 0.
pub(crate) fn first(number: u32) -> u64 {
    START + u64::from(number)
}

/// The number nearest to `reference` that looks like `number` on the wire (RFC 9293 §3.4).
pub(crate) fn near(reference: u64, number: u32) -> u64 {
    let distance = number.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(distance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_the_wrap_in_both_directions() {
        let before = first(u32::MAX - 9);
        let after = near(before, 10);
        assert_eq!(after - before, 20);
        assert_eq!(near(after, u32::MAX - 9), before);
    }

    #[test]
    fn the_far_half_is_behind() {
        let here = first(0);
        assert_eq!(near(here, 0x7fff_ffff), here + 0x7fff_ffff);
        assert_eq!(near(here, 0x8000_0000), here - 0x8000_0000);
    }

    #[test]
    fn many_wraps_add_up() {
        let mut at = first(5);
        for step in 1..=20u64 {
            at = near(at, (5 + step * 0x4000_0000) as u32);
        }
        assert_eq!(at, first(5) + 20 * 0x4000_0000);
    }
}
