// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of the calling thread's network namespace and their queueing disciplines, through
//! rtnetlink. No rights are needed.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    tc::{TcAttribute, TcHandle, TcMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// Maximum length of one datagram of a dump, in bytes. The kernel fills at most 32 KiB at a time
/// (`net/netlink/af_netlink.c`, `netlink_dump`).
const DATAGRAM_LEN_MAX: usize = 32 * 1024;

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
}

/// Returns all interfaces, in the kernel's order.
pub fn list() -> io::Result<Vec<Interface>> {
    let links = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let disciplines = dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
    let disciplines: Vec<TcMessage> = disciplines.into_iter().filter_map(qdisc).collect();
    Ok(links
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(Interface::read(&link, &disciplines)),
            _ => None,
        })
        .collect())
}

fn qdisc(message: RouteNetlinkMessage) -> Option<TcMessage> {
    match message {
        RouteNetlinkMessage::NewQueueDiscipline(discipline) => Some(discipline),
        _ => None,
    }
}

impl Interface {
    fn read(link: &LinkMessage, disciplines: &[TcMessage]) -> Self {
        let mut interface = Self {
            name: String::new(),
            kind: None,
            loopback: link.header.flags.contains(LinkFlags::Loopback),
            up: link.header.flags.contains(LinkFlags::Up),
            mtu: 0,
            transmit_queue: 0,
            receive_queues: 1,
            qdiscs: leaf_qdiscs(link.header.index, disciplines),
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

/// Returns the kinds of the disciplines that queue packets of interface `index`: the root, or the children
/// of `mq`.
fn leaf_qdiscs(index: u32, disciplines: &[TcMessage]) -> Vec<String> {
    let is_outgoing = |message: &&TcMessage| {
        message.header.index as u32 == index && message.header.parent != TcHandle::INGRESS
    };
    let outgoing_qdiscs: Vec<&TcMessage> = disciplines.iter().filter(is_outgoing).collect();
    let mut kinds: Vec<String> = outgoing_qdiscs
        .iter()
        .filter_map(|message| kind(message))
        .collect();
    if kinds.iter().any(|kind| kind != "mq") {
        kinds.retain(|kind| kind != "mq");
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

fn kind(message: &TcMessage) -> Option<String> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        })
}

/// Sends a dump request and returns all answers of the kernel.
fn dump(query: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(query), 0)?;
    let mut datagram = vec![0; DATAGRAM_LEN_MAX];
    let mut found = Vec::new();
    loop {
        let size = socket.recv(&mut &mut datagram[..], 0)?;
        if !collect(&datagram[..size], &mut found)? {
            return Ok(found);
        }
    }
}

fn request(query: RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(query));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Adds the messages of one datagram to `found`. Returns false at the end of the dump.
fn collect(mut datagram: &[u8], found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(answer) => found.push(answer),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(_) => return Ok(false),
            _ => {}
        }
        let step = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(step.max(4)..).unwrap_or_default();
    }
    Ok(true)
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
        let message = |index, parent, kind: &str| {
            let mut message = TcMessage::with_index(index);
            message.header.parent = parent;
            message.attributes.push(TcAttribute::Kind(kind.to_owned()));
            message
        };
        let queue = TcHandle { major: 0, minor: 1 };
        let all = [
            message(2, TcHandle::ROOT, "mq"),
            message(2, queue, "fq"),
            message(2, queue, "fq"),
            message(2, TcHandle::INGRESS, "clsact"),
            message(3, TcHandle::ROOT, "mq"),
        ];
        assert_eq!(leaf_qdiscs(2, &all), ["fq"]);
        assert_eq!(leaf_qdiscs(3, &all), ["mq"]);
        assert_eq!(leaf_qdiscs(4, &all), [""; 0]);
    }
}
