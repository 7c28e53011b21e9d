// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy as it was asked for, and how two ends of it are started and made known to each other.

use super::{
    args::Args,
    far::Far,
    hearing::{Ending, HostNames},
    keyring::Keyring,
    place::{Host, Place},
};
use crate::protocol::{
    options::{Options, Streams, Switch},
    order::{Begin, Meeting, Role, Task},
    report::Report,
    sources::Sources,
};
use anyhow::{Context as _, Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_store::{
    origin::Origin,
    preserve::Preserve,
    scan::{means_contents, source_name},
    spread::Share,
};
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// What a target is told of the sources: where they are, and which shares it keeps of them.
type Known = (Sources, Vec<Share>);

/// Streams within one machine: a thread at either end each, and no path to fill.
const STREAMS_HERE: u16 = 4;

/// What shall be copied where to. Each place may be at several hosts, which share it.
pub(super) struct Job<'a> {
    pub(super) args: &'a Args,
    pub(super) sources: Vec<Vec<Place>>,
    pub(super) target: Vec<Place>,
    /// For sites.
    keys: Keyring,
}

/// Where the two ends of a conversation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    source: Option<&'a Host>,
    target: Option<&'a Host>,
}

impl fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", name(self.source), name(self.target))
    }
}

impl Pair<'_> {
    pub(super) fn names(&self) -> HostNames {
        HostNames {
            source: name(self.source),
            target: name(self.target),
        }
    }

    pub(super) fn target_name(&self) -> String {
        name(self.target)
    }
}

fn name(host: Option<&Host>) -> String {
    host.map_or("here".to_owned(), ToString::to_string)
}

/// What came of starting two ends.
pub(super) enum Met {
    Both {
        source: Far,
        target: Far,
    },
    /// One did not get as far as to begin.
    Early(Ending),
}

impl<'a> Job<'a> {
    pub(super) fn read(args: &'a Args) -> Result<Self> {
        args.check_transport().map_err(Refusal::usage)?;
        args.check_places().map_err(Refusal::usage)?;
        let places = args.places.iter().map(|text| Place::parse_shared(text));
        let mut sources: Vec<Vec<Place>> = places.collect::<Result<_>>()?;
        let target = sources.pop().context("no target")?;
        on_one_side(&sources)?;
        let sites = sources.iter().chain([&target]).flatten();
        let sites: Vec<_> = sites.filter_map(Place::site).cloned().collect();
        let keys = Keyring::find(&sites, args.token_file.as_deref())?;
        let job = Self {
            args,
            sources,
            target,
            keys,
        };
        if args.leases.is_none() && args.apart.is_none() && job.pairs() > 1 {
            return Err(Refusal::usage(
                "several hosts that see the same files share their work through a database: --leases postgresql://…; if each has \
                 files of its own: --apart source, target or both (or name one host)",
            ));
        }
        Ok(job)
    }

    /// So many different ones there are until each host was in one.
    pub(super) fn pairs(&self) -> usize {
        let sources = self.sources.first().map_or(1, Vec::len);
        sources.max(self.target.len())
    }

