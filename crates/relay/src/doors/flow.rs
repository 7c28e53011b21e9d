// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections whose far leg was opened before their near leg.

use crate::route::far::Far;
use longhaul_packet::{ip, tcp};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

/// Who wants to go where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    client: (IpAddr, u16),
    destination: (IpAddr, u16),
}

impl Flow {
    /// Scopes and flow labels don't count.
    pub(crate) fn new(client: SocketAddr, destination: SocketAddr) -> Self {
        let pair = |address: SocketAddr| (address.ip(), address.port());
        Self {
            client: pair(client),
            destination: pair(destination),
        }
    }

    /// Of a packet that starts with its IP header, if it is a whole TCP header's worth.
    pub(crate) fn of_packet(packet: &[u8]) -> Option<Self> {
        let transport = ip::transport(packet)?;
        let header = tcp::Header::at(packet.get(transport.offset..)?)?;
        if transport.protocol != ip::TCP || transport.fragment {
            return None;
        }
        let (source, destination) = addresses(packet)?;
        Some(Self {
            client: (source, header.source()),
            destination: (destination, header.destination()),
        })
    }

    pub(crate) fn client(&self) -> SocketAddr {
        self.client.into()
    }

    pub(crate) fn destination(&self) -> SocketAddr {
        self.destination.into()
    }
}

/// Source and destination (RFC 791 §3.1, RFC 8200 §3).
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    fn at<const N: usize>(packet: &[u8], offset: usize) -> Option<IpAddr>
    where
        IpAddr: From<[u8; N]>,
    {
        let bytes: [u8; N] = packet.get(offset..offset + N)?.try_into().ok()?;
        Some(bytes.into())
    }
    match ip::version(packet)? {
        ip::Version::V4 => Some((at::<4>(packet, 12)?, at::<4>(packet, 16)?)),
        ip::Version::V6 => Some((at::<16>(packet, 8)?, at::<16>(packet, 24)?)),
    }
}

/// Far legs that wait for their near legs. Each waits for an ACK that is on its way; who puts them
/// in bounds their number.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<HashMap<Flow, (Instant, Far)>>);

impl Ready {
    /// How long a client may take for its ACK.
    const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn put(&self, flow: Flow, far: Far) {
        self.lock().insert(flow, (Instant::now(), far));
    }

    /// Takes out the far leg of this connection.
    pub(crate) fn take(&self, flow: Flow) -> Option<Far> {
        self.lock().remove(&flow).map(|(_, far)| far)
    }

    pub(crate) fn has(&self, flow: Flow) -> bool {
        self.lock().contains_key(&flow)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resets those that nobody came for.
    pub(crate) fn expire(&self) {
        self.lock().retain(|_, (since, far)| {
            let keep = since.elapsed() < Self::PATIENCE;
            if !keep {
                far.stream.carrier().reset_on_close();
            }
            keep
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Flow, (Instant, Far)>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_syn_of_either_family_and_no_fragment_of_one() {
        let mut tcp = vec![0; 20];
        tcp[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        tcp[12] = 5 << 4;
        let mut four = vec![
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        four.extend(&tcp);
        let flow = Flow::of_packet(&four).unwrap();
        assert_eq!(flow.client(), "10.0.0.1:40000".parse().unwrap());
        assert_eq!(flow.destination(), "10.0.0.2:80".parse().unwrap());
        four[7] = 1;
        assert_eq!(Flow::of_packet(&four), None);

        let mut six = vec![0; 40];
        (six[0], six[6], six[23], six[39]) = (0x60, 6, 1, 2);
        six.extend(&tcp);
        let flow = Flow::of_packet(&six).unwrap();
        assert_eq!(
            flow,
            Flow::new("[::1]:40000".parse().unwrap(), "[::2]:80".parse().unwrap())
        );
        for len in 0..six.len() {
            assert_eq!(Flow::of_packet(&six[..len]), None, "{len}");
        }
    }
}
