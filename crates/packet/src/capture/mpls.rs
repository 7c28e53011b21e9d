// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPLS label stacks.

use super::ip_start::{IpNotFound, ip_at};

/// Most labels that are skipped.
pub(super) const LABELS_MAX: usize = 8;

/// Length of a label.
const LABEL: usize = 4;

/// Returns the offset of the IP packet below a label stack at `at`. No field names the payload, but the version of IP
/// tells it from others.
pub(super) fn ip_in_mpls(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    ip_at(frame, below_labels(frame, at)?)
}

/// Returns the offset after a label stack at `at`. The last label has the bottom-of-stack bit (RFC 3032 §2.1).
pub(super) fn below_labels(frame: &[u8], at: usize) -> Result<usize, IpNotFound> {
    let labels = frame.get(at..).ok_or(IpNotFound::Short)?;
    let bottom = |label: &[u8; LABEL]| label[2] & 1 == 1;
    let (whole, _) = labels.as_chunks();
    match whole.iter().take(LABELS_MAX).position(bottom) {
        Some(before) => Ok(at + LABEL * (before + 1)),
        None if labels.len() < LABEL * LABELS_MAX => Err(IpNotFound::Short),
        None => Err(IpNotFound::Protocol),
    }
}
