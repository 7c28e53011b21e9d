// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes over MPLS labels.

use super::ip_start::{NoIp, is_ip};

/// Most labels that are passed over.
pub(super) const LABELS_MAX: usize = 8;

/// RFC 3032 §2.1: labels of four bytes up to the one with the bottom-of-stack bit. Nothing says what is
/// below, but IP's version does (and a pseudo-wire's control word begins with 0, RFC 4385 §3).
pub(super) fn mpls(frame: &[u8], at: usize) -> Result<usize, NoIp> {
    let labels = frame.get(at..).ok_or(NoIp::Short)?;
    let bottom = |label: &[u8]| label[2] & 1 == 1;
    match labels.chunks_exact(4).take(LABELS_MAX).position(bottom) {
        Some(before) => is_ip(frame, at + 4 * (before + 1)),
        None if labels.len() < 4 * LABELS_MAX => Err(NoIp::Short),
        None => Err(NoIp::Protocol),
    }
}
