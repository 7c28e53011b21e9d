// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU discovery by TCP itself (RFC 4821), for a while: Linux has it for a network namespace
//! (net.ipv4.tcp_mtu_probing) and not for a socket.

use super::cleanup_process::CleanupProcess;
use crate::{
    claim::{Claim, claimants},
    sysctl,
};
use std::{io, process, time::Duration};

const SETTING: &str = "net.ipv4.tcp_mtu_probing";
const RESOURCE: &str = "mtu-probing";

/// Holds the setting at 1 where it was 0, as long as any process has one of these. A process of its own takes it back when
/// this one is killed.
#[derive(Debug)]
pub struct MtuProbing(Option<(CleanupProcess, Claim)>);

impl MtuProbing {
    /// In the calling thread's network namespace. The caller must have one thread ([`Executor::appoint`]).
    pub fn enable() -> io::Result<Self> {
        let is_ours = !claimants(RESOURCE)?.is_empty();
        if sysctl::read_here(SETTING)? != "0" && !is_ours {
            return Ok(Self(None));
        }
        sysctl::write_here(SETTING, "1")?;
        let owner = process::id();
        let executor = CleanupProcess::spawn(Duration::MAX, move |_| restore(owner))?;
        Ok(Self(Some((executor, Claim::new(RESOURCE)?))))
    }
}

impl Drop for MtuProbing {
    fn drop(&mut self) {
        if let Some((executor, claim)) = self.0.take() {
            drop(claim);
            restore(process::id());
            executor.disarm();
        }
    }
}

/// The last one that claims it, but for `owner`, takes it back.
fn restore(owner: u32) {
    let others = claimants(RESOURCE).unwrap_or_default();
    if others.iter().all(|other| *other == owner) {
        // What could be written once can be written again, unless the namespace is about to go.
        let _ = sysctl::write_here(SETTING, "0");
    }
}
