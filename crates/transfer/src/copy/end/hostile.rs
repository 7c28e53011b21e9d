// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends against a far end that lies: a script speaks the protocol over real connections, and nothing outside is touched,
//! nothing false is believed, and what is sound beside it arrives.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "such ranges are what is sent"
)]

use super::{reach::Reach, receiver, reports::Reporter, source};
use crate::{
    copy::samples::{entry, file},
    protocol::{
        block::{Content, HEADER_LEN, Header},
        message::{self, Answer, Need, Order, Outcome, Share},
        options::{Options, Pace, Streams, Switch, Transport},
        order::{Begin, Meeting, Role, Task},
        report::Progress,
        sources::Sources,
    },
    transport::{
        carrier::Carrier,
        connection::{Connection, Purpose},
        identity::{Identity, Responder},
    },
};
use anyhow::Result;
use longhaul_store::{
    blocks::{BLOCK, Blocks},
    entry::Kind,
    metadata::{XATTR_VALUE_MAX, Xattr},
};
use serde::de::DeserializeOwned;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    net::TcpListener,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

/// The far end: it has accepted what an end opens, and says what it likes.
struct Liar {
    listener: TcpListener,
    trust: Responder,
    orders: Option<Connection>,
    answers: Option<Connection>,
    end: JoinHandle<Result<Progress>>,
    folder: tempfile::TempDir,
}

fn options() -> Options {
    Options {
        checksum: false,
        dry_run: false,
        streams: Streams::Exactly(1),
        pace: Pace::Auto,
        congestion_control: None,
        transport: Transport::Tcp,
        encrypt: Switch::On,
        hash: Switch::On,
        limit: None,
        silence: 60_000,
        delete: false,
        update: false,
        one_file_system: false,
        rules: Vec::new(),
        preserve: longhaul_store::preserve::Preserve::default(),
        into_directory: true,
        origin: [0; 32],
    }
}

impl Liar {
    /// Lies to a target in the directory `to`, or to a source of what is in the directory `from`.
    fn to(role: Role) -> Self {
        Self::over_streams(1, role)
    }

    fn over_streams(count: u16, role: Role) -> Self {
        let streams = Streams::Exactly(count);
        let options = Options {
            streams,
            ..options()
        };
        Self::with(options, role)
    }

