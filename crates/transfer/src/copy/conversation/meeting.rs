// SPDX-License-Identifier: MIT OR Apache-2.0
//! How two ends are started and made known to each other.

use super::{
    far::{Far, LAST_TRACES, shown},
    job::{Job, Pair},
};
use crate::{
    copy::place::{Host, Place},
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
pub(crate) enum Ending {
    Over,
    /// So many bytes or entries became durable before it broke.
    Broken {
        why: String,
        gained: u64,
    },
}

impl Ending {
    /// An end on `host` that did not get as far as to begin.
    fn early(report: Option<Report>, role: Role, host: Option<&Host>) -> Result<Self> {
        match report {
            Some(Report::Refused(why)) => Err(Refusal::usage(why)),
            Some(Report::PortsInUse(why)) => Err(anyhow!(why)),
            Some(Report::Broken(why)) => Ok(Self::Broken { why, gained: 0 }),
            _ => Ok(Self::Broken {
                why: format!(
                    "the {} on {} went away; {LAST_TRACES}",
                    role.name(),
                    shown(host)
                ),
                gained: 0,
            }),
        }
    }
}

/// What came of starting two ends.
pub(crate) enum Met {
    Both {
        source: Far,
        target: Far,
    },
    /// One did not get as far as to begin.
    Early(Ending),
}

/// What a target is told of the sources: where they are, and which shares it keeps of them.
type Known = (Sources, Vec<Share>);

impl Job<'_> {
    /// One end by itself.
    pub(crate) fn start(&self, host: Option<&Host>) -> Result<Far> {
        Far::start(host, self.config, &self.keys)
    }

    /// An end that meets nobody.
    pub(crate) fn alone(&self, pair: Pair<'_>, role: Role, task: Task) -> Result<Far> {
        self.alone_knowing(pair, role, task, Sources::default())
    }

    /// The same, for a target that may be where the sources are.
    pub(crate) fn alone_knowing(
        &self,
        pair: Pair<'_>,
        role: Role,
        task: Task,
        sources: Sources,
    ) -> Result<Far> {
        let host = pair.host(role);
        let mut far = self.start(host)?;
        let nobody = Contact::of(&mut far, host)?;
        let known = (sources, Vec::new());
        far.tell(&self.begin((role, task), &nobody, Rendezvous::Wait, known))?;
        Ok(far)
    }

    /// Two processes that know each other.
    pub(crate) fn meet(&self, pair: Pair<'_>, task: Task) -> Result<Met> {
        let mut source = self.start(pair.source)?;
        let mut target = self.start(pair.target)?;
        let near = Contact::of(&mut source, pair.source)?;
        let far = Contact::of(&mut target, pair.target)?;
        // Who is elsewhere can be reached: ssh did. And the source begins: before it has what it shall copy, the
        // target must not be touched.
        let source_listens = pair.source.is_some() && pair.target.is_none();
        let meeting = match source_listens {
            true => self.listening(&near)?,
            false => Rendezvous::Wait,
        };
        let none = Known::default();
        source.tell(&self.begin((Role::Source, task), &far, meeting, none))?;
        let mut shares = match task {
            Task::Spread(placement) => self.shares(placement.host),
            _ => Vec::new(),
        };
        let early = |report, role| Ending::early(report, role, pair.host(role)).map(Met::Early);
        let sources = loop {
            match source.report()? {
                Some(Report::Shares(kept)) => shares.extend(kept),
                Some(Report::Sources(sources)) => break sources,
                other => return early(other, Role::Source),
            }
        };
        let known = (sources, shares);
        let as_target = (Role::Target, task);
        match (source.report()?, source_listens) {
            (Some(Report::Listening(port)), true) => {
                target.tell(&self.begin(as_target, &near, near.at(port), known))?;
            }
            (Some(Report::Ready), false) => {
                let meeting = self.listening(&far)?;
                target.tell(&self.begin(as_target, &near, meeting, known))?;
                match target.report()? {
                    Some(Report::Listening(port)) => {
                        source.tell(&far.at(port))?;
                    }
                    other => return early(other, Role::Target),
                }
            }
            (other, _) => return early(other, Role::Source),
        }
        Ok(Met::Both { source, target })
    }

    fn begin(
        &self,
        (role, task): (Role, Task),
        peer: &Contact,
        meeting: Rendezvous,
        (sources, shares): Known,
    ) -> Begin {
        let bytes = |place: &Place| place.path.as_bytes().to_vec();
        let first = |places: &Vec<Place>| places.first().map(bytes).unwrap_or_default();
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

    fn listening(&self, who: &Contact) -> Result<Rendezvous> {
        Ok(Rendezvous::Listen {
            at: who.listens_at()?,
            ports: self.config.ports,
        })
    }
}

/// What is known of an end before it begins.
struct Contact {
    certificate: Vec<u8>,
    /// Its own address, of those it was reached at.
    own: Option<IpAddr>,
    /// Where it can be reached: as its host and as ours call it, which may differ (network address translation).
    addresses: Vec<IpAddr>,
}

impl Contact {
    fn of(far: &mut Far, host: Option<&Host>) -> Result<Self> {
        let Some(hello) = far.hello(host)? else {
            bail!(
                "the end of the copy on {} went away at once; {LAST_TRACES}",
                shown(host)
            );
        };
        let (own, reached) = match host {
            // What is here is reached from here alone.
            None => (Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), None),
            Some(Host::Site { .. }) => (far.reached(), None),
            Some(Host::Ssh(_)) => (hello.ssh.map(|(_, own)| own), far.reached()),
        };
        let other = reached.filter(|reached| Some(*reached) != own);
        Ok(Self {
            certificate: hello.certificate,
            own,
            addresses: own.into_iter().chain(other).collect(),
        })
    }

    /// Where it listens: on all its addresses, if ssh's own is not known (sudo takes `SSH_CONNECTION` away).
    fn listens_at(&self) -> Result<IpAddr> {
        let any = |reached: &IpAddr| match reached {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let at = self.own.or(self.addresses.first().map(any));
        at.ok_or_else(|| {
            Refusal::usage(
                "it is not known where the other side can be reached: keep SSH_CONNECTION for longhaul there (with sudo: \
                 --remote-program 'sudo --preserve-env=SSH_CONNECTION longhaul')",
            )
        })
    }

    /// How to come to what listens there.
    fn at(&self, port: u16) -> Rendezvous {
        let addresses = self.addresses.iter();
        Rendezvous::Connect(addresses.map(|ip| (*ip, port).into()).collect())
    }
}
