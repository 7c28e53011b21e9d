// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signs that processes need something of their network namespace: abstract UNIX sockets, which the kernel removes with
//! the process.

use super::socket::abstract_names;
use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
};

/// This process's claim on something. Several processes may have one on the same thing. It costs a descriptor.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "only its life counts")] UnixDatagram);

impl Claim {
    /// On the thing of this name, from now on. Fails if this process has one already.
    pub fn new(thing: &str) -> io::Result<Self> {
        let name = format!("{}{}", prefix(thing), process::id());
        UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?).map(Self)
    }
}

/// The processes that have a claim on the thing of this name.
pub fn claimants(thing: &str) -> io::Result<Vec<u32>> {
    let names = abstract_names(&prefix(thing))?;
    Ok(names.iter().filter_map(|pid| pid.parse().ok()).collect())
}

fn prefix(thing: &str) -> String {
    format!("longhaul-{thing}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_with_its_owner() {
        // A name of our own: other tests run beside this one.
        let thing = format!("test-{}", process::id());
        let claim = Claim::new(&thing).unwrap();
        assert_eq!(claimants(&thing).unwrap(), [process::id()]);
        assert!(claimants(&format!("{thing}0")).unwrap().is_empty());
        drop(claim);
        assert!(claimants(&thing).unwrap().is_empty());
    }
}
