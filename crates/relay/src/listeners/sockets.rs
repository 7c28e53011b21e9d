// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens listening sockets, or adopts those that the service manager passed (socket activation).

use crate::{
    config::{
        Config,
        listener::{Kind, ListenerConfig},
        settings::Transport,
    },
    leg::{profile::set_initial_window, udt},
    listeners::listener::Listener,
};
use longhaul_command::exit::{LOW_PORT_REQUIREMENT, Refusal};
use longhaul_linux::{
    activation,
    netfilter::marks::DOWNSTREAM_MARK,
    socket::{self, MissingRight},
};
use longhaul_udt::socket::Socket;
use std::{
    io::{self},
    net::TcpListener,
    sync::Arc,
};
use tracing::warn;

/// Passed sockets that no listener has adopted yet.
#[derive(Debug)]
pub(crate) struct PassedSockets(Vec<activation::PassedSocket>);

impl PassedSockets {
    /// Takes the sockets that were passed to this process.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let passed = activation::take();
        passed.map(Self).map_err(|error| {
            Refusal::usage(format!(
                "LISTEN_FDS, LISTEN_FDNAMES: {error}: not what a service manager passes"
            ))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the sockets for `listener`: of its name, or on its address. If there are
    /// none, the listener opens its own.
    pub(crate) fn take_for(
        &mut self,
        listener: &ListenerConfig,
    ) -> anyhow::Result<Vec<TcpListener>> {
        let is_for = |passed: &mut activation::PassedSocket| {
            // Only TCP sockets have an address.
            let address = passed
                .address()
                .filter(|_| listener.transport == Transport::Tcp);
            let named = passed.name == listener.name;
            address.is_some() && (named || address == Some(listener.address))
        };
        let adopted: Vec<_> = self.0.extract_if(.., is_for).collect();
        for passed in &adopted {
            passed
                .address()
                .map_or(Ok(()), |at| listener.check_address(at))?;
        }
        Ok(adopted.into_iter().map(TcpListener::from).collect())
    }

    /// Refuses sockets that no listener has adopted: nothing would serve their clients.
    pub(crate) fn check_none_left(&self) -> anyhow::Result<()> {
        let Some(passed) = self.0.first() else {
            return Ok(());
        };
        let name = &passed.name;
        Err(Refusal::usage(match passed.address() {
            Some(address) => format!(
                "the service manager passed socket {name} ({address}), which no listener uses: \
                 give one this address, or name the socket after it (FileDescriptorName=)"
            ),
            None => format!(
                "the service manager passed {name}, which is not a TCP socket that listens \
                 (ListenStream=)"
            ),
        }))
    }
}

/// Listening socket for a worker.
pub(crate) struct WorkerSocket {
    pub(crate) listener: Arc<Listener>,
    /// Generation of the listener's sockets that this one belongs to.
    pub(crate) generation: u64,
    pub(crate) socket: ListenSocket,
}

/// Listening socket of TCP or UDT.
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    Udt(Socket),
}

/// A listener and its sockets: one for each worker, or one for all.
pub(crate) type OpenListener = (Arc<Listener>, Vec<ListenSocket>);

pub(crate) fn open_listeners(
    config: &Config,
    passed: &mut PassedSockets,
) -> anyhow::Result<Vec<OpenListener>> {
    let supported = config
        .listeners
        .iter()
        .filter(|listener| is_supported(listener));
    let opened: Vec<_> = supported
        .map(|listener| open_listener(config, listener, &passed.take_for(listener)?))
        .collect::<Result<_, _>>()?;
    passed.check_none_left()?;
    if opened.is_empty() {
        Err(Refusal::unsupported(
            "no listener is left: IPv6 is off here",
        ))
    } else {
        Ok(opened)
    }
}

/// Whether this host supports the listener. A transparent IPv6 listener is skipped where IPv6 is
/// off: there is nothing to divert, and the other listeners still work.
pub(crate) fn is_supported(listener: &ListenerConfig) -> bool {
    let transparent = matches!(listener.kind, Kind::Transparent { .. });
    let supported = !transparent
        || listener.address.is_ipv4()
        || !longhaul_linux::interface::is_ipv6_disabled();
    if !supported {
        warn!(
            "IPv6 is off here: transparent {} is skipped",
            listener.address
        );
    }
    supported
}

/// Opens a listener, on the `passed` sockets if there are any.
pub(crate) fn open_listener(
    config: &Config,
    listener: &ListenerConfig,
    passed: &[TcpListener],
) -> anyhow::Result<OpenListener> {
    if listener.transport == Transport::Udt {
        return open_udt_listener(listener);
    }
    let is_passed = !passed.is_empty();
    let sockets = if is_passed {
        socket::adopt(passed, config.limits.workers, &socket_options(listener))
    } else {
        listen(config, listener)
    };
    let sockets = sockets
        .and_then(|sockets| with_initial_window(sockets, listener))
        .map_err(|error| listen_error(error, listener))?;
    let mut listener = Listener::new(listener.clone(), sockets[0].local_addr()?);
    listener.is_passed = is_passed;
    Ok((
        Arc::new(listener),
        sockets.into_iter().map(ListenSocket::Tcp).collect(),
    ))
}

/// Opens the sockets of a listener. If another program has the port on IPv4, a listener on `[::]` takes IPv6 alone.
fn listen(config: &Config, listener: &ListenerConfig) -> io::Result<Vec<TcpListener>> {
    let (address, workers) = (listener.address, config.limits.workers);
    let options = options_to_open(config, listener);
    let opened = socket::listen(address, workers, &options);
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    if address.is_ipv4() || !options.dual_stack || !opened.as_ref().is_err_and(is_taken) {
        return opened;
    }
    let ipv6_alone = socket::Options {
        dual_stack: false,
        ..options
    };
    let opened = socket::listen(address, workers, &ipv6_alone)?;
    warn!("{address} takes IPv6 alone: another program has the port on IPv4");
    Ok(opened)
}

fn open_udt_listener(listener: &ListenerConfig) -> anyhow::Result<OpenListener> {
    let socket = udt::listen(listener.address, &listener.profile);
    let socket = socket.map_err(|error| listen_error(error, listener))?;
    let listener = Listener::new(listener.clone(), socket.local_addr());
    Ok((Arc::new(listener), vec![ListenSocket::Udt(socket)]))
}

/// Sets the initial window of the listener's profile for the connections that the sockets accept.
pub(crate) fn with_initial_window(
    sockets: Vec<TcpListener>,
    listener: &ListenerConfig,
) -> io::Result<Vec<TcpListener>> {
    let profile = &listener.profile;
    sockets
        .iter()
        .try_for_each(|socket| set_initial_window(profile, socket))?;
    Ok(sockets)
}

/// Socket options for listening sockets; accepted sockets inherit them.
pub(crate) fn socket_options(listener: &ListenerConfig) -> socket::Options {
    let keeps_source = listener.intercept.as_ref().is_some_and(|i| i.keeps_source);
    let own = listener.profile.options.mark;
    socket::Options {
        transparent: matches!(listener.kind, Kind::Transparent { .. }),
        save_syn: matches!(listener.kind, Kind::Transparent { .. }),
        mark: keeps_source.then_some(DOWNSTREAM_MARK).or(own),
        ..listener.profile.options.clone()
    }
}

/// Options of sockets that the relay opens itself; the family of passed ones was decided by their opener.
pub(crate) fn options_to_open(config: &Config, listener: &ListenerConfig) -> socket::Options {
    socket::Options {
        dual_stack: config.is_dual_stack(listener),
        ..socket_options(listener)
    }
}

fn listen_error(error: io::Error, listener: &ListenerConfig) -> anyhow::Error {
    let ListenerConfig {
        kind,
        address,
        name,
        ..
    } = listener;
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Refusal::unsupported(format!("--{kind} {address}: {}", describe_denial(&error)))
        }
        _ if *name == address.to_string() => {
            anyhow::Error::new(error).context(format!("--{kind} {address}"))
        }
        _ => anyhow::Error::new(error).context(format!("listener {name} ({kind} {address})")),
    }
}

/// Names the right that a refused call needs. bind(2) refuses a low port with EACCES, options are refused with EPERM.
fn describe_denial(error: &io::Error) -> String {
    let not_permitted = rustix::io::Errno::PERM.raw_os_error();
    match MissingRight::of(error) {
        Some(missing) if missing.option == "SO_MARK" => {
            format!("{missing}; --intercept-local and --keep-source set it (run it as root)")
        }
        Some(missing) => format!("{missing} (run it as root)"),
        None if error.raw_os_error() == Some(not_permitted) => error.to_string(),
        None => LOW_PORT_REQUIREMENT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_low_ports_only_if_bind_is_refused() {
        let denial =
            |errno: rustix::io::Errno| describe_denial(&errno.into()).contains("ports below");
        assert!(denial(rustix::io::Errno::ACCESS));
        assert!(!denial(rustix::io::Errno::PERM));
    }
}
