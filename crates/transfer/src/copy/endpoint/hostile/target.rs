// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets against a source that lies.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "such ranges are what is sent"
)]

use super::peer::{HostilePeer, block, names, options, send_block};
use crate::{
    copy::fixtures::{entry, file},
    protocol::{
        block::Content,
        control::Role,
        message::{self, Outcome, Portion, SourceMsg, TargetMsg},
        options::Options,
    },
};
use longhaul_store::{
    blocks::BLOCK,
    entry::Kind,
    metadata::{XATTR_VALUE_MAX, Xattr},
};
use std::{
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::symlink},
    thread::{self},
};

/// Control connections work, but streams do not, as behind a middlebox.
#[test]
fn an_end_that_gets_no_stream_through_says_so() {
    let options = Options {
        silence: 10,
        ..options()
    };
    let mut liar = HostilePeer::start_with_options(options, Role::Target);
    while liar.source_messages.is_none() || liar.target_messages.is_none() {
        liar.accept();
    }
    let listener = liar.listener.try_clone().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let error = liar.endpoint.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no stream can be opened");
}

#[test]
fn paths_that_lead_out_end_the_conversation() {
    for path in [
        "../../xx",
        "/etc/pwn",
        "a/../../",
        "a//b/c/d",
        "a/./b//c",
        "a\0bcdefg",
    ] {
        let mut liar = HostilePeer::start(Role::Target);
        let _stream = liar.accept_first_stream();
        liar.send_source_message(&SourceMsg::Roots(Vec::new()));
        let mut bytes = Vec::new();
        let order = SourceMsg::Entry {
            number: 0,
            entry: entry("abcdefgh", Kind::Directory).into(),
            portion: Portion::Whole,
        };
        message::write(&mut bytes, &order).unwrap();
        let at = bytes.windows(8).position(|at| at == b"abcdefgh").unwrap();
        bytes[at..at + 8].copy_from_slice(path.as_bytes());
        let orders = liar.source_messages.as_mut().unwrap();
        orders.write_all(&bytes).unwrap();
        orders.flush().unwrap();
        let (end, directory) = liar.disconnect();
        assert!(end.is_err(), "{path:?}");
        assert_eq!(names(directory.path()), ["from", "to"], "{path:?}");
        assert_eq!(names(&directory.path().join("to")), [""; 0], "{path:?}");
    }
}