    fn with(options: Options, role: Role) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), vec![1; 2 * BLOCK as usize]).unwrap();
        let [own, theirs] = [(); 2].map(|()| Identity::new().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Begin {
            role,
            paths: vec![match role {
                Role::Source => from.join("").as_os_str().as_bytes().to_vec(),
                Role::Target => to.as_os_str().as_bytes().to_vec(),
            }],
            options,
            peer_certificate: own.certificate().to_vec(),
            meeting: Meeting::Connect(vec![listener.local_addr().unwrap()]),
            task: Task::Whole,
            sources: Sources::default(),
            shares: Vec::new(),
        };
        let trust = own.responder(theirs.certificate()).unwrap();
        let reporter = Reporter(Arc::new(Mutex::new(io::sink())));
        let end = thread::spawn(move || match role {
            Role::Source => {
                let ready = source::conversation::prepare(&begin, &Reach::Everything)?;
                source::conversation::serve(begin, ready, &theirs, &reporter)
            }
            Role::Target => {
                receiver::conversation::serve(&begin, &Reach::Everything, &theirs, &reporter)
            }
        });
        Self {
            listener,
            trust,
            orders: None,
            answers: None,
            end,
            folder,
        }
    }

    /// What comes next, if that is a stream; all else is kept.
    fn accept(&mut self) -> Option<(u64, Connection)> {
        let (socket, _) = self.listener.accept().unwrap();
        match Connection::accept(Carrier::Tcp(socket), &self.trust, Switch::On).unwrap() {
            (stream, Purpose::Data(number)) => return Some((number, stream)),
            (orders, Purpose::Orders) => self.orders = Some(orders),
            (answers, Purpose::Answers) => self.answers = Some(answers),
        }
        None
    }

    /// The next stream.
    fn stream(&mut self) -> (u64, Connection) {
        loop {
            if let Some(stream) = self.accept() {
                return stream;
            }
        }
    }

    /// The first stream, once both others are there, too.
    fn meet(&mut self) -> Connection {
        let [(_, first)] = self.meet_all();
        first
    }

    /// The first streams, once both others are there, too.
    fn meet_all<const STREAMS: usize>(&mut self) -> [(u64, Connection); STREAMS] {
        let mut streams = Vec::new();
        while streams.len() < STREAMS || self.orders.is_none() || self.answers.is_none() {
            streams.extend(self.accept());
        }
        streams.try_into().ok().unwrap()
    }

    fn order(&mut self, order: &Order) {
        // Whoever has heard enough hangs up.
        let to = self.orders.as_mut().unwrap();
        drop(message::write(to, order).and_then(|()| Ok(to.flush()?)));
    }

    fn announce(&mut self, number: u64, path: &str, kind: Kind) {
        self.order(&Order::Entry {
            number,
            entry: entry(path, kind),
            share: Share::Whole,
        });
    }

    fn answer(&mut self, answer: &Answer) {
        let to = self.answers.as_mut().unwrap();
        message::write(to, answer).unwrap();
        to.flush().unwrap();
    }

    fn hear<M: DeserializeOwned>(from: &mut Option<Connection>) -> M {
        message::read(from.as_mut().unwrap()).unwrap().unwrap()
    }

    /// How an entry is settled.
    fn outcome(&mut self, of: u64) -> Outcome {
        loop {
            if let Answer::Settled { number, outcome } = Self::hear(&mut self.answers)
                && number == of
            {
                return outcome;
            }
        }
    }

    /// Waits until a file is asked for.
    fn need(&mut self, of: u64) {
        loop {
            if let Answer::Need { file, .. } = Self::hear(&mut self.answers)
                && file == of
            {
                return;
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The end's own end, without a word from here.
    fn hang_up(self) -> (Result<Progress>, tempfile::TempDir) {
        drop((self.orders, self.answers, self.listener));
        (self.end.join().unwrap(), self.folder)
    }
}

/// A block as it should come.
fn block(file: u64, size: u64, index: u64) -> (Header, Vec<u8>) {
    let range = Blocks::of(size).range(index).unwrap();
    let bytes = vec![index as u8 + 1; (range.end - range.start) as usize];
    let header = Header {
        file,
        block: index,
        content: Content::Data(bytes.len() as u32),
        hash: Blocks::of(size).hash(index, &bytes).unwrap().0,
    };
    (header, bytes)
}

fn send(to: &mut Connection, (header, bytes): &(Header, Vec<u8>)) {
    to.write_all(&header.encode()).unwrap();
    to.write_all(bytes).unwrap();
    to.flush().unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<_> = names
        .filter(|name| !name.starts_with(".longhaul-"))
        .collect();
    names.sort();
    names
}

/// What is between the ends lets orders and answers pass, and no stream.
#[test]
fn an_end_that_gets_no_stream_through_says_so() {
    let options = Options {
        silence: 10,
        ..options()
    };
    let mut liar = Liar::with(options, Role::Target);
    while liar.orders.is_none() || liar.answers.is_none() {
        liar.accept();
    }
    let listener = liar.listener.try_clone().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let said = liar.end.join().unwrap().unwrap_err();
    assert_eq!(said.to_string(), "no stream can be opened");
}

#[test]
fn paths_that_lead_out_end_the_conversation() {
    for evil in [
        "../../xx",
        "/etc/pwn",
        "a/../../",
        "a//b/c/d",
        "a/./b//c",
        "a\0bcdefg",
    ] {
        let mut liar = Liar::to(Role::Target);
        let _stream = liar.meet();
        liar.order(&Order::Tops(Vec::new()));
        let mut bytes = Vec::new();
        let order = Order::Entry {
            number: 0,
            entry: entry("abcdefgh", Kind::Directory),
            share: Share::Whole,
        };
        message::write(&mut bytes, &order).unwrap();
        let at = bytes.windows(8).position(|at| at == b"abcdefgh").unwrap();
        bytes[at..at + 8].copy_from_slice(evil.as_bytes());
        let orders = liar.orders.as_mut().unwrap();
        orders.write_all(&bytes).unwrap();
        orders.flush().unwrap();
        let (end, folder) = liar.hang_up();
        assert!(end.is_err(), "{evil:?}");
        assert_eq!(names(folder.path()), ["from", "to"], "{evil:?}");
        assert_eq!(names(&folder.path().join("to")), [""; 0], "{evil:?}");
    }
}

/// What is around it is nobody's to change, nor, with `--delete`, to empty.
#[test]
fn contents_are_refused_where_one_thing_gets_a_name() {
    let top = || Order::Top(entry("a", Kind::Directory).metadata);
    let one = entry("a", Kind::Directory).path;
    for lie in [
        vec![Order::Tops(vec![]), top()],
        vec![Order::Tops(vec![one]), top()],
    ] {
        let options = Options {
            into_directory: false,
            delete: true,
            ..options()
        };
        let mut liar = Liar::with(options, Role::Target);
        let _stream = liar.meet();
        lie.iter().for_each(|order| liar.order(order));
        liar.order(&Order::ScanEnded);
        let (end, folder) = liar.hang_up();
        let why = format!("{:#}", end.unwrap_err());
        assert!(why.contains("one thing was to get a name"), "{why}");
        assert_eq!(names(folder.path()), ["from"]);
    }
}

#[test]
#[allow(
    clippy::reversed_empty_ranges,
    clippy::single_range_in_vec_init,
    reason = "that is what it lies about"
)]
fn pieces_that_a_file_can_not_have_are_refused() {
    let mut liar = Liar::to(Role::Target);
    let _stream = liar.meet();
    liar.order(&Order::Tops(Vec::new()));
    let nonsense = [
        vec![],
        vec![0..3],
        vec![1..2, 0..1],
        vec![0..1, 0..2],
        vec![2..1],
        vec![0..1, u64::MAX - 1..u64::MAX],
    ];
    let shares = [Share::Kept, Share::Piece];
    let all = shares
        .iter()
        .flat_map(|share| nonsense.iter().cloned().map(share));
    for (number, share) in (0..).zip(all) {
        liar.order(&Order::Entry {
            number,
            entry: entry(&format!("large{number}"), file(BLOCK + 1)),
            share: share.clone(),
        });
        let outcome = liar.outcome(number);
        assert!(
            matches!(outcome, Outcome::Failed(_)),
            "{share:?}: {outcome:?}"
        );
    }
    let (end, folder) = liar.hang_up();
    assert!(end.is_err(), "it went without an end");
    let left = fs::read_dir(folder.path().join("to")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter().all(|name| name == ".longhaul-manifest"),
        "{left:?}"
    );
}

