// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a UDP flow.

use super::datagram::{CapturedDatagram, Datagram, End};
use super::handshake::Handshake;
use super::quic::{Header, version_name};
use super::record::{Quic, UdpDirection, UdpFlow};
use super::spin_bit::SpinTracker;
use crate::segment::{CapturePoint, FlowKey};

/// Ports below this one are of servers (RFC 6335 §6).
const SYSTEM_PORTS_END: u16 = 1024;

/// Flow that has not ended.
#[derive(Debug)]
pub(super) struct FlowState {
    number: u64,
    capture_point: CapturePoint,
    key: FlowKey,
    client_is_low: bool,
    first_ns: u64,
    last_ns: u64,
    /// Counts of upload and download.
    directions: [UdpDirection; 2],
    quic: Option<Box<QuicState>>,
}

/// QUIC connection that has not ended.
#[derive(Debug, Default)]
struct QuicState {
    version: u32,
    handshake: Handshake,
    spin: SpinTracker,
}

impl FlowState {
    /// Creates the flow of a datagram, which is not counted yet.
    pub(super) fn new(item: &CapturedDatagram) -> Self {
        let CapturedDatagram { key, datagram, .. } = item;
        Self {
            number: item.number,
            capture_point: item.capture_point,
            key: *key,
            client_is_low: client_is_low(key, datagram.from_low),
            first_ns: datagram.at_ns,
            last_ns: datagram.at_ns,
            directions: [UdpDirection::default(); 2],
            quic: None,
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the key by which the flow seen longest ago is the least.
    pub(super) fn age(&self) -> (u64, u64) {
        (self.last_ns, self.number)
    }

    /// Returns the memory of the flow besides its own entry, bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let quic = self.quic.as_ref();
        quic.map_or(0, |quic| size_of::<QuicState>() + quic.spin.bytes())
    }

    pub(super) fn process(&mut self, datagram: &Datagram) {
        let sender = if datagram.from_low == self.client_is_low {
            End::Client
        } else {
            End::Server
        };
        self.last_ns = self.last_ns.max(datagram.at_ns);
        count(&mut self.directions[sender as usize], datagram);
        match (&mut self.quic, datagram.quic) {
            (Some(quic), Some(header)) => quic.process(datagram.at_ns, sender, header),
            (none, Some(header @ Header::Long { .. })) => {
                let quic = none.insert(Box::default());
                quic.process(datagram.at_ns, sender, header);
            }
            _ => {}
        }
    }

    pub(super) fn finish(self) -> UdpFlow {
        let [client, server] = self.key.ends(self.client_is_low);
        let [upload, download] = self.directions;
        UdpFlow {
            number: self.number,
            capture_point: self.capture_point,
            client,
            server,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            upload,
            download,
            quic: self.quic.map(|quic| quic.finish()),
        }
    }
}

impl QuicState {
    fn process(&mut self, at_ns: u64, sender: End, header: Header) {
        match header {
            Header::Long { version } => {
                self.version = version;
                self.handshake.process(at_ns, sender);
            }
            Header::Short { spin } => {
                if let Some(rtt_ns) = self.handshake.rtt_ns() {
                    self.spin.set_handshake_rtt(rtt_ns);
                }
                self.spin.process(at_ns, sender, spin);
            }
        }
    }

    fn finish(&self) -> Quic {
        let mut quic = Quic {
            version: version_name(self.version).unwrap_or_default(),
            handshake_rtt_ns: self.handshake.rtt_ns(),
            ..Quic::default()
        };
        self.spin.write_to(&mut quic);
        quic
    }
}

/// Returns whether the lesser end is the client: the sender of the first datagram, unless its port alone is one of
/// servers.
fn client_is_low(key: &FlowKey, from_low: bool) -> bool {
    let is_server = |port: u16| port < SYSTEM_PORTS_END;
    match (is_server(key.low.port), is_server(key.high.port)) {
        (true, false) => false,
        (false, true) => true,
        _ => from_low,
    }
}

fn count(direction: &mut UdpDirection, datagram: &Datagram) {
    direction.packets += 1;
    direction.wire_datagrams += u64::from(datagram.wire_datagrams);
    direction.wire_bytes += u64::from(datagram.wire_bytes);
    direction.payload_bytes += u64::from(datagram.payload_bytes);
    direction.first_ns.get_or_insert(datagram.at_ns);
    direction.last_ns = direction.last_ns.max(Some(datagram.at_ns));
}
