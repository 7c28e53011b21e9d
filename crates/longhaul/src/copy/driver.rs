// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that was called: it starts both ends, makes them known to each other, says how far they are, and starts
//! them again when the conversation breaks.

use super::{
    args::{Args, Streams, Switch},
    far::Far,
    hearing::{Ending, Hearing},
    order::{Begin, Meeting, Options, Report, Role, Task},
    place::{Host, Place},
};
use crate::{exit::Refusal, site::Keyring};
use anyhow::{Context as _, Result, bail};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

/// Streams within one machine: a thread at either end each, and no path to fill.
const STREAMS_HERE: u16 = 4;

/// Between two conversations.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// How long nothing may become durable before it is given up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A copy as it was asked for.
struct Job<'a> {
    args: &'a Args,
    sources: Vec<Place>,
    target: Place,
    /// For sites.
    keys: Keyring,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let job = Job::read(args)?;
    let (began, mut pauses) = (Instant::now(), PAUSES.iter().cycle());
    let mut hearing = Hearing::new(args, began);
    let mut last_gain = Instant::now();
    for conversation in 0.. {
        match job.conversation(conversation, &mut hearing)? {
            Ending::Over => return job.finish(&mut hearing),
            Ending::Broken { why, gained } => {
                if gained > 0 {
                    last_gain = Instant::now();
                    pauses = PAUSES.iter().cycle();
                }
                let pause = *pauses.next().unwrap_or(&PAUSES[0]);
                if last_gain.elapsed() + pause > PATIENCE {
                    bail!("{why}; given up, the same command goes on from here");
                }
                hearing.note(&format!("{why}; going on in {} s", pause.as_secs_f32()));
                std::thread::sleep(pause);
                hearing.again();
            }
        }
    }
    Ok(())
}

impl<'a> Job<'a> {
    fn read(args: &'a Args) -> Result<Self> {
        let places = args.places.iter().map(|text| Place::parse(text));
        let mut sources: Vec<Place> = places.collect::<Result<_>>()?;
        let target = sources.pop().context("no target")?;
        let host = sources.first().and_then(|first| first.host.clone());
        if let Some(other) = sources.iter().find(|place| place.host != host) {
            let name = |host: &Option<Host>| host.as_ref().map(ToString::to_string);
            let place = |host| name(host).unwrap_or("this machine".to_owned());
            return Err(Refusal::usage(format!(
                "sources are on {} and on {}: copy from one host at a time",
                place(&host),
                place(&other.host)
            )));
        }
        let sites = sources.iter().chain([&target]).filter_map(Place::site);
        let sites: Vec<_> = sites.cloned().collect();
        let keys = Keyring::find(&sites, args.token_file.as_deref())?;
        Ok(Self {
            args,
            sources,
            target,
            keys,
        })
    }

    fn options(&self) -> Options {
        let slash = |place: &Place| place.path.as_bytes().ends_with(b"/");
        Options {
            streams: match (self.args.streams, self.stays_here()) {
                // Nothing goes over them.
                _ if self.args.dry_run => Streams::Exactly(1),
                (Streams::Auto, true) => Streams::Exactly(STREAMS_HERE),
                (streams, _) => streams,
            },
            balance: self.args.balance,
            pace: self.args.pace,
            congestion_control: self.args.cc.clone(),
            encrypt: self.args.encrypt.unwrap_or(match self.stays_here() {
                true => Switch::Off,
                false => Switch::On,
            }),
            hash: self.args.hash,
            limit: self.args.limit.map(units::BitRate::bits),
            silence: self.args.silence,
            dry_run: self.args.dry_run,
            checksum: self.args.checksum,
            delete: self.args.delete,
            update: self.args.update,
            exclude: self.args.exclude.clone(),
            include: self.args.include.clone(),
            into_directory: self.sources.len() > 1
                || slash(&self.target)
                || self.sources.iter().any(slash),
        }
    }

    /// From one place of this machine to another.
    fn stays_here(&self) -> bool {
        let mut places = self.sources.iter().chain([&self.target]);
        places.all(|place| place.host.is_none())
    }

