// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages about queueing disciplines, classes and filters (`struct tcmsg` and its attributes,
//! `include/uapi/linux/rtnetlink.h`), with the options as the kernel's bytes.

use netlink_packet_core::{
    DecodeError, NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
    NlasIterator, parse_string,
};

/// RTM_GETQDISC, RTM_GETTCLASS and RTM_GETTFILTER.
pub(super) const GET_QDISC: u16 = 38;
pub(super) const GET_CLASS: u16 = 42;
pub(super) const GET_FILTER: u16 = 46;

/// Length of `struct tcmsg` in bytes.
const HEADER_LEN: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// Handle of a root (TC_H_ROOT, `include/uapi/linux/pkt_sched.h`).
pub(super) const ROOT: u32 = 0xffff_ffff;
/// Handle of the parent of an ingress discipline (TC_H_INGRESS, TC_H_CLSACT).
pub(super) const INGRESS: u32 = 0xffff_fff1;
/// Parents of filters (TC_H_MIN_INGRESS, TC_H_MIN_EGRESS).
pub(super) const INGRESS_FILTERS: u32 = 0xffff_fff2;
pub(super) const EGRESS_FILTERS: u32 = 0xffff_fff3;

/// A request or an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TcMessage {
    pub(super) message_type: u16,
    pub(super) interface: u32,
    pub(super) handle: u32,
    pub(super) parent: u32,
    /// Of a filter: preference and protocol.
    pub(super) info: u32,
    pub(super) kind: String,
    /// Contents of TCA_OPTIONS, whose format the kind determines.
    pub(super) options: Vec<u8>,
}

impl NetlinkSerializable for TcMessage {
    fn message_type(&self) -> u16 {
        self.message_type
    }

    fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let words = [0, self.interface, self.handle, self.parent, self.info];
        for (to, word) in buffer.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

impl NetlinkDeserializable for TcMessage {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        let too_short = || DecodeError::buffer_too_small(payload.len(), HEADER_LEN);
        let word = |number| word(payload, number).ok_or_else(too_short);
        let mut message = Self {
            message_type: header.message_type,
            interface: word(1)?,
            handle: word(2)?,
            parent: word(3)?,
            info: word(4)?,
            ..Self::default()
        };
        for attribute in NlasIterator::new(&payload[HEADER_LEN..]) {
            let attribute = attribute?;
            match attribute.kind() {
                TCA_KIND => message.kind = parse_string(attribute.value())?,
                TCA_OPTIONS => message.options = attribute.value().to_vec(),
                _ => {}
            }
        }
        Ok(message)
    }
}

/// Returns a word of 32 bits in the host's byte order; `number` counts words.
pub(super) fn word(bytes: &[u8], number: usize) -> Option<u32> {
    let found = bytes.get(number * 4..number * 4 + 4)?;
    found.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns a word of 64 bits, alone in `bytes`.
pub(super) fn long(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// Returns the value of the first attribute of this type. Attributes after a malformed one are ignored.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(bytes).map_while(Result::ok);
    let found = attributes.find(|attribute| attribute.kind() == kind)?;
    let end = usize::from(found.length());
    found.into_inner().get(NLA_HEADER_SIZE..end)
}

/// Returns a handle as tc prints it: `1:` of a discipline, `1:10` of a class.
pub(super) fn handle_text(handle: u32) -> String {
    match (handle >> 16, handle & 0xffff) {
        (major, 0) => format!("{major:x}:"),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}
