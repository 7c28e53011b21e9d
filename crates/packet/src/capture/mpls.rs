// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPLS label stacks.

use super::ip_start::{IpNotFound, ip_at};

/// Most labels that are skipped.
pub(super) const LABELS_MAX: usize = 8;

/// Returns the offset of the IP packet below a label stack at `at`. A stack has labels of four bytes; the last has the
/// bottom-of-stack bit (RFC 3032 §2.1). No field names the payload, but the version of IP tells it from the control
/// word of a pseudowire, which begins with 0 (RFC 4385 §3).
pub(super) fn ip_in_mpls(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let labels = frame.get(at..).ok_or(IpNotFound::Short)?;
    let bottom = |label: &[u8; 4]| label[2] & 1 == 1;
    let (whole, _) = labels.as_chunks();
    match whole.iter().take(LABELS_MAX).position(bottom) {
        Some(before) => ip_at(frame, at + 4 * (before + 1)),
        None if labels.len() < 4 * LABELS_MAX => Err(IpNotFound::Short),
        None => Err(IpNotFound::Protocol),
    }
}
