// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `longhaul copy` and the two ends that it starts tell each other, over pipes or ssh: messages as
//! [`super::message`] frames them, behind a line that tells them from whatever a login prints.

use super::{
    args::{Pace, Ports, Streams, Switch, Transport},
    location::Sources,
    message::Outcome,
};
use longhaul_command::console::escaped;
use longhaul_scheduling::{Measured, placement::Placement};
use longhaul_store::{
    entry::{Kind, Version},
    filter::Rule,
    origin::Origin,
    path::RelPath,
    preserve::Preserve,
    spread::Share,
};
use serde::{Deserialize, Serialize};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::Duration,
};

/// Stands before an end's first message.
pub(super) const GREETING: &[u8] = b"longhaul copy 1\n";

/// To an end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) role: Role,
    /// Sources, or the one target.
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) options: Options,
    /// DER.
    pub(super) peer_certificate: Vec<u8>,
    pub(super) meeting: Meeting,
    pub(super) task: Task,
    /// For a target: where the sources are.
    pub(super) sources: Sources,
    /// For a target that keeps shares of trees that were spread: which.
    pub(super) shares: Vec<Share>,
}

/// What is to be done of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Task {
    /// All of it.
    Whole,
    /// Only to say where the sources are: for a source, which meets nobody then.
    Locate,
    /// Only to say what there is, pieces of files included: for a source, which meets nobody then.
    Survey,
    /// What one of several targets keeps, each on disks of its own: some files, and pieces of large ones.
    Spread(Placement),
    /// All that one of several such hosts has, pieces included: a file gets its name when the last of them has come.
    Gather(Pass),
    /// All that one of them has, pieces as pieces, for one that keeps them.
    Pieces,
    /// The data of extents, as the driver assigns them. What belongs to no file's data comes with another conversation.
    Extents,
    /// For targets of several hosts, before anything else: one makes a file of this number in the target's directory, and
    /// takes it away when its standard input ends; the others say whether they see it.
    Mark(u128),
    Seek(u128),
}

/// Gathering from several hosts: what has to be done while others are at it, and what after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Pass {
    /// Files, and all else but the metadata of directories, in which others may still write.
    Data,
    /// That, too, and what changed or failed meanwhile.
    Last,
}

/// To a source that copies extents, while it does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Another one. Numbers are the driver's.
    Assignment { number: u64, extent: Extent },
    /// So many milliseconds from now on it may go on; after that others may have what it was assigned.
    Until(u32),
    /// There are no more.
    Enough,
}

/// Work for one mover: data of a source, some GiB of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    /// Which source it is of, from 0.
    pub(super) source: u32,
    pub(super) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// Whole files, as they are called in the copy.
    Files(Vec<RelPath>),
    /// Blocks of a file.
    Blocks {
        path: RelPath,
        blocks: Range<u64>,
        version: Version,
    },
    /// A file of which others brought the blocks: it gets its name.
    Name(RelPath),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    Source,
    Target,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }
}

/// How the two find each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Meeting {
    /// Says another message, once this end is ready.
    Later,
    /// On this address.
    Listen { at: IpAddr, ports: Option<Ports> },
    /// To the first of these that answers.
    Connect(Vec<SocketAddr>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Options {
    pub(super) streams: Streams,
    pub(super) pace: Pace,
    pub(super) congestion_control: Option<String>,
    pub(super) transport: Transport,
    pub(super) encrypt: Switch,
    pub(super) hash: Switch,
    /// Bits a second.
    pub(super) limit: Option<u64>,
    /// Milliseconds.
    pub(super) silence: u32,
    pub(super) dry_run: bool,
    pub(super) checksum: bool,
    pub(super) delete: bool,
    pub(super) update: bool,
    pub(super) one_file_system: bool,
    pub(super) rules: Vec<Rule>,
    /// What the target takes over.
    pub(super) preserve: Preserve,
    /// Several sources, or one into a directory that is there: each goes below the target under its name.
    pub(super) into_directory: bool,
    /// Tells this command's source from others': what it gave a name once, it finds again.
    pub(super) origin: Origin,
}

impl Options {
    /// How long the other end may stay silent.
    pub(super) fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.into())
    }
}

