// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that was called: it starts both ends, makes them known to each other, says how far they are, and starts
//! them again when the conversation breaks.

use super::{
    args::{Args, Streams, Switch},
    far::Far,
    order::{Begin, Meeting, Options, Progress, Report, Role, StreamFigures},
    place::{Host, Place},
};
use crate::{exit::Refusal, site::Keyring};
use anyhow::{Context as _, Result, bail};
use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::ffi::OsStrExt,
    sync::mpsc::channel,
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

/// How a conversation ended.
enum Ending {
    Over(Progress, Vec<StreamFigures>),
    /// So many bytes or entries became durable before it broke.
    Broken {
        why: String,
        gained: u64,
    },
}

pub(super) fn run(args: &Args) -> Result<()> {
    let job = Job::read(args)?;
    let (began, mut pauses) = (Instant::now(), PAUSES.iter().cycle());
    let mut last_gain = Instant::now();
    for conversation in 0.. {
        match job.conversation(conversation)? {
            Ending::Over(progress, streams) => {
                return job.finish(progress, &streams, began.elapsed());
            }
            Ending::Broken { why, gained } => {
                if gained > 0 {
                    last_gain = Instant::now();
                    pauses = PAUSES.iter().cycle();
                }
                let pause = *pauses.next().unwrap_or(&PAUSES[0]);
                if last_gain.elapsed() + pause > PATIENCE {
                    bail!("{why}; given up, the same command goes on from here");
                }
                eprintln!("longhaul: {why}; going on in {} s", pause.as_secs_f32());
                std::thread::sleep(pause);
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
    fn conversation(&self, number: u32) -> Result<Ending> {
        let places = || self.sources.iter().chain([&self.target]);
        let first_abroad = number == 0 && places().any(|place| place.host.is_some());
        match self.converse() {
            Err(error) if !first_abroad && !error.is::<Refusal>() => Ok(Ending::Broken {
                why: format!("{error:#}"),
                gained: 0,
            }),
            other => other,
        }
    }

    /// From two processes to none.
    fn converse(&self) -> Result<Ending> {
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
        follow(source, target)
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
        }
    }

    fn listening(&self, who: &Hello) -> Meeting {
        Meeting::Listen {
            at: who.address(),
            ports: self.args.ports,
        }
    }

    fn finish(&self, progress: Progress, streams: &[StreamFigures], took: Duration) -> Result<()> {
        let seconds = took.as_secs_f64();
        match self.args.json {
            true => println!("{}", json(&progress, streams, seconds)),
            false => println!("{}", text(&progress, seconds)),
        }
        match progress.failed {
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

impl Ending {
    /// An end that did not get as far as to begin.
    fn early(report: Option<Report>) -> Result<Self> {
        match report {
            Some(Report::Refused(why)) => Err(Refusal::usage(why)),
            Some(Report::Broken(why)) => Ok(Self::Broken { why, gained: 0 }),
            _ => Ok(Self::Broken {
                why: "an end of the copy went away".to_owned(),
                gained: 0,
            }),
        }
    }
}

/// Hears both ends until the target says that all is done, or one of them is gone.
fn follow(mut source: Far, mut target: Far) -> Result<Ending> {
    let (to, from) = channel();
    source.report_to(Role::Source, to.clone());
    target.report_to(Role::Target, to);
    let (mut known, mut streams) = (Progress::default(), Vec::new());
    let mut target_over = None;
    let broken = |why: String, known: &Progress| Ending::Broken {
        why,
        gained: known.durable + known.made,
    };
    while let Ok((role, report)) = from.recv() {
        match report {
            Some(Report::Progress(progress)) => known = progress,
            Some(Report::Problem(problem)) => eprintln!("longhaul: {problem}"),
            Some(Report::Streams(figures)) => streams = figures,
            Some(Report::Over(progress)) if role == Role::Source => {
                return Ok(Ending::Over(progress, streams));
            }
            // The source has said so too, or was killed then.
            Some(Report::Over(progress)) => target_over = Some(progress),
            Some(Report::Broken(why)) => return Ok(broken(why, &known)),
            Some(Report::Refused(why)) => return Err(Refusal::usage(why)),
            Some(Report::Hello { .. } | Report::Ready | Report::Listening(_)) => {}
            None if target_over.is_some() && role == Role::Target => {}
            None => {
                if let Some(progress) = target_over {
                    return Ok(Ending::Over(progress, streams));
                }
                let which = match role {
                    Role::Source => "source",
                    Role::Target => "target",
                };
                return Ok(broken(format!("the {which} went away"), &known));
            }
        }
    }
    Ok(broken("both ends went away".to_owned(), &known))
}

fn json(progress: &Progress, streams: &[StreamFigures], seconds: f64) -> serde_json::Value {
    serde_json::json!({
        "entries": progress.entries, "bytes": progress.bytes, "same": progress.same, "made": progress.made,
        "failed": progress.failed, "removed": progress.removed, "sent_bytes": progress.sent, "seconds": seconds,
        "streams": streams,
    })
}

fn text(progress: &Progress, seconds: f64) -> String {
    let rate = units::BitRate::from_bits((progress.sent as f64 * 8.0 / seconds) as u64);
    let mut said = format!(
        "{} copied, {} there already, {} of data in {seconds:.1} s ({rate})",
        progress.made,
        progress.same,
        units::Bytes::new(progress.sent),
    );
    for (count, what) in [(progress.failed, "failed"), (progress.removed, "removed")] {
        if count > 0 {
            said += &format!(", {count} {what}");
        }
    }
    said
}
