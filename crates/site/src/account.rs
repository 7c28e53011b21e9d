// SPDX-License-Identifier: MIT OR Apache-2.0
//! What passes between a driver and an end, for whoever passes it on: what was asked for, how far it is, and how it ended.

use super::record::Record;
use longhaul_transfer::protocol::{
    control::{Begin, Role},
    hello::GREETING,
    message,
    report::{Progress, Report},
};
use serde::de::DeserializeOwned;

/// Bytes of a message that is looked at, at most. An account costs twice as many.
const MESSAGE_LEN_MAX: usize = 16 << 10;

/// Of a request that is longer than that, unless its end says more.
const LONG_REQUEST: &str = "its paths are longer than 16 KiB, and not looked at";

/// Paths that are kept, at most, and bytes of each.
const PATHS_MAX: usize = 8;
const PATH_LEN_MAX: usize = 4096;

/// How an end ended, if it said so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ending {
    /// All that could be done is done.
    Over,
    Refused,
    Broken,
    /// It or its driver was gone before.
    #[default]
    CutOff,
}

impl Ending {
    fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::CutOff => "cut off",
        }
    }
}

/// One end's.
#[derive(Debug)]
pub(crate) struct Account {
    to_end: Frames,
    from_end: Frames,
    /// Whether its first message is behind, which is no report.
    greeted: bool,
    /// The driver's first message is behind. What comes later is none that counts, whatever it says.
    asked: bool,
    role: Option<Role>,
    paths: Vec<String>,
    progress: Progress,
    ending: Ending,
    why: Option<String>,
}

impl Account {
    pub(crate) fn new() -> Self {
        Self {
            to_end: Frames::behind(0),
            from_end: Frames::behind(GREETING.len()),
            greeted: false,
            asked: false,
            role: None,
            paths: Vec::new(),
            progress: Progress::default(),
            ending: Ending::default(),
            why: None,
        }
    }

    /// The driver says this. Only its first message counts.
    pub(crate) fn take_from_driver(&mut self, bytes: &[u8]) {
        let Self {
            to_end,
            asked,
            role,
            paths,
            why,
            ..
        } = self;
        if *asked {
            return;
        }
        to_end.take(bytes, |frame| {
            if std::mem::replace(asked, true) {
                return;
            }
            if let Frame::TooLong = frame {
                *why = Some(LONG_REQUEST.to_owned());
            }
            if let Some(begin) = frame.parse::<Begin>() {
                *role = Some(begin.role);
                *paths = shown(&begin.paths);
            }
        });
    }

    /// The end says this.
    pub(crate) fn take_from_end(&mut self, bytes: &[u8]) {
        let Self {
            from_end,
            greeted,
            progress,
            ending,
            why,
            ..
        } = self;
        from_end.take(bytes, |frame| match frame.parse() {
            _ if !std::mem::replace(greeted, true) => {}
            Some(Report::Progress(now)) => *progress = now,
            Some(Report::Finished(now)) => (*progress, *ending) = (now, Ending::Over),
            Some(Report::Refused(text)) => (*ending, *why) = (Ending::Refused, Some(text)),
            Some(Report::Broken(text) | Report::PortsInUse(text)) => {
                (*ending, *why) = (Ending::Broken, Some(text));
            }
            _ => {}
        });
    }

    /// What an end was asked for, and what came of it.
    pub(crate) fn ended(&self, copy: u64) -> Record {
        Record::Ended {
            copy,
            role: self.role.map(|role| role.name().to_owned()),
            paths: self.paths.clone(),
            made: self.progress.made,
            removed: self.progress.removed,
            failed: self.progress.failed,
            bytes: self.bytes(),
            outcome: self.ending.name().to_owned(),
            why: self.why.clone(),
        }
    }

    /// That a source has sent, or that are durable at a target.
    fn bytes(&self) -> u64 {
        match self.role {
            Some(Role::Target) => self.progress.durable,
            _ => self.progress.sent,
        }
    }
}

/// The first of them, each as far as it is kept.
fn shown(paths: &[Vec<u8>]) -> Vec<String> {
    let shown = |path: &Vec<u8>| {
        let path = &path[..path.len().min(PATH_LEN_MAX)];
        String::from_utf8_lossy(path).into_owned()
    };
    paths.iter().take(PATHS_MAX).map(shown).collect()
}

/// A message.
enum Frame<'b> {
    Whole(&'b [u8]),
    /// It is not looked at.
    TooLong,
}

impl Frame<'_> {
    fn parse<M: DeserializeOwned>(&self) -> Option<M> {
        match *self {
            Self::Whole(mut bytes) => message::read(&mut bytes).ok().flatten(),
            Self::TooLong => None,
        }
    }
}

/// Messages out of bytes as they come.
#[derive(Debug)]
struct Frames {
    passed_over: usize,
    held: Vec<u8>,
}

