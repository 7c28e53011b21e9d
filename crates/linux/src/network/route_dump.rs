// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dump requests to rtnetlink, in the calling thread's network namespace. No rights are needed.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

/// Maximum length of one datagram of a dump, in bytes. The kernel fills at most 32 KiB at a time
/// (`net/netlink/af_netlink.c`, `netlink_dump`).
const DATAGRAM_LEN_MAX: usize = 32 * 1024;

/// Sends a dump request, and gives each answer of the kernel to `take`.
pub(super) fn dump<M>(query: M, mut take: impl FnMut(M)) -> io::Result<()>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(query), 0)?;
    let mut datagram = vec![0; DATAGRAM_LEN_MAX];
    loop {
        let size = socket.recv(&mut &mut datagram[..], 0)?;
        if !read_datagram(&datagram[..size], &mut take)? {
            return Ok(());
        }
    }
}

fn request<M: NetlinkSerializable>(query: M) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(query));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Gives the messages of one datagram to `take`. Returns false at the end of the dump.
fn read_datagram<M: NetlinkDeserializable>(
    mut datagram: &[u8],
    take: &mut impl FnMut(M),
) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(datagram)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(answer) => take(answer),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Done(_) => return Ok(false),
            _ => {}
        }
        let step = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(step.max(4)..).unwrap_or_default();
    }
    Ok(true)
}
