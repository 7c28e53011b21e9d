// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets against a source that lies.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "the tests send such ranges"
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
    blocks::BLOCK_LEN,
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
fn reports_that_no_stream_can_be_opened() {
    let options = Options {
        idle_timeout_ms: 10,
        ..options()
    };
    let mut peer = HostilePeer::start_with_options(options, Role::Target);
    while peer.source_messages.is_none() || peer.target_messages.is_none() {
        peer.accept();
    }
    let listener = peer.listener.try_clone().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let error = peer.endpoint.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no stream can be opened");
}

#[test]
fn rejects_paths_outside_target() {
    for path in [
        "../../xx",
        "/etc/pwn",
        "a/../../",
        "a//b/c/d",
        "a/./b//c",
        "a\0bcdefg",
    ] {
        let mut peer = HostilePeer::start(Role::Target);
        let _stream = peer.accept_first_stream();
        peer.send_source_message(&SourceMsg::Roots(Vec::new()));
        let mut bytes = Vec::new();
        let message = SourceMsg::Entry {
            number: 0,
            entry: entry("abcdefgh", Kind::Directory),
            portion: Portion::Whole,
        };
        message::write(&mut bytes, &message).unwrap();
        let at = bytes.windows(8).position(|at| at == b"abcdefgh").unwrap();
        bytes[at..at + 8].copy_from_slice(path.as_bytes());
        let connection = peer.source_messages.as_mut().unwrap();
        connection.write_all(&bytes).unwrap();
        connection.flush().unwrap();
        let (result, directory) = peer.disconnect();
        assert!(result.is_err(), "{path:?}");
        assert_eq!(names(directory.path()), ["from", "to"], "{path:?}");
        assert_eq!(names(&directory.path().join("to")), [""; 0], "{path:?}");
    }
}

/// The directory around a single named target must not change, nor lose entries by `--delete`.
#[test]
fn rejects_contents_for_single_name() {
    let root_metadata = || SourceMsg::RootMetadata(entry("a", Kind::Directory).metadata);
    let one = entry("a", Kind::Directory).path;
    for messages in [
        vec![SourceMsg::Roots(vec![]), root_metadata()],
        vec![
            SourceMsg::Roots(vec![one.clone()]),
            SourceMsg::PlannedContents,
        ],
        vec![
            SourceMsg::Roots(vec![one]),
            SourceMsg::PlanEnded,
            root_metadata(),
        ],
    ] {
        let options = Options {
            into_directory: false,
            delete: true,
            ..options()
        };
        let mut peer = HostilePeer::start_with_options(options, Role::Target);
        let _stream = peer.accept_first_stream();
        messages
            .iter()
            .for_each(|message| peer.send_source_message(message));
        peer.send_source_message(&SourceMsg::ScanEnded);
        let (result, directory) = peer.disconnect();
        let why = format!("{:#}", result.unwrap_err());
        assert!(why.contains("names a single entry"), "{why}");
        assert_eq!(names(directory.path()), ["from"]);
    }
}