/// From an end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    Hello {
        version: String,
        /// DER.
        certificate: Vec<u8>,
        /// The two addresses of the ssh connection that brought it: the near one, its own.
        ssh: Option<(IpAddr, IpAddr)>,
    },
    /// Shares of trees that were spread, which the sources are.
    Shares(Vec<Share>),
    /// Where the sources are, before it is ready or listens.
    Sources(Sources),
    /// Has what it needs, and waits to hear of the meeting.
    Ready,
    Listening(u16),
    /// Where it shall listen, something else does: for good, or until the end of a conversation that broke is gone.
    Occupied(String),
    Progress(Progress),
    /// Something that could not be copied, or not wholly.
    Problem(String),
    /// Whether what was marked is there.
    Marked(bool),
    /// Things that a survey found.
    Found(Vec<Found>),
    /// An extent is done with: whether all of it is durable at the target, and if not, why not.
    Done {
        number: u64,
        failed: Option<String>,
    },
    /// With a dry run, what would be done at the target.
    Planned(Planned),
    /// What each stream carried, from the source at its end.
    Streams(Vec<StreamFigures>),
    /// All that could be done is done.
    Over(Progress),
    /// The conversation broke; another one goes on where it was.
    Broken(String),
    /// What no repetition mends.
    Refused(String),
}

/// Something that there is to copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) source: u32,
    pub(super) path: RelPath,
    pub(super) kind: Kind,
    /// The blocks that are there, if it is a piece.
    pub(super) held: Option<Vec<Range<u64>>>,
}

/// Something that would be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Planned {
    pub(super) action: Action,
    /// As the file system has it.
    pub(super) path: Vec<u8>,
    /// Data that would be sent for it.
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    Make,
    Change,
    Remove,
}

/// What a stream has carried, as its sender's TCP sees it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct StreamFigures {
    /// When it was first seen, in nanoseconds of the source's clock.
    #[serde(skip)]
    pub(super) began: Option<u64>,
    /// Seconds from then to when it was last seen.
    pub(super) lasted_s: f64,
    pub(super) acked_bytes: u64,
    pub(super) sent_again_bytes: u64,
    /// The smoothed round trip at last.
    pub(super) rtt_us: u32,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Entries that the source has found, and bytes in their files.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// Whether these are all.
    pub(super) scanned: bool,
    /// Entries that are done with: there already, made, of a kind that the target does not take, failed.
    pub(super) same: u64,
    pub(super) made: u64,
    pub(super) left_out: u64,
    pub(super) failed: u64,
    pub(super) removed: u64,
    /// Bytes sent in this conversation, and those that are durable.
    pub(super) sent: u64,
    pub(super) durable: u64,
    /// Bytes sent a second time, because the stream that had them was slow.
    pub(super) repeated: u64,
    /// Bytes that need not be sent, because they are at the target already.
    pub(super) there: u64,
    /// What the end has measured of itself in this conversation.
    pub(super) measured: Measured,
}

impl Options {
    /// How many streams there are from beginning to end; none if that is found out on the way.
    pub(super) fn streams_fixed(&self) -> Option<u16> {
        match self.streams {
            Streams::Exactly(count) => Some(count),
            Streams::Auto => None,
        }
    }
}

impl Report {
    /// The same report, with the texts of another host escaped: they are shown here, often on a terminal.
    pub(super) fn escaped(mut self) -> Self {
        match &mut self {
            Self::Occupied(text)
            | Self::Problem(text)
            | Self::Broken(text)
            | Self::Refused(text)
            | Self::Hello { version: text, .. }
            | Self::Done {
                failed: Some(text), ..
            } => *text = escaped(text),
            _ => {}
        }
        self
    }
}

