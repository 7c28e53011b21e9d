// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names and marks that transparent interception leaves on a host.

/// What tables are called that a relay made; the listener's port follows.
pub const TABLE_PREFIX: &str = "longhaul-";

/// The mark of relays' own sockets, the same for all relays of a host: what carries it is not intercepted. `"LO"` and
/// zeroes.
pub const OWN_MARK: u32 = 0x4c4f_0000;

/// The mark of near legs whose far legs have the client's address: it tells the two apart, which have the same addresses
/// and ports. `"LO"` and 1.
pub const DOWNSTREAM_MARK: u32 = OWN_MARK | 1;

/// The connection tracking zone of such near legs: `"LO"`.
pub const DOWNSTREAM_ZONE: u16 = 0x4c4f;

/// Marks of one listener's packets. The upper half says what is to become of a packet, the lower
/// half whose it is: the port of the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    port: u16,
}

impl Marks {
    /// The marks of the listener on this port.
    pub fn of(port: u16) -> Self {
        Self { port }
    }

    fn with(self, letters: [u8; 2]) -> u32 {
        u32::from(u16::from_be_bytes(letters)) << 16 | u32::from(self.port)
    }

    /// To be delivered to this host. Also the number of the routing table that does so.
    pub fn diverted(self) -> u32 {
        self.with(*b"LH")
    }

    /// Of this host's own connections on their way out: to be routed to this host.
    pub fn rerouted(self) -> u32 {
        self.with(*b"LI")
    }

    /// Of the packets that renew the lease.
    pub fn lease(self) -> u32 {
        self.with(*b"LL")
    }

    /// Whether this is what [`Self::diverted`] or [`Self::rerouted`] gives for some listener.
    pub(super) fn is_routed(mark: u32) -> bool {
        let marks = Self::of(mark as u16);
        [marks.diverted(), marks.rerouted()].contains(&mark)
    }

    /// A SYN that was held, and may now reach the listener.
    pub fn approved(self) -> u32 {
        self.with(*b"LA")
    }

    /// A SYN that was held, to be answered with RST.
    pub fn refused(self) -> u32 {
        self.with(*b"LR")
    }

    /// A SYN that was held, to be answered with ICMP: no such host.
    pub fn no_host(self) -> u32 {
        self.with(*b"LU")
    }

    /// A SYN that was held, to be answered with ICMP: no way to its network.
    pub fn no_network(self) -> u32 {
        self.with(*b"LN")
    }

    /// A SYN that was held, to be answered with ICMP: somebody on the way forbids it.
    pub fn prohibited(self) -> u32 {
        self.with(*b"LP")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_listeners_and_verdicts_are_distinct() {
        let (a, b) = (Marks::of(1), Marks::of(2));
        let all = [
            a.diverted(),
            a.rerouted(),
            a.lease(),
            a.approved(),
            a.refused(),
            a.no_host(),
            a.no_network(),
            a.prohibited(),
            b.diverted(),
            OWN_MARK,
            DOWNSTREAM_MARK,
        ];
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        let routed = all.into_iter().filter(|mark| Marks::is_routed(*mark));
        assert!(routed.eq([a.diverted(), a.rerouted(), b.diverted()]));
    }
}
