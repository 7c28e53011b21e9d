// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lease on a table's rules: a set with one element that the kernel forgets unless it is renewed.
//! Rules that ask for the element hold only as long as somebody renews it, whatever ends or stops
//! that somebody.

use super::{
    Family,
    message::{self, ACK, CREATE, Message, TABLES},
};
use netlink_sys::Socket;
use std::{io, time::Duration};

/// The set's name. A table declares it as `set lease { type inet_proto; flags timeout; }` and asks
/// `meta l4proto @lease`.
pub const SET: &str = "lease";

/// `NFT_MSG_NEWSETELEM` and `NFT_MSG_DELSETELEM` (include/uapi/linux/netfilter/nf_tables.h).
const NEW_ELEMENT: u16 = TABLES << 8 | 12;
const DELETE_ELEMENT: u16 = TABLES << 8 | 14;

/// A channel to the kernel for one table's lease.
pub struct Lease {
    socket: Socket,
    family: Family,
    table: String,
}

impl Lease {
    /// For the table `table`, which need not exist yet, in the calling thread's network namespace.
    pub fn open(family: Family, table: &str) -> io::Result<Self> {
        Ok(Self {
            socket: message::open()?,
            family,
            table: table.to_owned(),
        })
    }

    /// Makes the rules hold for `time` (milliseconds count) from now, in one transaction: kernels
    /// before 6.12 don't change the time of an element that is there. `NotFound` if the table is
    /// gone.
    pub fn renew(&self, time: Duration) -> io::Result<()> {
        let batch = message::batch([self.forget(0), self.element(time)]);
        message::ask(&self.socket, &batch)
    }

    /// Ends the lease now.
    pub fn end(&self) -> io::Result<()> {
        message::ask(&self.socket, &message::batch([self.forget(ACK)]))
    }

    fn message(&self, kind: u16, flags: u16) -> Message {
        const TABLE: u16 = 1;
        const SET_NAME: u16 = 2;
        Message::new(kind, flags, self.family.number(), 0)
            .text(TABLE, &self.table)
            .text(SET_NAME, SET)
    }

    /// Without elements, the message means all.
    fn forget(&self, flags: u16) -> Message {
        self.message(DELETE_ELEMENT, flags)
    }

    fn element(&self, time: Duration) -> Message {
        const ELEMENTS: u16 = 3;
        const ELEMENT: u16 = 1;
        const KEY: u16 = 1;
        const VALUE: u16 = 1;
        const TIMEOUT: u16 = 4;
        let milliseconds = (time.as_millis() as u64).to_be_bytes();
        self.message(NEW_ELEMENT, CREATE | ACK)
            .nested(ELEMENTS, |m| {
                m.nested(ELEMENT, |m| {
                    m.nested(KEY, |m| m.bytes(VALUE, &[libc::IPPROTO_TCP as u8]))
                        .bytes(TIMEOUT, &milliseconds)
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::nft, *};
    use crate::netns::Netns;
    use longhaul_testbed::skip;

    /// A renewal that fails has two errors.
    #[test]
    fn a_renewal_hears_its_own_answer() {
        if !skip::unless(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)") {
            return;
        }
        let name = format!("lease-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        let outcome = netns.run(|| {
            let lease = Lease::open(Family::Ip, "t")?;
            for _ in 0..3 {
                let renew = || lease.renew(Duration::from_secs(1));
                assert_eq!(renew().unwrap_err().kind(), io::ErrorKind::NotFound);
                let set = format!("set {SET} {{ type inet_proto; flags timeout; }}");
                nft::load(&format!("table ip t {{ {set}\n }}\n")).map_err(io::Error::other)?;
                renew()?;
                nft::load("delete table ip t\n").map_err(io::Error::other)?;
            }
            Ok(())
        });
        Netns::delete(&name).unwrap();
        outcome.unwrap();
    }
}
