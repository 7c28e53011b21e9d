// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lease on a table's rules: a set with one element that the kernel removes unless it is renewed. Rules that require
//! the element apply only as long as a process renews it, whatever ends or stops that process.
//!
//! A packet renews the lease: a rule of the table recognizes it by its mark, and drops it. Netlink is not used, because
//! each change by netlink begins a new generation of all rules of the network namespace. `nft` reads its list again for
//! each new generation, and on a host with large sets it never finished (nftables `src/cache.c`, `nft_cache_update`).
//! Audit also writes a line for each change.

use super::{
    Family,
    message::{self, ACK, Message, TABLES},
};
use rustix::io::Errno;
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

/// The condition of a rule that applies as long as the lease is valid.
pub const CONDITION: &str = "meta protocol @lease";

/// The name of the set.
pub const SET: &str = "lease";

/// Port of the discard service (RFC 863): a packet that no rule drops is harmless.
const PORT: u16 = 9;

/// Returns the set, and the chain that renews it for `time` (in milliseconds) when a packet with `mark` leaves. Both are
/// part of the table that [`Lease::open`] names. The chain runs before all others of the host, so that none of them drops
/// the packet.
#[must_use]
pub fn rules(mark: u32, time: Duration) -> String {
    let milliseconds = time.as_millis();
    format!(
        "set {SET} {{ type ether_type; flags dynamic, timeout; size 2; }}\n\
         chain renew {{ type filter hook output priority -1000; policy accept;\n\
         meta mark {mark} udp dport {PORT} update @{SET} {{ meta protocol timeout {milliseconds}ms }} drop\n}}\n"
    )
}

/// The lease of one table.
pub struct Lease {
    socket: UdpSocket,
    /// Destination of the packets.
    host: SocketAddr,
    family: Family,
    table: String,
}

impl Lease {
    /// Opens the lease of the table `table`, which need not exist yet, in the calling thread's network namespace. `mark` is
    /// that of [`rules`].
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without CAP_NET_ADMIN, which a mark needs.
    pub fn open(family: Family, table: &str, mark: u32) -> io::Result<Self> {
        let (any, host) = match family {
            Family::Ip => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()),
            Family::Ip6 => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket2::SockRef::from(&socket).set_mark(mark)?;
        Ok(Self {
            socket,
            host: SocketAddr::new(host, PORT),
            family,
            table: table.to_owned(),
        })
    }

    /// Renews the lease for the time of [`rules`].
    ///
    /// # Errors
    ///
    /// `NotFound` if the table does not exist: no rule dropped the packet.
    pub fn renew(&self) -> io::Result<()> {
        match self.socket.send_to(&[], self.host) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        }
    }

    /// Ends the lease now.
    pub fn release(&self) -> io::Result<()> {
        /// `NFT_MSG_DELSETELEM` (include/uapi/linux/netfilter/nf_tables.h). Without elements, it deletes all.
        const DELETE_ELEMENT: u16 = TABLES << 8 | 14;
        const TABLE: u16 = 1;
        const SET_NAME: u16 = 2;
        let all = Message::new(DELETE_ELEMENT, ACK, self.family.number(), 0)
            .text(TABLE, &self.table)
            .text(SET_NAME, SET);
        message::request(&message::open()?, &message::batch([all]))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{nft, table::generation},
        *,
    };
    use crate::netns::Netns;
    use longhaul_testprograms::skip;

    const MARK: u32 = 7;

    fn in_namespace(name: &str, body: impl FnOnce() -> io::Result<()> + Send) {
        if !skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)") {
            return;
        }
        let name = format!("{name}-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        crate::interface::bring_up(&netns, "lo").unwrap();
        let outcome = netns.run(body);
        Netns::delete(&name).unwrap();
        outcome.unwrap();
    }

    fn load(family: Family) -> io::Result<()> {
        let rules = rules(MARK, Duration::from_secs(60));
        nft::load(&format!("table {} t {{\n{rules}}}\n", family.name())).map_err(io::Error::other)
    }

    fn nft(words: &[&str]) -> io::Result<String> {
        let output = std::process::Command::new("nft").args(words).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn renews_until_the_table_is_gone() {
        in_namespace("lease", || {
            for family in [Family::Ip, Family::Ip6] {
                let lease = Lease::open(family, "t", MARK)?;
                assert_eq!(lease.renew().unwrap_err().kind(), io::ErrorKind::NotFound);
                load(family)?;
                let has_element = || {
                    let set = nft(&["list", "set", family.name(), "t", SET]);
                    set.map(|set| set.contains("expires"))
                };
                assert!(!has_element()?);
                lease.renew()?;
                assert!(has_element()?);
                lease.release()?;
                assert!(!has_element()?);
                let delete = format!("delete table {} t\n", family.name());
                nft::load(&delete).map_err(io::Error::other)?;
                assert_eq!(lease.renew().unwrap_err().kind(), io::ErrorKind::NotFound);
            }
            Ok(())
        });
    }

    /// A new generation would make nft read the rules again from the start.
    #[test]
    fn renewal_keeps_the_rule_set_generation() {
        in_namespace("lease-generation", || {
            let lease = Lease::open(Family::Ip, "t", MARK)?;
            load(Family::Ip)?;
            let before = generation()?;
            (0..100).try_for_each(|_| lease.renew())?;
            assert_eq!(generation()?, before);
            lease.release()?;
            assert_ne!(generation()?, before);
            Ok(())
        });
    }
}
