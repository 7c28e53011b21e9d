// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names and marks that transparent interception leaves on a host.

use super::Family;

/// Prefix of the names of a relay's tables; the listener's port follows.
pub const TABLE_PREFIX: &str = "longhaul-";

/// Name of a table's counter of the SYNs that were diverted to the listener.
pub const DIVERTED_SYNS: &str = "diverted_syns";

/// Name of a table's counter of the diverted SYNs that all INPUT rules of the host have accepted.
pub const ARRIVED_SYNS: &str = "arrived_syns";

/// Mark of relays' own sockets, the same for all relays of a host: their packets are not intercepted. `"LO"` and
/// zeroes.
pub const OWN_MARK: u32 = 0x4c4f_0000;

/// Mark of downstream connections whose upstream connections use the client's address. It distinguishes the two, which
/// have the same addresses and ports. `"LO"` and 1.
pub const DOWNSTREAM_MARK: u32 = OWN_MARK | 1;

/// Connection tracking zone of such downstream connections: `"LO"`.
pub const DOWNSTREAM_ZONE: u16 = 0x4c4f;

/// Marks of one listener's packets. The upper half is the action for a packet, the lower half the port
/// of the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    port: u16,
}

impl Marks {
    /// Returns the marks of the listener on this port.
    pub fn of(port: u16) -> Self {
        Self { port }
    }

    fn with(self, letters: [u8; 2]) -> u32 {
        u32::from(u16::from_be_bytes(letters)) << 16 | u32::from(self.port)
    }

    /// Mark of packets to deliver to this host; also the number of the routing table for it.
    pub fn diverted(self) -> u32 {
        self.with(*b"LH")
    }

    /// Returns advice for hosts whose INPUT rules drop the packets to deliver: the rule to add, for nft and for iptables.
    pub fn input_advice(self, family: Family) -> String {
        let mark = self.diverted();
        let iptables = match family {
            Family::Ip => "iptables",
            Family::Ip6 => "ip6tables",
        };
        format!(
            "add the rule `meta mark {mark:#x} accept` before those that drop (or: {iptables} -I INPUT -m mark --mark \
             {mark:#x} -j ACCEPT)"
        )
    }

    /// Mark of outgoing packets of this host's own connections, to route to this host.
    pub fn rerouted(self) -> u32 {
        self.with(*b"LI")
    }

    /// Mark of the packets that renew the lease.
    pub fn lease(self) -> u32 {
        self.with(*b"LL")
    }

    /// Whether [`Self::diverted`] or [`Self::rerouted`] returns this mark for some listener.
    pub(super) fn is_routed(mark: u32) -> bool {
        let marks = Self::of(mark as u16);
        [marks.diverted(), marks.rerouted()].contains(&mark)
    }

    /// Mark of a queued SYN that may now reach the listener.
    pub fn accepted(self) -> u32 {
        self.with(*b"LA")
    }

    /// Mark of a queued SYN to answer with RST.
    pub fn refused(self) -> u32 {
        self.with(*b"LR")
    }

    /// Mark of a queued SYN to answer with ICMP host unreachable.
    pub fn host_unreachable(self) -> u32 {
        self.with(*b"LU")
    }

    /// Mark of a queued SYN to answer with ICMP network unreachable.
    pub fn network_unreachable(self) -> u32 {
        self.with(*b"LN")
    }

    /// Mark of a queued SYN to answer with ICMP administratively prohibited.
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
            a.accepted(),
            a.refused(),
            a.host_unreachable(),
            a.network_unreachable(),
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
