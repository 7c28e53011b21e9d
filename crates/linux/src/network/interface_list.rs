// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of the calling thread's network namespace and their queueing disciplines, through
//! rtnetlink. No rights are needed.

use super::{
    queueing::{self, Discipline},
    route_dump::dump,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};
use std::io;

/// An interface as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// The link kind of a virtual interface (`veth`, `bridge`, `tun`), else `None`.
    pub kind: Option<String>,
    /// Whether it is the loopback.
    pub loopback: bool,
    /// Whether it is up.
    pub up: bool,
    /// Maximum transmission unit in bytes.
    pub mtu: u32,
    /// Length of the transmit queue in packets.
    pub transmit_queue: u32,
    /// Number of receive queues.
    pub receive_queues: u32,
    /// Kinds of the queueing disciplines of outgoing packets, each once; under `mq` those of its queues.
    pub qdiscs: Vec<String>,
    /// The queueing disciplines and police filters themselves.
    pub disciplines: Vec<Discipline>,
}

/// Returns all interfaces, in the kernel's order.
pub fn list() -> io::Result<Vec<Interface>> {
    let disciplines = queueing::list()?;
    let mut all = Vec::new();
    let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
    dump(query, |answer| {
        if let RouteNetlinkMessage::NewLink(link) = answer {
            all.push(Interface::read(&link, &disciplines));
        }
    })?;
    Ok(all)
}

impl Interface {
    fn read(link: &LinkMessage, disciplines: &[Discipline]) -> Self {
        let own = |discipline: &&Discipline| discipline.interface == link.header.index;
        let disciplines: Vec<Discipline> = disciplines.iter().filter(own).cloned().collect();
        let mut interface = Self {
            name: String::new(),
            kind: None,
            loopback: link.header.flags.contains(LinkFlags::Loopback),
            up: link.header.flags.contains(LinkFlags::Up),
            mtu: 0,
            transmit_queue: 0,
            receive_queues: 1,
            qdiscs: leaf_qdiscs(&disciplines),
            disciplines,
        };
        for attribute in &link.attributes {
            interface.apply_attribute(attribute);
        }
        interface
    }

    fn apply_attribute(&mut self, attribute: &LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => self.mtu = *mtu,
            LinkAttribute::TxQueueLen(packets) => self.transmit_queue = *packets,
            LinkAttribute::NumRxQueues(queues) => self.receive_queues = *queues,
            LinkAttribute::LinkInfo(infos) => {
                self.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

/// Returns the kinds of the disciplines that queue packets: the root, or the children of `mq`.
fn leaf_qdiscs(disciplines: &[Discipline]) -> Vec<String> {
    let outgoing = disciplines.iter().filter(|one| one.is_outgoing_queue());
    let mut kinds: Vec<String> = outgoing.map(|one| one.kind.clone()).collect();
    if kinds.iter().any(|kind| kind != "mq") {
        kinds.retain(|kind| kind != "mq");
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_loopback() {
        let all = list().unwrap();
        let loopback = all.iter().find(|interface| interface.loopback).unwrap();
        assert_eq!(loopback.name, "lo");
        assert!(loopback.mtu >= 1280, "{loopback:?}");
    }

    #[test]
    fn mq_is_replaced_by_the_qdiscs_of_its_queues() {
        let discipline = |parent: &str, kind: &str| Discipline {
            parent: parent.to_owned(),
            kind: kind.to_owned(),
            ..Discipline::default()
        };
        let all = [
            discipline("root", "mq"),
            discipline("0:1", "fq"),
            discipline("0:2", "fq"),
            discipline("ingress", "clsact"),
        ];
        assert_eq!(leaf_qdiscs(&all), ["fq"]);
        assert_eq!(leaf_qdiscs(&all[..1]), ["mq"]);
        assert_eq!(leaf_qdiscs(&[]), [""; 0]);
    }
}