#[test]
fn no_link_leads_out_not_even_one_that_comes_later() {
    let mut liar = Liar::to(Role::Target);
    let mut stream = liar.meet();
    let outside = liar.path("from");
    let before = names(&outside);
    liar.order(&Order::Tops(Vec::new()));
    let target = outside.as_os_str().as_bytes().into();
    liar.announce(0, "way", Kind::Symlink { target });
    liar.announce(1, "way/small", file(3));
    liar.announce(2, "way/large", file(BLOCK + 1));
    liar.announce(3, "way/deep", Kind::Directory);
    assert_eq!(liar.outcome(0), Outcome::Made);
    for number in 1..4 {
        assert!(
            matches!(liar.outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    // And what was a directory when the file was begun.
    liar.announce(4, "dir", Kind::Directory);
    liar.announce(5, "dir/small", file(3));
    liar.need(5);
    fs::rename(liar.path("to/dir"), liar.path("to/moved")).unwrap();
    symlink(&outside, liar.path("to/dir")).unwrap();
    send(&mut stream, &block(5, 3, 0));
    // It may go where the directory went, whose descriptor is at hand.
    let outcome = liar.outcome(5);
    let moved = names(&liar.path("to/moved"));
    assert_eq!(
        moved.len(),
        usize::from(outcome == Outcome::Made),
        "{outcome:?}"
    );
    let (end, _folder) = liar.hang_up();
    assert!(end.is_err(), "it went without an end");
    assert_eq!(names(&outside), before);
}

#[test]
fn blocks_are_believed_where_they_belong_only() {
    let mut liar = Liar::to(Role::Target);
    let mut stream = liar.meet();
    let size = 2 * BLOCK + 5;
    liar.order(&Order::Tops(Vec::new()));
    for (number, name) in ["good", "beyond", "damaged", "short", "moved"]
        .iter()
        .enumerate()
    {
        liar.announce(number as u64, name, file(size));
    }
    (0..5).for_each(|number| liar.need(number));
    send(&mut stream, &block(99, size, 0));
    let (mut beyond, bytes) = block(1, size, 0);
    beyond.block = 7;
    send(&mut stream, &(beyond, bytes));
    let (damaged, mut bytes) = block(2, size, 1);
    bytes[4711] ^= 1;
    send(&mut stream, &(damaged, bytes));
    let (mut short, mut bytes) = block(3, size, 0);
    bytes.truncate(5);
    short.content = Content::Data(5);
    send(&mut stream, &(short, bytes));
    let (mut moved, bytes) = block(4, size, 0);
    moved.block = 1;
    send(&mut stream, &(moved, bytes));
    // In no order, and twice.
    for index in [2, 0, 2, 1, 0] {
        send(&mut stream, &block(0, size, index));
    }
    liar.order(&Order::Sealed {
        file: 0,
        hash: None,
    });
    for number in 1..5 {
        assert!(
            matches!(liar.outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    assert_eq!(liar.outcome(0), Outcome::Made);
    let (_, folder) = liar.hang_up();
    let to = folder.path().join("to");
    assert_eq!(names(&to), ["good"]);
    let wanted: Vec<u8> = (0..3).flat_map(|index| block(0, size, index).1).collect();
    assert!(fs::read(to.join("good")).unwrap() == wanted);
}

#[test]
fn a_stream_that_is_cut_or_speaks_nonsense_counts_what_was_whole() {
    let mut liar = Liar::to(Role::Target);
    let mut stream = liar.meet();
    let size = 2 * BLOCK;
    liar.order(&Order::Tops(Vec::new()));
    liar.announce(0, "file", file(size));
    liar.need(0);
    send(&mut stream, &block(0, size, 0));
    let (header, bytes) = block(0, size, 1);
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(&bytes[..1000]).unwrap();
    stream.flush().unwrap();
    drop(stream);
    let ended = |liar: &mut Liar, of: u64| loop {
        if let Answer::Ended { stream, blocks } = Liar::hear(&mut liar.answers)
            && stream == of
        {
            return blocks;
        }
    };
    assert_eq!(ended(&mut liar, 0), 1);
    let (number, mut stream) = liar.stream();
    stream.write_all(&[0xff; 64]).unwrap();
    stream.flush().unwrap();
    assert_eq!(ended(&mut liar, number), 0);
    let (_, mut stream) = liar.stream();
    send(&mut stream, &block(0, size, 1));
    liar.order(&Order::Sealed {
        file: 0,
        hash: None,
    });
    assert_eq!(liar.outcome(0), Outcome::Made);
    drop(liar.hang_up());
}

#[test]
fn absurd_sizes_and_numbers_are_refused() {
    let mut liar = Liar::to(Role::Target);
    let _stream = liar.meet();
    liar.order(&Order::Tops(Vec::new()));
    liar.announce(0, "absurd", file(u64::MAX));
    assert!(matches!(liar.outcome(0), Outcome::Failed(_)));
    for number in 1..100_000 {
        liar.announce(number, &format!("{number}"), file(1));
    }
    let end = liar.end.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("more than it may"), "{end}");

    let mut liar = Liar::to(Role::Target);
    let _stream = liar.meet();
    liar.order(&Order::Tops(Vec::new()));
    let xattr = |number: u8| Xattr {
        name: format!("user.{number}").into_bytes().into(),
        value: vec![number; XATTR_VALUE_MAX - 1024].into(),
    };
    let mut heavy = entry("heavy", file(1));
    heavy.metadata.xattrs = (0..4).map(xattr).collect();
    for number in 0..1500 {
        liar.order(&Order::Entry {
            number,
            entry: heavy.clone(),
            share: Share::Whole,
        });
    }
    let end = liar.end.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("more than it may"), "{end}");

    let mut liar = Liar::to(Role::Target);
    let _stream = liar.meet();
    let orders = liar.orders.as_mut().unwrap();
    orders.write_all(&u32::MAX.to_be_bytes()).unwrap();
    orders.flush().unwrap();
    let end = liar.end.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("too long"), "{end}");
}

/// A source that has announced its one file, and what it says to an answer.
fn told(answers: &[Answer]) -> String {
    let mut liar = Liar::to(Role::Source);
    let _stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), Order::ScanEnded) {}
    for answer in answers {
        liar.answer(answer);
    }
    liar.end.join().unwrap().unwrap_err().to_string()
}

#[test]
fn a_source_believes_no_count_and_is_asked_once() {
    let received = Answer::Received {
        stream: 0,
        blocks: 1000,
    };
    assert!(told(&[received]).contains("1000 parcels confirmed"));
    let need = || Answer::Need {
        file: 0,
        missing: Need::Blocks(vec![0..1]),
    };
    assert!(told(&[need(), need()]).contains("asks again"));
}

#[test]
fn a_source_that_is_asked_for_what_it_has_not_withdraws() {
    let mut liar = Liar::to(Role::Source);
    let _stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), Order::ScanEnded) {}
    let unknown = Answer::Need {
        file: 4711,
        missing: Need::Whole(u64::MAX),
    };
    liar.answer(&unknown);
    let beyond = Need::Blocks(vec![u64::MAX - 1..u64::MAX, 5..u64::MAX, 9..3]);
    liar.answer(&Answer::Need {
        file: 0,
        missing: beyond,
    });
    let said = Liar::hear(&mut liar.orders);
    assert!(matches!(said, Order::Withdrawn { file: 0 }), "{said:?}");
    drop(liar.hang_up());
}