/// The directory around a single named target must not change, nor lose entries by `--delete`.
#[test]
fn contents_are_refused_where_one_thing_gets_a_name() {
    let root_metadata = || SourceMsg::RootMetadata(entry("a", Kind::Directory).metadata.into());
    let one = entry("a", Kind::Directory).path;
    for messages in [
        vec![SourceMsg::Roots(vec![]), root_metadata()],
        vec![SourceMsg::Roots(vec![one]), root_metadata()],
    ] {
        let options = Options {
            into_directory: false,
            delete: true,
            ..options()
        };
        let mut liar = HostilePeer::start_with_options(options, Role::Target);
        let _stream = liar.accept_first_stream();
        messages
            .iter()
            .for_each(|order| liar.send_source_message(order));
        liar.send_source_message(&SourceMsg::ScanEnded);
        let (end, folder) = liar.disconnect();
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
    let mut liar = HostilePeer::start(Role::Target);
    let _stream = liar.accept_first_stream();
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    let invalid = [
        vec![],
        vec![0..3],
        vec![1..2, 0..1],
        vec![0..1, 0..2],
        vec![2..1],
        vec![0..1, u64::MAX - 1..u64::MAX],
    ];
    let shares = [Portion::KeepPiece, Portion::JoinPiece];
    let all = shares
        .iter()
        .flat_map(|share| invalid.iter().cloned().map(share));
    for (number, share) in (0..).zip(all) {
        liar.send_source_message(&SourceMsg::Entry {
            number,
            entry: entry(&format!("large{number}"), file(BLOCK + 1)).into(),
            portion: share.clone(),
        });
        let outcome = liar.wait_for_outcome(number);
        assert!(
            matches!(outcome, Outcome::Failed(_)),
            "{share:?}: {outcome:?}"
        );
    }
    let (end, folder) = liar.disconnect();
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
    let mut liar = HostilePeer::start(Role::Target);
    let mut stream = liar.accept_first_stream();
    let outside = liar.path("from");
    let before = names(&outside);
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    let target = outside.as_os_str().as_bytes().into();
    liar.announce(0, "way", Kind::Symlink { target });
    liar.announce(1, "way/small", file(3));
    liar.announce(2, "way/large", file(BLOCK + 1));
    liar.announce(3, "way/deep", Kind::Directory);
    assert_eq!(liar.wait_for_outcome(0), Outcome::Made);
    for number in 1..4 {
        assert!(
            matches!(liar.wait_for_outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    // Also a path that was a directory when the file was begun.
    liar.announce(4, "dir", Kind::Directory);
    liar.announce(5, "dir/small", file(3));
    liar.wait_for_request(5);
    fs::rename(liar.path("to/dir"), liar.path("to/moved")).unwrap();
    symlink(&outside, liar.path("to/dir")).unwrap();
    send_block(&mut stream, &block(5, 3, 0));
    // The file may go to the moved directory, because its descriptor is open.
    let outcome = liar.wait_for_outcome(5);
    let moved = names(&liar.path("to/moved"));
    assert_eq!(
        moved.len(),
        usize::from(outcome == Outcome::Made),
        "{outcome:?}"
    );
    let (end, _folder) = liar.disconnect();
    assert!(end.is_err(), "it went without an end");
    assert_eq!(names(&outside), before);
}

#[test]
fn blocks_are_believed_where_they_belong_only() {
    let mut liar = HostilePeer::start(Role::Target);
    let mut stream = liar.accept_first_stream();
    let size = 2 * BLOCK + 5;
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    for (number, name) in ["good", "beyond", "damaged", "short", "moved"]
        .iter()
        .enumerate()
    {
        liar.announce(number as u64, name, file(size));
    }
    (0..5).for_each(|number| liar.wait_for_request(number));
    send_block(&mut stream, &block(99, size, 0));
    let (mut beyond, bytes) = block(1, size, 0);
    beyond.block = 7;
    send_block(&mut stream, &(beyond, bytes));
    let (damaged, mut bytes) = block(2, size, 1);
    bytes[4711] ^= 1;
    send_block(&mut stream, &(damaged, bytes));
    let (mut short, mut bytes) = block(3, size, 0);
    bytes.truncate(5);
    short.content = Content::Data(5);
    send_block(&mut stream, &(short, bytes));
    let (mut moved, bytes) = block(4, size, 0);
    moved.block = 1;
    send_block(&mut stream, &(moved, bytes));
    // Out of order, with duplicates.
    for index in [2, 0, 2, 1, 0] {
        send_block(&mut stream, &block(0, size, index));
    }
    liar.send_source_message(&SourceMsg::Sealed {
        file: 0,
        hash: None,
    });
    for number in 1..5 {
        assert!(
            matches!(liar.wait_for_outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    assert_eq!(liar.wait_for_outcome(0), Outcome::Made);
    let (_, folder) = liar.disconnect();
    let to = folder.path().join("to");
    assert_eq!(names(&to), ["good"]);
    let wanted: Vec<u8> = (0..3).flat_map(|index| block(0, size, index).1).collect();
    assert!(fs::read(to.join("good")).unwrap() == wanted);
}

#[test]
fn a_stream_that_is_cut_or_speaks_nonsense_counts_what_was_whole() {
    let mut liar = HostilePeer::start(Role::Target);
    let mut stream = liar.accept_first_stream();
    let size = 2 * BLOCK;
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    liar.announce(0, "file", file(size));
    liar.wait_for_request(0);
    send_block(&mut stream, &block(0, size, 0));
    let (header, bytes) = block(0, size, 1);
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(&bytes[..1000]).unwrap();
    stream.flush().unwrap();
    drop(stream);
    let wait_for_end = |liar: &mut HostilePeer, of: u64| loop {
        if let TargetMsg::StreamEnded { stream, blocks } =
            HostilePeer::receive(&mut liar.target_messages)
            && stream == of
        {
            return blocks;
        }
    };
    assert_eq!(wait_for_end(&mut liar, 0), 1);
    let (number, mut stream) = liar.accept_stream();
    stream.write_all(&[0xff; 64]).unwrap();
    stream.flush().unwrap();
    assert_eq!(wait_for_end(&mut liar, number), 0);
    let (_, mut stream) = liar.accept_stream();
    send_block(&mut stream, &block(0, size, 1));
    liar.send_source_message(&SourceMsg::Sealed {
        file: 0,
        hash: None,
    });
    assert_eq!(liar.wait_for_outcome(0), Outcome::Made);
    drop(liar.disconnect());
}

#[test]
fn absurd_sizes_and_numbers_are_refused() {
    let mut liar = HostilePeer::start(Role::Target);
    let _stream = liar.accept_first_stream();
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    liar.announce(0, "absurd", file(u64::MAX));
    assert!(matches!(liar.wait_for_outcome(0), Outcome::Failed(_)));
    for number in 1..100_000 {
        liar.announce(number, &format!("{number}"), file(1));
    }
    let end = liar.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("more than it may"), "{end}");

    let mut liar = HostilePeer::start(Role::Target);
    let _stream = liar.accept_first_stream();
    liar.send_source_message(&SourceMsg::Roots(Vec::new()));
    let xattr = |number: u8| Xattr {
        name: format!("user.{number}").into_bytes().into(),
        value: vec![number; XATTR_VALUE_MAX - 1024].into(),
    };
    let mut heavy = entry("heavy", file(1));
    heavy.metadata.xattrs = (0..4).map(xattr).collect();
    for number in 0..1500 {
        liar.send_source_message(&SourceMsg::Entry {
            number,
            entry: heavy.clone().into(),
            portion: Portion::Whole,
        });
    }
    let end = liar.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("more than it may"), "{end}");

    let mut liar = HostilePeer::start(Role::Target);
    let _stream = liar.accept_first_stream();
    let orders = liar.source_messages.as_mut().unwrap();
    orders.write_all(&u32::MAX.to_be_bytes()).unwrap();
    orders.flush().unwrap();
    let end = liar.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(end.contains("too long"), "{end}");
}