impl Frames {
    /// The first message is behind so many bytes.
    fn behind(passed_over: usize) -> Self {
        Self {
            passed_over,
            held: Vec::new(),
        }
    }

    fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
        while !bytes.is_empty() {
            let passed = self.passed_over.min(bytes.len());
            self.passed_over -= passed;
            bytes = &bytes[passed..];
            bytes = self.fill(4, bytes);
            let Some(&length) = self.held.first_chunk() else {
                return;
            };
            let length = u32::from_be_bytes(length) as usize;
            if length > MESSAGE_LEN_MAX {
                self.passed_over = length;
                self.held.clear();
                each(Frame::TooLong);
                continue;
            }
            bytes = self.fill(4 + length, bytes);
            if self.held.len() == 4 + length {
                each(Frame::Whole(&self.held));
                self.held.clear();
            }
        }
    }

    /// Holds bytes up to a length; the rest.
    fn fill<'b>(&mut self, length: usize, bytes: &'b [u8]) -> &'b [u8] {
        let missing = length.saturating_sub(self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..missing]);
        &bytes[missing..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_store::tree::preserve::Preserve;
    use longhaul_transfer::protocol::{
        control::{Rendezvous, Task},
        hello::Hello,
        options::{Options, Pace, Streams, Switch, Transport},
        sources::Sources,
    };

    fn said(reports: &[Report]) -> Vec<u8> {
        let mut bytes = GREETING.to_vec();
        message::write(&mut bytes, &Hello::new(b"certificate", None)).unwrap();
        for report in reports {
            message::write(&mut bytes, report).unwrap();
        }
        bytes
    }

    #[test]
    fn takes_reports_however_they_are_cut_into_pieces() {
        let progress = |made, durable| Progress {
            made,
            durable,
            ..Progress::default()
        };
        let bytes = said(&[
            Report::Ready,
            Report::Progress(progress(1, 10)),
            // Longer than what is looked at.
            Report::Problem("x".repeat(2 * MESSAGE_LEN_MAX)),
            Report::Finished(progress(7, 70)),
        ]);
        for piece in [1, 3, 7, 1000, bytes.len()] {
            let mut account = Account::new();
            account.role = Some(Role::Target);
            for part in bytes.chunks(piece) {
                account.take_from_end(part);
            }
            assert_eq!(account.ending, Ending::Over, "{piece}");
            assert_eq!((account.progress.made, account.bytes()), (7, 70));
        }
    }

    fn begin(path: &[u8]) -> Begin {
        Begin {
            role: Role::Source,
            paths: vec![path.to_vec()],
            options: Options {
                streams: Streams::Auto,
                pace: Pace::Auto,
                congestion_control: None,
                transport: Transport::Tcp,
                encrypt: Switch::On,
                hash: Switch::On,
                limit: None,
                silence: 60_000,
                dry_run: false,
                checksum: false,
                delete: false,
                update: false,
                one_file_system: false,
                rules: Vec::new(),
                preserve: Preserve::untrusted().into(),
                into_directory: false,
                origin: [0; 32],
            },
            peer_certificate: Vec::new(),
            rendezvous: Rendezvous::Wait,
            task: Task::Whole,
            sources: Sources::default(),
            shares: Vec::new(),
        }
    }

    fn asks(path: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        message::write(&mut bytes, &begin(path)).unwrap();
        bytes
    }

    /// Another one would be what the client wants the site to say.
    #[test]
    fn only_the_first_message_says_what_is_asked_for() {
        let (good, long) = (asks(b"data/true"), asks(&[b'x'; MESSAGE_LEN_MAX]));
        let unreadable = [0, 0, 0, 1, 0xff];
        for (first, paths, why) in [
            (&good[..], &["data/true"][..], None),
            (&long, &[], Some(LONG_REQUEST)),
            (&unreadable, &[], None),
        ] {
            let bytes = [first, &asks(b"data/forged")].concat();
            for piece in [1, 1000, bytes.len()] {
                let mut account = Account::new();
                for part in bytes.chunks(piece) {
                    account.take_from_driver(part);
                }
                assert_eq!(account.paths, paths);
                assert_eq!(account.role.is_some(), !paths.is_empty());
                assert_eq!(account.why.as_deref(), why);
            }
        }
    }

    #[test]
    fn is_cut_off_until_the_end_says_more() {
        let mut account = Account::new();
        account.take_from_driver(&[0, 0, 0, 3, 9, 9, 9]);
        account.take_from_driver(&[0xff; 100]);
        assert_eq!((account.role, account.ending), (None, Ending::CutOff));
        account.take_from_end(&said(&[Report::Refused("why".to_owned())]));
        assert_eq!(account.ending, Ending::Refused);
        assert_eq!(account.why.as_deref(), Some("why"));
        assert!(account.from_end.held.capacity() <= 2 * MESSAGE_LEN_MAX);
    }
}