    /// Hosts of both sides, in turn.
    pub(super) fn pair(&self, number: usize) -> Pair<'_> {
        self.pair_of(number, number)
    }

    /// A host of either side, in turn.
    pub(super) fn pair_of(&self, source: usize, target: usize) -> Pair<'_> {
        let sources = self.sources.first();
        Pair {
            source: sources.and_then(|places| host_of(places, source)),
            target: host_of(&self.target, target),
        }
    }

    pub(super) fn source_name(&self, host: usize) -> String {
        name(self.pair(host).source)
    }

    /// Where each host of the target is among them all in the order of their names: so it is the same in whichever order they
    /// are given.
    pub(super) fn target_ranks(&self) -> Vec<u16> {
        let names: Vec<String> = (0..self.target.len())
            .map(|host| self.pair(host).target_name())
            .collect();
        let before = |name: &String| names.iter().filter(|other| *other < name).count() as u16;
        names.iter().map(before).collect()
    }

    /// From one place of this machine to another.
    fn stays_here(&self) -> bool {
        let mut places = self.sources.iter().chain([&self.target]).flatten();
        places.all(|place| place.host.is_none())
    }

    pub(super) fn goes_abroad(&self) -> bool {
        !self.stays_here()
    }

    /// One end by itself.
    pub(super) fn start(&self, host: Option<&Host>) -> Result<Far> {
        Far::start(host, self.args, &self.keys)
    }

    /// An end that meets nobody.
    pub(super) fn alone(&self, pair: Pair<'_>, role: Role, task: Task) -> Result<Far> {
        self.alone_knowing(pair, role, task, Sources::default())
    }

    /// The same, for a target that may be where the sources are.
    pub(super) fn alone_knowing(
        &self,
        pair: Pair<'_>,
        role: Role,
        task: Task,
        sources: Sources,
    ) -> Result<Far> {
        let host = match role {
            Role::Source => pair.source,
            Role::Target => pair.target,
        };
        let mut far = self.start(host)?;
        let nobody = Hello::of(&mut far, host)?;
        let known = (sources, Vec::new());
        far.tell(&self.begin((role, task), &nobody, Meeting::Later, known))?;
        Ok(far)
    }

    /// Two processes that know each other.
    pub(super) fn meet(&self, pair: Pair<'_>, task: Task) -> Result<Met> {
        let mut source = self.start(pair.source)?;
        let mut target = self.start(pair.target)?;
        let near = Hello::of(&mut source, pair.source)?;
        let far = Hello::of(&mut target, pair.target)?;
        // Who is elsewhere can be reached: ssh did. And the source begins: before it has what it shall copy, the
        // target must not be touched.
        let source_listens = pair.source.is_some() && pair.target.is_none();
        let meeting = match source_listens {
            true => self.listening(&near)?,
            false => Meeting::Later,
        };
        let none = Known::default();
        source.tell(&self.begin((Role::Source, task), &far, meeting, none))?;
        let mut shares = match task {
            Task::Spread(placement) => self.shares(placement.host),
            _ => Vec::new(),
        };
        let sources = loop {
            match source.report()? {
                Some(Report::Shares(kept)) => shares.extend(kept),
                Some(Report::Sources(sources)) => break sources,
                other => return Ending::early(other).map(Met::Early),
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
                    other => return Ending::early(other).map(Met::Early),
                }
            }
            (other, _) => return Ending::early(other).map(Met::Early),
        }
        Ok(Met::Both { source, target })
    }

    fn begin(
        &self,
        (role, task): (Role, Task),
        peer: &Hello,
        meeting: Meeting,
        (sources, shares): Known,
    ) -> Begin {
        let bytes = |place: &Place| place.path.as_bytes().to_vec();
        let first = |places: &Vec<Place>| places.first().map(bytes).unwrap_or_default();
        Begin {
            role,
            paths: match role {
                Role::Source => self.sources.iter().map(first).collect(),
                Role::Target => vec![first(&self.target)],
            },
            options: self.options(task),
            peer_certificate: peer.certificate.clone(),
            meeting,
            task,
            sources,
            shares,
        }
    }

    /// What the target of this rank keeps of each source that is spread.
    fn shares(&self, rank: u16) -> Vec<Share> {
        let mut hosts: Vec<String> = (0..self.target.len())
            .map(|host| self.pair(host).target_name())
            .collect();
        hosts.sort();
        let sources = self.sources.iter().filter_map(|places| places.first());
        let share = |place: &Place| Share {
            origin: self.origin(),
            top: source_name(Path::new(&place.path)).ok().flatten(),
            rank,
            hosts: hosts.clone(),
        };
        sources.map(share).collect()
    }

    fn options(&self, task: Task) -> Options {
        let args = self.args;
        Options {
            streams: match (args.streams, self.stays_here()) {
                // Nothing goes over them.
                _ if args.dry_run => Streams::Exactly(1),
                (Streams::Auto, true) => Streams::Exactly(STREAMS_HERE),
                (streams, _) => streams,
            },
            pace: args.pace,
            congestion_control: args.cc.clone(),
            transport: args.transport,
            encrypt: args.encrypt.unwrap_or(match self.stays_here() {
                true => Switch::Off,
                false => Switch::On,
            }),
            hash: args.hash,
            limit: args.limit.map(longhaul_units::BitRate::bits),
            silence: args.silence,
            dry_run: args.dry_run,
            checksum: args.checksum,
            // Only who sees all of it knows what is too much.
            delete: args.delete && !matches!(task, Task::Extents | Task::Gather(_)),
            update: args.update,
            one_file_system: args.one_file_system,
            rules: args.patterns.rules.clone(),
            preserve: self.preserve(),
            into_directory: self.goes_into_directory(),
            origin: self.origin(),
        }
    }

    /// What a site sends is somebody else's, unless the user says otherwise.
    pub(super) fn preserve(&self) -> Preserve {
        let of_site = self
            .sources
            .iter()
            .flatten()
            .any(|place| place.site().is_some());
        self.args.preserved.preserve(of_site)
    }

    /// The same for the same command, from wherever on this machine.
    fn origin(&self) -> Origin {
        let shown = |place: &Place| match &place.host {
            Some(host) => format!("{host} {:?}", place.path),
            None => format!("{:?}", std::path::absolute(&place.path).ok()),
        };
        let sources = self.sources.iter().flatten().map(shown);
        Sha256::digest(sources.collect::<Vec<_>>().join("\n")).into()
    }

    /// With several always: what one of them makes must not change what the next one means.
    fn goes_into_directory(&self) -> bool {
        let slash = |place: &Place| place.path.as_bytes().ends_with(b"/");
        let contents = |place: &Place| means_contents(Path::new(&place.path));
        self.sources.len() > 1
            || self.args.leases.is_some()
            || self.args.apart.is_some()
            || self.target.iter().any(slash)
            || self.sources.iter().flatten().any(contents)
    }

    fn listening(&self, who: &Hello) -> Result<Meeting> {
        Ok(Meeting::Listen {
            at: who.listens_at()?,
            ports: self.args.ports,
        })
    }
}

