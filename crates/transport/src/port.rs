// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP sockets for UDT, and the selection of their congestion control.

use longhaul_udt::{
    Config, Seq,
    congestion::{self, Bbr, Native},
    socket::{Socket, Stream},
};
use parking_lot::{Mutex, MutexGuard};
use serde::{
    Deserialize,
    de::value::{Error, StrDeserializer},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

/// Binds a UDP port for UDT with this congestion control.
///
/// # Errors
/// The port is taken, or this host lacks the address.
pub fn bind(at: SocketAddr, config: Config, control: UdtCongestionControl) -> io::Result<Socket> {
    let control = move |first, window| control.new_control(first, window);
    Socket::bind(at, config, Box::new(control))
}

/// Returns the unspecified address and port from which `to` can be reached.
pub fn any_address_for(to: SocketAddr) -> SocketAddr {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    (any, 0).into()
}

/// Congestion control of a UDT sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UdtCongestionControl {
    /// Native control of UDT.
    Native,
    /// BBR: suits every path, and above all those that lose packets without congestion.
    #[default]
    Bbr,
}

impl UdtCongestionControl {
    /// Returns the control with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<Error>::new(name)).ok()
    }

    /// Creates a control for a connection. The initial sequence number is also the seed of its random numbers.
    fn new_control(self, first: Seq, window: u32) -> Box<dyn congestion::Control> {
        let seed = first.get().into();
        match self {
            Self::Native => Box::new(Native::new(first, window, seed)),
            Self::Bbr => Box::new(Bbr::new(first, window, seed)),
        }
    }
}

/// Sockets of outgoing connections, one per address family, each bound at its first use. An IPv6 socket reaches no
/// IPv4 address, and a host name may have both.
#[derive(Debug, Default)]
pub struct OutboundSockets {
    ipv4: SharedSocket,
    ipv6: SharedSocket,
}

/// Socket of one address family, once it is bound.
#[derive(Debug, Default)]
struct SharedSocket(Mutex<Option<Arc<Socket>>>);

impl OutboundSockets {
    /// Connects to `to`. If no socket of its family is bound yet, binds one with this configuration and congestion control.
    ///
    /// # Errors
    /// No port is free, the peer refuses the connection, or no answer comes in time.
    pub async fn connect(
        &self,
        to: SocketAddr,
        config: Config,
        control: UdtCongestionControl,
    ) -> io::Result<Stream> {
        let shared = match to {
            SocketAddr::V4(_) => &self.ipv4,
            SocketAddr::V6(_) => &self.ipv6,
        };
        let socket = shared.socket(|| bind(any_address_for(to), config, control))?;
        let connected = socket.connect(to).await;
        connected.inspect_err(|error| {
            let remote_errors = [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused];
            if !remote_errors.contains(&error.kind()) {
                // The socket itself may have failed: the next connection binds another.
                shared.lock().take();
            }
        })
    }
}

impl SharedSocket {
    fn socket(&self, bind: impl FnOnce() -> io::Result<Socket>) -> io::Result<Arc<Socket>> {
        let mut socket = self.lock();
        if let Some(socket) = &*socket {
            return Ok(socket.clone());
        }
        let bound = Arc::new(bind()?);
        Ok(socket.insert(bound).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Socket>>> {
        self.0.lock()
    }
}