fn receive(from: &mut Connection) -> Header {
    let mut header = [0; HEADER_LEN];
    from.read_exact(&mut header).unwrap();
    let header = Header::parse(&header).unwrap();
    if let Content::Data(length) = header.content {
        from.read_exact(&mut vec![0; length as usize]).unwrap();
    }
    header
}

/// A stream that has stalled keeps a copy waiting no longer than another takes for what it had.
#[test]
fn what_a_stream_does_not_get_through_goes_on_another() {
    let mut liar = Liar::over_streams(2, Role::Source);
    let [(_, stalled), (number, mut good)] = liar.meet_all();
    while !matches!(Liar::hear(&mut liar.orders), Order::ScanEnded) {}
    liar.answer(&Answer::Need {
        file: 0,
        missing: Need::Blocks(vec![0..2]),
    });
    let mut blocks = BTreeSet::new();
    for received in 1..=2 {
        blocks.insert(receive(&mut good).block);
        liar.answer(&Answer::Received {
            stream: number,
            blocks: received,
        });
    }
    assert_eq!(blocks, BTreeSet::from([0, 1]));
    liar.answer(&Answer::Over {
        removed: 0,
        failed: 0,
    });
    liar.end.join().unwrap().unwrap();
    drop(stalled);
}

/// A source hears nothing of a stream to which it has given all that it has, and the far end may never have begun with it.
#[test]
fn a_stream_that_the_far_end_left_without_a_word_is_given_up() {
    let mut liar = Liar::to(Role::Source);
    let mut stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), Order::ScanEnded) {}
    liar.answer(&Answer::Need {
        file: 0,
        missing: Need::Blocks(vec![0..1]),
    });
    assert_eq!(receive(&mut stream).block, 0);
    drop(stream);
    while !matches!(Liar::hear(&mut liar.orders), Order::Gone { stream: 0 }) {}
    liar.answer(&Answer::Ended {
        stream: 0,
        blocks: 0,
    });
    let (_, mut stream) = liar.stream();
    assert_eq!(receive(&mut stream).block, 0);
    drop(liar.hang_up());
}
