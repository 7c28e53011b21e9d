// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary use of TCP's own path MTU discovery (RFC 4821), which Linux has for a network namespace
//! (net.ipv4.tcp_mtu_probing) and not for a socket.

use super::cleanup_process::CleanupProcess;
use crate::{
    claim::{Claim, claimants},
    sysctl,
};
use std::{io, process, time::Duration};

const SETTING: &str = "net.ipv4.tcp_mtu_probing";
const RESOURCE: &str = "mtu-probing";

/// Keeps the setting at 1 where it was 0, as long as any process has one of these values. A cleanup process restores it when
/// this process is killed.
#[derive(Debug)]
pub struct MtuProbing(Option<(CleanupProcess, Claim)>);

impl MtuProbing {
    /// Enables it in the calling thread's network namespace. The caller must have one thread ([`CleanupProcess::spawn`]).
    pub fn enable() -> io::Result<Self> {
        let is_ours = !claimants(RESOURCE)?.is_empty();
        if sysctl::read_here(SETTING)? != "0" && !is_ours {
            return Ok(Self(None));
        }
        sysctl::write_here(SETTING, "1")?;
        let owner = process::id();
        let cleanup = CleanupProcess::spawn(Duration::MAX, move |_| restore(owner))?;
        Ok(Self(Some((cleanup, Claim::new(RESOURCE)?))))
    }
}

impl Drop for MtuProbing {
    fn drop(&mut self) {
        if let Some((cleanup, claim)) = self.0.take() {
            drop(claim);
            restore(process::id());
            cleanup.disarm();
        }
    }
}

/// Restores the setting, unless a process other than `owner` claims it.
fn restore(owner: u32) {
    let others = claimants(RESOURCE).unwrap_or_default();
    if others.iter().all(|other| *other == owner) {
        // It could be written before, so it fails only when the namespace is about to end.
        let _ = sysctl::write_here(SETTING, "0");
    }
}
