// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sign that a process needs a table's rules: an abstract UNIX socket of the network namespace, which the kernel
//! removes with the process. A relay that drains listens no more, and its connections still need the rules.

use longhaul_linux::netfilter::Family;
use std::{
    io,
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr, unix::net::UnixDatagram},
};

/// Held as long as the rules are needed. It costs a descriptor.
pub(super) struct Claim(#[expect(dead_code, reason = "only its life counts")] UnixDatagram);

impl Claim {
    /// On the table of a listener on `port`. Several processes may have one.
    pub(super) fn new(family: Family, port: u16) -> io::Result<Self> {
        let name = format!("{}{}", prefix(family, port), std::process::id());
        let address = SocketAddr::from_abstract_name(name)?;
        UnixDatagram::bind_addr(&address).map(Self)
    }
}

/// Whether some process has a claim on the table of a listener on `port`.
pub(super) fn is_claimed(family: Family, port: u16) -> io::Result<bool> {
    let sockets = std::fs::read("/proc/thread-self/net/unix")?;
    let name = format!("@{}", prefix(family, port));
    // proc(5): the path is the last field, and an abstract one begins with `@`. Others' paths may be no UTF-8.
    let mut lines = sockets.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| {
        let path = line.rsplit(|byte| *byte == b' ').next();
        path.is_some_and(|path| path.starts_with(name.as_bytes()))
    }))
}

fn prefix(family: Family, port: u16) -> String {
    format!("longhaul-intercept-{}-{port}-", family.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_with_its_owner() {
        // A port of our own: other tests run beside this one.
        let port = 1 + (std::process::id() % 60_000) as u16;
        let claimed = |family| is_claimed(family, port).unwrap();
        let claim = Claim::new(Family::Ip, port).unwrap();
        assert!(claimed(Family::Ip));
        assert!(!claimed(Family::Ip6));
        drop(claim);
        assert!(!claimed(Family::Ip));
    }
}
