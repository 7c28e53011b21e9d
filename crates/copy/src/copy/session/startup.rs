// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start of the two endpoints of a session, and of endpoints without a peer.

use super::{
    endpoint_process::{EndpointProcess, LOG_HINT, host_name},
    job::{HostPair, Job},
    ssh_process::is_openssh,
    ssh_tunnel::SshTunnel,
};
use crate::{
    copy::location::{Host, Location},
    protocol::{
        control::{Begin, Rendezvous, Role, Task},
        options::Transport,
        report::Report,
        sources::Sources,
    },
};
use anyhow::{Result, anyhow, bail};
use longhaul_command::{errln, exit::Refusal, threads};
use longhaul_store::tree::spread::TreeShare;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    os::unix::ffi::OsStrExt,
    sync::{atomic::Ordering::Relaxed, mpsc::channel},
    time::Duration,
};

/// Time for a connection that shows whether a host is reached directly.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Outcome of a session.
pub(crate) enum SessionOutcome {
    /// Both endpoints have finished.
    Finished,
    /// The session broke, after `gained` bytes or entries had become durable.
    Broken { why: String, gained: u64 },
}

impl SessionOutcome {
    /// Returns the outcome after an endpoint on `host` failed to start.
    fn failed_start(report: Option<Report>, role: Role, host: Option<&Host>) -> Result<Self> {
        match report {
            Some(Report::Refused(why)) => Err(Refusal::usage(why)),
            Some(Report::PortsInUse(why)) => Err(anyhow!(why)),
            Some(Report::Broken(why)) => Ok(Self::Broken { why, gained: 0 }),
            _ => Ok(Self::Broken {
                why: format!(
                    "the {} on {} exited; {LOG_HINT}",
                    role.name(),
                    host_name(host)
                ),
                gained: 0,
            }),
        }
    }
}

/// Outcome of starting two endpoints.
pub(crate) enum StartOutcome {
    /// Both endpoints are running and connect to each other.
    Started {
        source: EndpointProcess,
        target: EndpointProcess,
    },
    /// One endpoint failed to start.
    Failed(SessionOutcome),
}

/// Locations of the sources, and the shares of them that the target stores.
#[derive(Default)]
struct TargetContext {
    sources: Sources,
    shares: Vec<TreeShare>,
}