fn host_of(places: &[Place], number: usize) -> Option<&Host> {
    places.get(number % places.len().max(1))?.host.as_ref()
}

fn on_one_side(sources: &[Vec<Place>]) -> Result<()> {
    let hosts = |places: &[Place]| -> Vec<String> {
        let name = |place: &Place| place.host.as_ref().map(ToString::to_string);
        let shown = |place| name(place).unwrap_or("this machine".to_owned());
        places.iter().map(shown).collect()
    };
    let mut all = sources.iter().map(|places| hosts(places).join(","));
    let Some(first) = all.next() else {
        return Ok(());
    };
    match all.find(|other| *other != first) {
        None => Ok(()),
        Some(other) => Err(Refusal::usage(format!(
            "sources are on {first} and on {other}: copy from one host at a time"
        ))),
    }
}

/// What is known of an end before it begins.
struct Hello {
    certificate: Vec<u8>,
    /// Its own address, of those it was reached at.
    own: Option<IpAddr>,
    /// Where it can be reached: as its host and as ours call it, which may differ (network address translation).
    addresses: Vec<IpAddr>,
}

impl Hello {
    fn of(far: &mut Far, host: Option<&Host>) -> Result<Self> {
        match far.report()? {
            Some(Report::Hello {
                certificate,
                ssh,
                version,
            }) if version == longhaul_command::release() => {
                let (own, reached) = match host {
                    // What is here is reached from here alone.
                    None => (Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), None),
                    Some(Host::Site { .. }) => (far.reached(), None),
                    Some(Host::Ssh(_)) => (ssh.map(|(_, own)| own), far.reached()),
                };
                let other = reached.filter(|reached| Some(*reached) != own);
                Ok(Self {
                    certificate,
                    own,
                    addresses: own.into_iter().chain(other).collect(),
                })
            }
            Some(Report::Hello { version, .. }) => Err(Refusal::usage(format!(
                "the other side is longhaul {version}, this one {}: they must be the same",
                longhaul_command::release()
            ))),
            _ => bail!("an end of the copy went away at once"),
        }
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
    fn at(&self, port: u16) -> Meeting {
        let addresses = self.addresses.iter();
        Meeting::Connect(addresses.map(|ip| (*ip, port).into()).collect())
    }
}