#[test]
#[allow(
    clippy::reversed_empty_ranges,
    clippy::single_range_in_vec_init,
    reason = "the test sends invalid ranges"
)]
fn rejects_pieces_with_invalid_blocks() {
    let mut peer = HostilePeer::start(Role::Target);
    let _stream = peer.accept_first_stream();
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    let invalid = [
        vec![],
        vec![0..3],
        vec![1..2, 0..1],
        vec![0..1, 0..2],
        vec![2..1],
        vec![0..1, u64::MAX - 1..u64::MAX],
    ];
    let portions = [Portion::KeepPiece, Portion::JoinPiece];
    let all = portions
        .iter()
        .flat_map(|portion| invalid.iter().cloned().map(portion));
    for (number, portion) in (0..).zip(all) {
        peer.send_source_message(&SourceMsg::Entry {
            number,
            entry: entry(&format!("large{number}"), file(BLOCK_LEN + 1)),
            portion: portion.clone(),
        });
        let outcome = peer.wait_for_outcome(number);
        assert!(
            matches!(outcome, Outcome::Failed(_)),
            "{portion:?}: {outcome:?}"
        );
    }
    let (result, directory) = peer.disconnect();
    assert!(result.is_err(), "the peer closed without a final message");
    let left = fs::read_dir(directory.path().join("to")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(
        left.iter().all(|name| name == ".longhaul-manifest"),
        "{left:?}"
    );
}

#[test]
fn never_writes_through_symlinks() {
    let mut peer = HostilePeer::start(Role::Target);
    let mut stream = peer.accept_first_stream();
    let outside = peer.path("from");
    let before = names(&outside);
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    let target = outside.as_os_str().as_bytes().into();
    peer.announce(0, "way", Kind::Symlink { target });
    peer.announce(1, "way/small", file(3));
    peer.announce(2, "way/large", file(BLOCK_LEN + 1));
    peer.announce(3, "way/deep", Kind::Directory);
    assert_eq!(peer.wait_for_outcome(0), Outcome::Copied);
    for number in 1..4 {
        assert!(
            matches!(peer.wait_for_outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    // Also a path that was a directory when the file was begun.
    peer.announce(4, "dir", Kind::Directory);
    peer.announce(5, "dir/small", file(3));
    peer.wait_for_request(5);
    fs::rename(peer.path("to/dir"), peer.path("to/moved")).unwrap();
    symlink(&outside, peer.path("to/dir")).unwrap();
    send_block(&mut stream, &block(5, 3, 0));
    // The file may go to the moved directory, because its descriptor is open.
    let outcome = peer.wait_for_outcome(5);
    let moved = names(&peer.path("to/moved"));
    assert_eq!(
        moved.len(),
        usize::from(outcome == Outcome::Copied),
        "{outcome:?}"
    );
    let (result, _folder) = peer.disconnect();
    assert!(result.is_err(), "the peer closed without a final message");
    assert_eq!(names(&outside), before);
}

/// Sections that the source takes for known, although the target has no other version, or another one by now.
#[test]
fn rejects_sections_that_it_does_not_have() {
    let mut peer = HostilePeer::start(Role::Target);
    let mut stream = peer.accept_first_stream();
    let size = 2 * BLOCK_LEN + 5;
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    let names = ["new", "other", "short", "long", "beyond", "differs"];
    for (name, number) in names.iter().zip(0..) {
        if *name != "new" {
            fs::write(peer.path("to").join(name), vec![1; size as usize]).unwrap();
        }
        peer.announce(number, name, file(size));
        peer.wait_for_request(number);
        let (mut header, mut bytes) = block(number, size, 1);
        let (sections, length) = match *name {
            "new" | "other" => (0, 0),
            "short" => (3, 1 << 16),
            "long" => (1, 1 << 17),
            "beyond" => {
                header.block = 2;
                (2, 5)
            }
            _ => (1 << 63, 1 << 16),
        };
        header.content = Content::Changed { sections, length };
        bytes.resize(length as usize, 0);
        send_block(&mut stream, &(header, bytes));
        let outcome = peer.wait_for_outcome(number);
        assert!(matches!(outcome, Outcome::Failed(_)), "{name}: {outcome:?}");
    }
    // Small files are always sent whole.
    peer.announce(9, "small", file(5));
    peer.wait_for_request(9);
    let (mut header, _) = block(9, 5, 0);
    header.content = Content::Changed {
        sections: 0,
        length: 0,
    };
    send_block(&mut stream, &(header, Vec::new()));
    assert!(matches!(peer.wait_for_outcome(9), Outcome::Failed(_)));
    let _ = peer.disconnect();
}

#[test]
fn rejects_misplaced_and_damaged_blocks() {
    let mut peer = HostilePeer::start(Role::Target);
    let mut stream = peer.accept_first_stream();
    let size = 2 * BLOCK_LEN + 5;
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    for (number, name) in ["good", "beyond", "damaged", "short", "moved"]
        .iter()
        .enumerate()
    {
        peer.announce(number as u64, name, file(size));
    }
    (0..5).for_each(|number| peer.wait_for_request(number));
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
    peer.send_source_message(&SourceMsg::Sealed {
        file: 0,
        hash: None,
    });
    for number in 1..5 {
        assert!(
            matches!(peer.wait_for_outcome(number), Outcome::Failed(_)),
            "{number}"
        );
    }
    assert_eq!(peer.wait_for_outcome(0), Outcome::Copied);
    let (_, directory) = peer.disconnect();
    let to = directory.path().join("to");
    assert_eq!(names(&to), ["good"]);
    let wanted: Vec<u8> = (0..3).flat_map(|index| block(0, size, index).1).collect();
    assert!(fs::read(to.join("good")).unwrap() == wanted);
}

#[test]
fn counts_only_whole_blocks_of_broken_stream() {
    let mut peer = HostilePeer::start(Role::Target);
    let mut stream = peer.accept_first_stream();
    let size = 2 * BLOCK_LEN;
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    peer.announce(0, "file", file(size));
    peer.wait_for_request(0);
    send_block(&mut stream, &block(0, size, 0));
    let (header, bytes) = block(0, size, 1);
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(&bytes[..1000]).unwrap();
    stream.flush().unwrap();
    drop(stream);
    let wait_for_end = |peer: &mut HostilePeer, of: u64| loop {
        if let TargetMsg::StreamEnded { stream, blocks } =
            HostilePeer::receive(&mut peer.target_messages)
            && stream == of
        {
            return blocks;
        }
    };
    assert_eq!(wait_for_end(&mut peer, 0), 1);
    let (number, mut stream) = peer.accept_stream();
    stream.write_all(&[0xff; 64]).unwrap();
    stream.flush().unwrap();
    assert_eq!(wait_for_end(&mut peer, number), 0);
    let (_, mut stream) = peer.accept_stream();
    send_block(&mut stream, &block(0, size, 1));
    peer.send_source_message(&SourceMsg::Sealed {
        file: 0,
        hash: None,
    });
    assert_eq!(peer.wait_for_outcome(0), Outcome::Copied);
    drop(peer.disconnect());
}

#[test]
fn rejects_excessive_sizes_and_counts() {
    let mut peer = HostilePeer::start(Role::Target);
    let _stream = peer.accept_first_stream();
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    peer.announce(0, "absurd", file(u64::MAX));
    assert!(matches!(peer.wait_for_outcome(0), Outcome::Failed(_)));
    for number in 1..100_000 {
        peer.announce(number, &format!("{number}"), file(1));
    }
    let result = peer.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(result.contains("more than allowed"), "{result}");

    let mut peer = HostilePeer::start(Role::Target);
    let _stream = peer.accept_first_stream();
    peer.send_source_message(&SourceMsg::Roots(Vec::new()));
    let xattr = |number: u8| Xattr {
        name: format!("user.{number}").into_bytes().into(),
        value: vec![number; XATTR_VALUE_MAX - 1024].into(),
    };
    let mut heavy = entry("heavy", file(1));
    heavy.metadata.xattrs = (0..4).map(xattr).collect();
    for number in 0..1500 {
        peer.send_source_message(&SourceMsg::Entry {
            number,
            entry: heavy.clone(),
            portion: Portion::Whole,
        });
    }
    let result = peer.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(result.contains("more than allowed"), "{result}");

    let mut peer = HostilePeer::start(Role::Target);
    let _stream = peer.accept_first_stream();
    let connection = peer.source_messages.as_mut().unwrap();
    connection.write_all(&u32::MAX.to_be_bytes()).unwrap();
    connection.flush().unwrap();
    let result = peer.endpoint.join().unwrap().unwrap_err().to_string();
    assert!(result.contains("too long"), "{result}");
}