impl Job<'_> {
    /// Starts the process of an endpoint.
    pub(crate) fn start_endpoint(&self, host: Option<&Host>) -> Result<EndpointProcess> {
        EndpointProcess::start(host, self.config, &self.keyring)
    }

    /// Starts an endpoint without a peer.
    pub(crate) fn start_alone(
        &self,
        pair: HostPair<'_>,
        role: Role,
        task: Task,
    ) -> Result<EndpointProcess> {
        self.start_alone_with_sources(pair, role, task, Sources::default())
    }

    /// Starts an endpoint without a peer, for a target that may be on the host of the sources.
    pub(crate) fn start_alone_with_sources(
        &self,
        pair: HostPair<'_>,
        role: Role,
        task: Task,
        sources: Sources,
    ) -> Result<EndpointProcess> {
        let host = pair.host(role);
        let mut process = self.start_endpoint(host)?;
        let contact = Contact::of(&mut process, host)?;
        let context = TargetContext {
            sources,
            shares: Vec::new(),
        };
        process.send(&self.begin_message(role, task, &contact, Rendezvous::Wait, context))?;
        Ok(process)
    }

    /// Starts a source and a target that connect to each other.
    pub(crate) fn start_pair(&self, pair: HostPair<'_>, task: Task) -> Result<StartOutcome> {
        let mut source = self.start_endpoint(pair.source)?;
        let mut target = self.start_endpoint(pair.target)?;
        let source_contact = Contact::of(&mut source, pair.source)?;
        let target_contact = Contact::of(&mut target, pair.target)?;
        // The remote side listens, because ssh could reach it. The source starts first: the target must not be changed
        // before the sources are open.
        let source_listens = pair.source.is_some() && pair.target.is_none();
        let rendezvous = if source_listens {
            self.listen_on(&source_contact)?
        } else {
            Rendezvous::Wait
        };
        let none = TargetContext::default();
        source.send(&self.begin_message(Role::Source, task, &target_contact, rendezvous, none))?;
        let mut shares = match task {
            Task::Spread(placement) => self.target_shares(placement.host),
            _ => Vec::new(),
        };
        let failed_start = |report, role| {
            SessionOutcome::failed_start(report, role, pair.host(role)).map(StartOutcome::Failed)
        };
        let sources = loop {
            match source.receive_report()? {
                Some(Report::Shares(stored)) => shares.extend(stored),
                Some(Report::Sources(sources)) => break sources,
                other => return failed_start(other, Role::Source),
            }
        };
        let context = TargetContext { sources, shares };
        match (source.receive_report()?, source_listens) {
            (Some(Report::Listening(port)), true) => {
                let (way, tunnel) = self.way_to(&source_contact, pair, port)?;
                target.keep_tunnel(tunnel);
                target.send(&self.begin_message(
                    Role::Target,
                    task,
                    &source_contact,
                    way,
                    context,
                ))?;
            }
            (Some(Report::Ready), false) => {
                let rendezvous = self.listen_on(&target_contact)?;
                target.send(&self.begin_message(
                    Role::Target,
                    task,
                    &source_contact,
                    rendezvous,
                    context,
                ))?;
                match target.receive_report()? {
                    Some(Report::Listening(port)) => {
                        let (way, tunnel) = self.way_to(&target_contact, pair, port)?;
                        source.keep_tunnel(tunnel);
                        source.send(&way)?;
                    }
                    other => return failed_start(other, Role::Target),
                }
            }
            (other, _) => return failed_start(other, Role::Source),
        }
        Ok(StartOutcome::Started { source, target })
    }

    fn begin_message(
        &self,
        role: Role,
        task: Task,
        peer: &Contact,
        rendezvous: Rendezvous,
        TargetContext { sources, shares }: TargetContext,
    ) -> Begin {
        let bytes = |location: &Location| location.path.as_bytes().to_vec();
        let first = |locations: &Vec<Location>| locations.first().map(bytes).unwrap_or_default();
        Begin {
            role,
            paths: match role {
                Role::Source => self.config.sources.iter().map(first).collect(),
                Role::Target => vec![first(&self.config.target)],
            },
            options: self.options(task),
            peer_certificate: peer.certificate.clone(),
            rendezvous,
            task,
            sources,
            shares,
        }
    }

    fn listen_on(&self, contact: &Contact) -> Result<Rendezvous> {
        let is_unknown = contact.addresses.is_empty();
        Ok(Rendezvous::Listen {
            at: if is_unknown && self.may_use_tunnels() {
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            } else {
                contact.listen_address()?
            },
            ports: self.config.ports,
        })
    }

    /// Whether connections can go through ssh: between this machine and another one.
    fn may_use_tunnels(&self) -> bool {
        let hosts = self.config.sources.iter().chain([&self.config.target]);
        let is_here = |locations: &Vec<Location>| locations.iter().all(|at| at.host.is_none());
        hosts.clone().any(is_here)
            && is_openssh(&self.config.ssh)
            && self.config.options.transport == Transport::Tcp
    }

    /// Returns how the local endpoint connects to the listening one. The first session checks the direct way only if ssh
    /// itself takes another: a middlebox may count connections.
    fn way_to(
        &self,
        contact: &Contact,
        pair: HostPair<'_>,
        port: u16,
    ) -> Result<(Rendezvous, Option<SshTunnel>)> {
        let is_first = !self.has_started.swap(true, Relaxed);
        let is_taken_for_direct = is_first && contact.is_direct;
        let direct = (contact.connect_to_port(port), None);
        let ((Some(Host::Ssh(host)), None) | (None, Some(Host::Ssh(host)))) =
            (pair.source, pair.target)
        else {
            return Ok(direct);
        };
        if is_taken_for_direct || !self.may_use_tunnels() || contact.is_reachable(port) {
            return Ok(direct);
        }
        if self.are_tunnels_refused.load(Relaxed) {
            return Err(Refusal::usage(format!(
                "{host} cannot be reached for data, and its ssh forwards no connections: set AllowTcpForwarding there, \
                 use a key or an agent instead of a password, or open a port and name it with --ports"
            )));
        }
        let at = contact.own_address.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let is_refused = &self.are_tunnels_refused;
        let tunnel = SshTunnel::open(&self.config.ssh, host, (at, port).into(), is_refused)?;
        if !self.through_ssh.swap(true, Relaxed) {
            errln!(
                "longhaul: port {port} of {host} cannot be reached: the data goes through ssh, a process for each stream"
            );
        }
        Ok((Rendezvous::Connect(vec![tunnel.address()]), Some(tunnel)))
    }
}

