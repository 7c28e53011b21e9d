// SPDX-License-Identifier: MIT OR Apache-2.0
//! How two ends are started and made known to each other.

use super::{
    endpoint_process::{EndpointProcess, LOG_HINT, host_name},
    job::{HostPair, Job},
};
use crate::{
    copy::location::{Host, Location},
    protocol::{
        control::{Begin, Rendezvous, Role, Task},
        report::Report,
        sources::Sources,
        spread::Share,
    },
};
use anyhow::{Result, anyhow, bail};
use longhaul_command::exit::Refusal;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::ffi::OsStrExt,
};

/// How a conversation ended.
pub(crate) enum SessionOutcome {
    Finished,
    /// So many bytes or entries became durable before it broke.
    Broken {
        why: String,
        gained: u64,
    },
}

impl SessionOutcome {
    /// An end on `host` that did not get as far as to begin.
    fn failed_start(report: Option<Report>, role: Role, host: Option<&Host>) -> Result<Self> {
        match report {
            Some(Report::Refused(why)) => Err(Refusal::usage(why)),
            Some(Report::PortsInUse(why)) => Err(anyhow!(why)),
            Some(Report::Broken(why)) => Ok(Self::Broken { why, gained: 0 }),
            _ => Ok(Self::Broken {
                why: format!(
                    "the {} on {} went away; {LOG_HINT}",
                    role.name(),
                    host_name(host)
                ),
                gained: 0,
            }),
        }
    }
}

/// What came of starting two ends.
pub(crate) enum StartOutcome {
    Started {
        source: EndpointProcess,
        target: EndpointProcess,
    },
    /// One did not get as far as to begin.
    Failed(SessionOutcome),
}

/// What a target is told of the sources: where they are, and which shares it keeps of them.
type TargetContext = (Sources, Vec<Share>);

impl Job<'_> {
    /// One end by itself.
    pub(crate) fn start_endpoint(&self, host: Option<&Host>) -> Result<EndpointProcess> {
        EndpointProcess::start(host, self.config, &self.keyring)
    }

    /// An end that meets nobody.
    pub(crate) fn start_alone(
        &self,
        pair: HostPair<'_>,
        role: Role,
        task: Task,
    ) -> Result<EndpointProcess> {
        self.start_alone_with_sources(pair, role, task, Sources::default())
    }

    /// The same, for a target that may be where the sources are.
    pub(crate) fn start_alone_with_sources(
        &self,
        pair: HostPair<'_>,
        role: Role,
        task: Task,
        sources: Sources,
    ) -> Result<EndpointProcess> {
        let host = pair.host(role);
        let mut far = self.start_endpoint(host)?;
        let nobody = Contact::of(&mut far, host)?;
        let known = (sources, Vec::new());
        far.send(&self.begin_message((role, task), &nobody, Rendezvous::Wait, known))?;
        Ok(far)
    }

    /// Two processes that know each other.
    pub(crate) fn start_pair(&self, pair: HostPair<'_>, task: Task) -> Result<StartOutcome> {
        let mut source = self.start_endpoint(pair.source)?;
        let mut target = self.start_endpoint(pair.target)?;
        let near = Contact::of(&mut source, pair.source)?;
        let far = Contact::of(&mut target, pair.target)?;
        // Who is elsewhere can be reached: ssh did. And the source begins: before it has what it shall copy, the
        // target must not be touched.
        let source_listens = pair.source.is_some() && pair.target.is_none();
        let meeting = match source_listens {
            true => self.listen_on(&near)?,
            false => Rendezvous::Wait,
        };
        let none = TargetContext::default();
        source.send(&self.begin_message((Role::Source, task), &far, meeting, none))?;
        let mut shares = match task {
            Task::Spread(placement) => self.target_shares(placement.host),
            _ => Vec::new(),
        };
        let early = |report, role| {
            SessionOutcome::failed_start(report, role, pair.host(role)).map(StartOutcome::Failed)
        };
        let sources = loop {
            match source.receive_report()? {
                Some(Report::Shares(kept)) => shares.extend(kept),
                Some(Report::Sources(sources)) => break sources,
                other => return early(other, Role::Source),
            }
        };
        let known = (sources, shares);
        let as_target = (Role::Target, task);
        match (source.receive_report()?, source_listens) {
            (Some(Report::Listening(port)), true) => {
                target.send(&self.begin_message(
                    as_target,
                    &near,
                    near.connect_to_port(port),
                    known,
                ))?;
            }
            (Some(Report::Ready), false) => {
                let meeting = self.listen_on(&far)?;
                target.send(&self.begin_message(as_target, &near, meeting, known))?;
                match target.receive_report()? {
                    Some(Report::Listening(port)) => {
                        source.send(&far.connect_to_port(port))?;
                    }
                    other => return early(other, Role::Target),
                }
            }
            (other, _) => return early(other, Role::Source),
        }
        Ok(StartOutcome::Started { source, target })
    }

    fn begin_message(
        &self,
        (role, task): (Role, Task),
        peer: &Contact,
        meeting: Rendezvous,
        (sources, shares): TargetContext,
    ) -> Begin {
        let bytes = |place: &Location| place.path.as_bytes().to_vec();
        let first = |places: &Vec<Location>| places.first().map(bytes).unwrap_or_default();
        Begin {
            role,
            paths: match role {
                Role::Source => self.config.sources.iter().map(first).collect(),
                Role::Target => vec![first(&self.config.target)],
            },
            options: self.options(task),
            peer_certificate: peer.certificate.clone(),
            rendezvous: meeting,
            task,
            sources,
            shares,
        }
    }

    fn listen_on(&self, who: &Contact) -> Result<Rendezvous> {
        Ok(Rendezvous::Listen {
            at: who.listen_address()?,
            ports: self.config.ports,
        })
    }
}

/// What is known of an end before it begins.
struct Contact {
    certificate: Vec<u8>,
    /// Its own address, of those it was reached at.
    own_address: Option<IpAddr>,
    /// Where it can be reached: as its host and as ours call it, which may differ (network address translation).
    addresses: Vec<IpAddr>,
}

impl Contact {
    fn of(far: &mut EndpointProcess, host: Option<&Host>) -> Result<Self> {
        let Some(hello) = far.receive_hello(host)? else {
            bail!(
                "the end of the copy on {} went away at once; {LOG_HINT}",
                host_name(host)
            );
        };
        let (own, reached) = match host {
            // What is here is reached from here alone.
            None => (Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), None),
            Some(Host::Site { .. }) => (far.peer_address(), None),
            Some(Host::Ssh(_)) => (hello.ssh.map(|(_, own)| own), far.peer_address()),
        };
        let other = reached.filter(|reached| Some(*reached) != own);
        Ok(Self {
            certificate: hello.certificate,
            own_address: own,
            addresses: own.into_iter().chain(other).collect(),
        })
    }

    /// Where it listens: on all its addresses, if ssh's own is not known (sudo takes `SSH_CONNECTION` away).
    fn listen_address(&self) -> Result<IpAddr> {
        let any = |reached: &IpAddr| match reached {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let at = self.own_address.or(self.addresses.first().map(any));
        at.ok_or_else(|| {
            Refusal::usage(
                "it is not known where the other side can be reached: keep SSH_CONNECTION for longhaul there (with sudo: \
                 --remote-program 'sudo --preserve-env=SSH_CONNECTION longhaul')",
            )
        })
    }

    /// How to come to what listens there.
    fn connect_to_port(&self, port: u16) -> Rendezvous {
        let addresses = self.addresses.iter();
        Rendezvous::Connect(addresses.map(|ip| (*ip, port).into()).collect())
    }
}
