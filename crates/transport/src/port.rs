// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP ports as they are asked for.

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
/// A port that is taken, an address that this host lacks.
pub fn bind(at: SocketAddr, config: Config, control: Control) -> io::Result<Socket> {
    let control = move |first, window| control.new_control(first, window);
    Socket::bind(at, config, Box::new(control))
}

/// Any port of this host from which `to` can be reached.
pub fn any_address_for(to: SocketAddr) -> SocketAddr {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    (any, 0).into()
}

/// Who decides how fast an end sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// UDT's own.
    Native,
    /// After BBR: for every path, and those most that lose packets without a queue.
    #[default]
    Bbr,
}

impl Control {
    /// The control of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<Error>::new(name)).ok()
    }

    /// One for a connection, whose first number is its seed.
    fn new_control(self, first: Seq, window: u32) -> Box<dyn congestion::Control> {
        let seed = first.get().into();
        match self {
            Self::Native => Box::new(Native::new(first, window, seed)),
            Self::Bbr => Box::new(Bbr::new(first, window, seed)),
        }
    }
}

/// The ports that connections leave by, each taken when the first one does: a socket of IPv6 reaches no address of IPv4,
/// and a name may lead to both.
#[derive(Debug, Default)]
pub struct OutboundSockets {
    ipv4: SharedSocket,
    ipv6: SharedSocket,
}

/// The port of one family, once it is taken.
#[derive(Debug, Default)]
struct SharedSocket(Mutex<Option<Arc<Socket>>>);

impl OutboundSockets {
    /// Connects to `to`; a port that is taken for it has this congestion control.
    ///
    /// # Errors
    /// No port, nobody who listens there, no answer in time.
    pub async fn connect(
        &self,
        to: SocketAddr,
        config: Config,
        control: Control,
    ) -> io::Result<Stream> {
        let port = match to {
            SocketAddr::V4(_) => &self.ipv4,
            SocketAddr::V6(_) => &self.ipv6,
        };
        let socket = port.socket(|| bind(any_address_for(to), config, control))?;
        let connected = socket.connect(to).await;
        connected.inspect_err(|error| {
            let is_answer = [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused];
            if !is_answer.contains(&error.kind()) {
                // The next connection takes another: this one may be broken.
                port.lock().take();
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
        let taken = Arc::new(bind()?);
        Ok(socket.insert(taken).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Socket>>> {
        self.0.lock()
    }
}