/// Contact data of an endpoint before it starts to work.
struct Contact {
    certificate: Vec<u8>,
    /// Address that the endpoint's host knows as its own, to listen on.
    own_address: Option<IpAddr>,
    /// Addresses of the endpoint as its host and as this machine know it. These may differ because of network address
    /// translation.
    addresses: Vec<IpAddr>,
    /// Whether the connection to the host goes to one of these addresses. That of ssh through a jump host does not.
    is_direct: bool,
}

impl Contact {
    fn of(process: &mut EndpointProcess, host: Option<&Host>) -> Result<Self> {
        let Some(hello) = process.receive_hello(host)? else {
            bail!(
                "the endpoint on {} exited at once; {LOG_HINT}",
                host_name(host)
            );
        };
        let (own_address, reached) = match host {
            // A local endpoint is reached only from this machine.
            None => (Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), None),
            Some(Host::Site { .. }) => (process.peer_address(), None),
            Some(Host::Ssh(_)) => (
                hello.ssh.map(|(_, own_address)| own_address),
                process.peer_address(),
            ),
        };
        let other = reached.filter(|reached| Some(*reached) != own_address);
        Ok(Self {
            certificate: hello.certificate,
            own_address,
            addresses: own_address.into_iter().chain(other).collect(),
            is_direct: host.is_none() || reached.is_some(),
        })
    }

    /// Tries to connect to any of the addresses.
    fn is_reachable(&self, port: u16) -> bool {
        let (sender, connected) = channel();
        for address in &self.addresses {
            let (address, sender) = (SocketAddr::from((*address, port)), sender.clone());
            let tried = threads::spawn(move || {
                let connected = TcpStream::connect_timeout(&address, CHECK_TIMEOUT);
                if connected.is_ok() {
                    // Another address may have answered first.
                    let _ = sender.send(());
                }
            });
            if tried.is_err() {
                return true;
            }
        }
        drop(sender);
        connected.recv().is_ok()
    }

    /// Returns the address to listen on. If the address of the ssh connection is unknown, because sudo removes
    /// `SSH_CONNECTION`, the endpoint listens on all its addresses.
    fn listen_address(&self) -> Result<IpAddr> {
        let any = |reached: &IpAddr| match reached {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let at = self.own_address.or(self.addresses.first().map(any));
        at.ok_or_else(|| {
            Refusal::usage(
                "the address of the other side is unknown: keep SSH_CONNECTION for longhaul there (with sudo: \
                 --remote-program 'sudo --preserve-env=SSH_CONNECTION longhaul')",
            )
        })
    }

    /// Returns the instruction to connect to this endpoint at `port`.
    fn connect_to_port(&self, port: u16) -> Rendezvous {
        let addresses = self.addresses.iter();
        Rendezvous::Connect(addresses.map(|ip| (*ip, port).into()).collect())
    }
}
