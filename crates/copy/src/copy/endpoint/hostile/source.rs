// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources against a target that lies, or that a stream does not reach.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "the tests send such ranges"
)]

use super::peer::HostilePeer;
use crate::{
    connection::Connection,
    protocol::{
        block::{Content, HEADER_LEN, Header},
        control::Role,
        message::{MissingBlocks, SourceMsg, TargetMsg},
    },
};
use std::{collections::BTreeSet, io::Read};

/// Lets a source announce its one file, sends it messages, and returns the error that ends it.
fn error_after(messages: &[TargetMsg]) -> String {
    let mut peer = HostilePeer::start(Role::Source);
    let _stream = peer.accept_first_stream();
    while !matches!(
        HostilePeer::receive(&mut peer.source_messages),
        SourceMsg::ScanEnded
    ) {}
    for message in messages {
        peer.send_target_message(message);
    }
    peer.endpoint.join().unwrap().unwrap_err().to_string()
}

#[test]
fn rejects_false_counts_and_duplicate_requests() {
    let received = TargetMsg::Received {
        stream: 0,
        blocks: 1000,
    };
    assert!(error_after(&[received]).contains("1000 parcels confirmed"));
    let request = || TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..1]),
    };
    assert!(error_after(&[request(), request()]).contains("requested a file twice"));
}

#[test]
fn aborts_file_on_request_for_nonexistent_blocks() {
    let mut peer = HostilePeer::start(Role::Source);
    let _stream = peer.accept_first_stream();
    while !matches!(
        HostilePeer::receive(&mut peer.source_messages),
        SourceMsg::ScanEnded
    ) {}
    let unknown = TargetMsg::Request {
        file: 4711,
        missing: MissingBlocks::Whole(u64::MAX),
    };
    peer.send_target_message(&unknown);
    let beyond = MissingBlocks::Blocks(vec![u64::MAX - 1..u64::MAX, 5..u64::MAX, 9..3]);
    peer.send_target_message(&TargetMsg::Request {
        file: 0,
        missing: beyond,
    });
    let message = HostilePeer::receive(&mut peer.source_messages);
    assert!(
        matches!(message, SourceMsg::Aborted { file: 0 }),
        "{message:?}"
    );
    drop(peer.disconnect());
}

fn receive_block(from: &mut Connection) -> Header {
    let mut header = [0; HEADER_LEN];
    from.read_exact(&mut header).unwrap();
    let header = Header::parse(&header).unwrap();
    if let Content::Data(length) = header.content {
        from.read_exact(&mut vec![0; length as usize]).unwrap();
    }
    header
}

/// A stalled stream delays a copy no longer than another stream takes to carry its blocks.
#[test]
fn repeats_blocks_of_stalled_stream_on_another() {
    let mut peer = HostilePeer::start_with_streams(2, Role::Source);
    let [(_, stalled), (number, mut good)] = peer.accept_first_streams();
    while !matches!(
        HostilePeer::receive(&mut peer.source_messages),
        SourceMsg::ScanEnded
    ) {}
    peer.send_target_message(&TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..2]),
    });
    let mut blocks = BTreeSet::new();
    for received in 1..=2 {
        blocks.insert(receive_block(&mut good).block);
        peer.send_target_message(&TargetMsg::Received {
            stream: number,
            blocks: received,
        });
    }
    assert_eq!(blocks, BTreeSet::from([0, 1]));
    peer.send_target_message(&TargetMsg::Finished {
        removed: 0,
        failed: 0,
    });
    peer.endpoint.join().unwrap().unwrap();
    drop(stalled);
}

/// A source learns nothing from a stream on which it has sent all its data, and the peer may never have
/// started to read it.
#[test]
fn gives_up_stream_that_peer_closed_silently() {
    let mut peer = HostilePeer::start(Role::Source);
    let mut stream = peer.accept_first_stream();
    while !matches!(
        HostilePeer::receive(&mut peer.source_messages),
        SourceMsg::ScanEnded
    ) {}
    peer.send_target_message(&TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..1]),
    });
    assert_eq!(receive_block(&mut stream).block, 0);
    drop(stream);
    while !matches!(
        HostilePeer::receive(&mut peer.source_messages),
        SourceMsg::StreamAbandoned { stream: 0 }
    ) {}
    peer.send_target_message(&TargetMsg::StreamEnded {
        stream: 0,
        blocks: 0,
    });
    let (_, mut stream) = peer.accept_stream();
    assert_eq!(receive_block(&mut stream).block, 0);
    drop(peer.disconnect());
}