    /// What goes wrong in a conversation ends it, and another may follow. But a host that can't be reached the first
    /// time will not be the next.
    fn conversation(&self, number: u32, hearing: &mut Hearing) -> Result<Ending> {
        let places = || self.sources.iter().chain([&self.target]);
        let first_abroad = number == 0 && places().any(|place| place.host.is_some());
        match self.converse(hearing) {
            Err(error) if !first_abroad && !error.is::<Refusal>() => Ok(Ending::Broken {
                why: format!("{error:#}"),
                gained: 0,
            }),
            other => other,
        }
    }

    /// From two processes to none.
    fn converse(&self, hearing: &mut Hearing) -> Result<Ending> {
        let start = |place: &Place| Far::start(place.host.as_ref(), self.args, &self.keys);
        let mut source = start(&self.sources[0])?;
        let mut target = start(&self.target)?;
        let [near, far] = [Hello::of(&mut source)?, Hello::of(&mut target)?];
        // Who is elsewhere can be reached: ssh did. And the source begins: before it has what it shall copy, the
        // target must not be touched.
        let source_listens = self.sources[0].host.is_some() && self.target.host.is_none();
        let meeting = match source_listens {
            true => self.listening(&near),
            false => Meeting::Later,
        };
        source.tell(&self.begin(Role::Source, &far, meeting))?;
        match (source.report()?, source_listens) {
            (Some(Report::Listening(port)), true) => {
                let meeting = Meeting::Connect((near.address(), port).into());
                target.tell(&self.begin(Role::Target, &near, meeting))?;
            }
            (Some(Report::Ready), false) => {
                target.tell(&self.begin(Role::Target, &near, self.listening(&far)))?;
                match target.report()? {
                    Some(Report::Listening(port)) => {
                        source.tell(&Meeting::Connect((far.address(), port).into()))?;
                    }
                    other => return Ending::early(other),
                }
            }
            (other, _) => return Ending::early(other),
        }
        hearing.follow(source, target)
    }

    fn begin(&self, role: Role, peer: &Hello, meeting: Meeting) -> Begin {
        let bytes = |place: &Place| place.path.as_bytes().to_vec();
        Begin {
            role,
            paths: match role {
                Role::Source => self.sources.iter().map(bytes).collect(),
                Role::Target => vec![bytes(&self.target)],
            },
            options: self.options(),
            peer_certificate: peer.certificate.clone(),
            meeting,
            task: Task::Whole,
        }
    }

    fn listening(&self, who: &Hello) -> Meeting {
        Meeting::Listen {
            at: who.address(),
            ports: self.args.ports,
        }
    }

    fn finish(&self, hearing: &mut Hearing) -> Result<()> {
        let record = hearing.conclude();
        match (self.args.json, self.args.quiet) {
            (true, _) => println!("{}", serde_json::to_string(&record)?),
            (false, false) => println!("{record}"),
            (false, true) => {}
        }
        match record.failed {
            0 => Ok(()),
            failed => bail!("{failed} could not be copied"),
        }
    }
}

/// What an end says of itself.
struct Hello {
    certificate: Vec<u8>,
    /// Where ssh or we reached it.
    reached: Option<IpAddr>,
}

impl Hello {
    /// What is here is reached from here alone.
    fn address(&self) -> IpAddr {
        self.reached.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn of(far: &mut Far) -> Result<Self> {
        match far.report()? {
            Some(Report::Hello {
                certificate,
                ssh,
                version,
            }) if version == env!("CARGO_PKG_VERSION") => Ok(Self {
                certificate,
                reached: far.site().or(ssh.map(|(_, own)| own)),
            }),
            Some(Report::Hello { version, .. }) => Err(Refusal::usage(format!(
                "the other side is longhaul {version}, this one {}: they must be the same",
                env!("CARGO_PKG_VERSION")
            ))),
            _ => bail!("an end of the copy went away at once"),
        }
    }
}