impl Progress {
    /// An entry is done with.
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Same | Outcome::Newer => self.same += 1,
            Outcome::Made | Outcome::MadeWithout(_) => self.made += 1,
            Outcome::NotTaken => self.left_out += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::message::{read, write};
    use proptest::{collection::vec, prelude::*};
    use serde::de::DeserializeOwned;
    use std::{fmt::Debug, net::Ipv4Addr};

    fn begin() -> Begin {
        Begin {
            role: Role::Target,
            paths: vec![b"/srv/data".to_vec()],
            options: Options {
                origin: [0; 32],
                streams: Streams::Exactly(16),
                pace: Pace::Auto,
                congestion_control: Some("lh_hstcp".to_owned()),
                transport: Transport::Udt,
                encrypt: Switch::On,
                hash: Switch::Off,
                limit: Some(1_000_000),
                silence: 60_000,
                dry_run: false,
                checksum: true,
                delete: true,
                update: false,
                one_file_system: true,
                rules: vec![
                    Rule::Exclude("*.tmp".to_owned()),
                    Rule::Include(String::new()),
                ],
                preserve: Preserve::safe(),
                into_directory: true,
            },
            peer_certificate: vec![0x30; 300],
            meeting: Meeting::Listen {
                at: IpAddr::V4(Ipv4Addr::LOCALHOST),
                ports: Some("7000-7100".parse().unwrap()),
            },
            task: Task::Extents,
            sources: Sources::default(),
            shares: Vec::new(),
        }
    }

    fn reports() -> Vec<Report> {
        let addresses = ["::1", "10.0.0.1"].map(|text| text.parse().unwrap());
        vec![
            Report::Hello {
                version: "0.1.0".to_owned(),
                certificate: vec![0x30; 300],
                ssh: Some(addresses.into()),
            },
            Report::Sources(Sources::default()),
            Report::Listening(7000),
            Report::Progress(Progress::default()),
            Report::Problem("größe: full".to_owned()),
            Report::Planned(Planned {
                action: Action::Remove,
                path: b"a".to_vec(),
                bytes: 7,
            }),
            Report::Streams(vec![StreamFigures::default(); 3]),
        ]
    }

    fn written(message: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, message).unwrap();
        bytes
    }

    /// What is read is written and read again as the same.
    fn is_heard<M: Serialize + DeserializeOwned + Debug>(mut bytes: &[u8]) {
        while let Ok(Some(message)) = read::<M>(&mut bytes) {
            let again: M = read(&mut written(&message).as_slice()).unwrap().unwrap();
            assert_eq!(written(&again), written(&message));
        }
    }

    /// Behind a length that is right.
    fn are_heard(bytes: &[u8]) {
        let framed = [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        for bytes in [bytes, &framed] {
            is_heard::<Begin>(bytes);
            is_heard::<Meeting>(bytes);
            is_heard::<Word>(bytes);
            is_heard::<Report>(bytes);
        }
    }

    fn mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)
    }

    #[test]
    fn what_is_told_is_heard() {
        let read_back: Begin = read(&mut written(&begin()).as_slice()).unwrap().unwrap();
        assert_eq!(format!("{read_back:?}"), format!("{:?}", begin()));
        for report in reports() {
            let read_back: Report = read(&mut written(&report).as_slice()).unwrap().unwrap();
            assert_eq!(format!("{read_back:?}"), format!("{report:?}"));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_heard_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            are_heard(&bytes);
        }

        #[test]
        fn damaged_messages_are_heard_or_refused(mutations in mutations(), cut in 0..20_usize) {
            let all = reports().iter().map(written).collect::<Vec<_>>();
            for mut bytes in all.into_iter().chain([written(&begin())]) {
                for (at, byte) in &mutations {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
                let kept = bytes.len().saturating_sub(cut);
                are_heard(&bytes[..kept]);
                are_heard(&bytes[4.min(kept)..kept]);
            }
        }
    }
}
