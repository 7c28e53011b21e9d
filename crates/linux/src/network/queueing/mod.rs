// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queueing disciplines of the calling thread's network namespace, and what they let pass, through rtnetlink. No
//! rights are needed.

mod htb;
mod message;
mod options;
mod police;

pub use htb::Class;
pub use options::Limits;

use super::route_dump::dump;
use message::{
    EGRESS_FILTERS, GET_CLASS, GET_FILTER, GET_QDISC, INGRESS, INGRESS_FILTERS, ROOT, TcMessage,
    handle_text,
};
use serde::{Deserialize, Serialize};
use std::io;

/// A queueing discipline, or a filter that drops packets beyond a rate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Discipline {
    /// Index of the interface.
    pub interface: u32,
    /// Kind of the discipline; `police` of a filter.
    pub kind: String,
    /// Handle as tc prints it. `0:` is that of the kernel's own choice.
    pub handle: String,
    /// `root`, `ingress`, `egress`, or the handle of the class that it belongs to.
    pub parent: String,
    /// Preference of a filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<u32>,
    /// Rates, queues, delay and loss of what passes it.
    pub limits: Limits,
    /// Class of the packets that no filter classifies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_class: Option<Class>,
    /// Slowest of the other classes that hold packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_class: Option<Class>,
}

impl Discipline {
    /// Whether outgoing packets queue in it.
    #[must_use]
    pub fn is_outgoing_queue(&self) -> bool {
        self.preference.is_none() && self.parent != "ingress"
    }
}

/// Returns the disciplines and police filters of all interfaces.
pub fn list() -> io::Result<Vec<Discipline>> {
    let qdiscs = messages(GET_QDISC, 0, 0)?;
    let classes = classes(&qdiscs)?;
    let mut all: Vec<Discipline> = qdiscs
        .iter()
        .map(|qdisc| describe(qdisc, &classes))
        .collect();
    for qdisc in qdiscs.iter().filter(|qdisc| qdisc.parent == INGRESS) {
        for parent in [INGRESS_FILTERS, EGRESS_FILTERS] {
            let filters = filters(qdisc.interface, parent)?;
            all.extend(filters.iter().filter_map(describe_police));
        }
    }
    Ok(all)
}

fn messages(query: u16, interface: u32, parent: u32) -> io::Result<Vec<TcMessage>> {
    let request = TcMessage {
        message_type: query,
        interface,
        parent,
        ..TcMessage::default()
    };
    let mut found = Vec::new();
    dump(request, |message| found.push(message))?;
    Ok(found)
}

/// Reads the classes of each interface that has HTB.
fn classes(qdiscs: &[TcMessage]) -> io::Result<Vec<TcMessage>> {
    let with_htb = qdiscs.iter().filter(|qdisc| qdisc.kind == "htb");
    let mut interfaces: Vec<u32> = with_htb.map(|qdisc| qdisc.interface).collect();
    interfaces.dedup();
    let mut all = Vec::new();
    for interface in interfaces {
        all.extend(messages(GET_CLASS, interface, 0)?);
    }
    Ok(all)
}

/// Reads filters. A kernel without them answers that they are not supported.
fn filters(interface: u32, parent: u32) -> io::Result<Vec<TcMessage>> {
    match messages(GET_FILTER, interface, parent) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
        found => found,
    }
}

fn describe(qdisc: &TcMessage, classes: &[TcMessage]) -> Discipline {
    let (default_class, slowest_class) = match qdisc.kind.as_str() {
        "htb" => htb::classes(qdisc, classes),
        _ => (None, None),
    };
    Discipline {
        interface: qdisc.interface,
        kind: qdisc.kind.clone(),
        handle: handle_text(qdisc.handle),
        parent: parent_text(qdisc.parent),
        limits: options::limits(&qdisc.kind, &qdisc.options),
        default_class,
        slowest_class,
        ..Discipline::default()
    }
}

fn describe_police(filter: &TcMessage) -> Option<Discipline> {
    let rate_bits = Some(police::rate(filter)?);
    Some(Discipline {
        interface: filter.interface,
        kind: "police".to_owned(),
        handle: handle_text(filter.handle),
        parent: parent_text(filter.parent),
        preference: Some(filter.info >> 16),
        limits: Limits {
            rate_bits,
            ..Limits::default()
        },
        ..Discipline::default()
    })
}

fn parent_text(parent: u32) -> String {
    match parent {
        ROOT => "root".to_owned(),
        INGRESS | INGRESS_FILTERS => "ingress".to_owned(),
        EGRESS_FILTERS => "egress".to_owned(),
        class => handle_text(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_disciplines_of_this_host() {
        for discipline in list().unwrap() {
            assert!(!discipline.kind.is_empty(), "{discipline:?}");
            assert!(discipline.interface > 0, "{discipline:?}");
        }
    }

    #[test]
    fn names_handles_as_tc_does() {
        assert_eq!(handle_text(0x8001_0000), "8001:");
        assert_eq!(handle_text(0x1_0010), "1:10");
        assert_eq!(handle_text(0), "0:");
        assert_eq!(parent_text(0xffff_ffff), "root");
        assert_eq!(parent_text(0xffff_fff1), "ingress");
    }
}
