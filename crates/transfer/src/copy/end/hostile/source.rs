// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources against a target that lies, or that a stream does not reach.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "such ranges are what is sent"
)]

use super::liar::Liar;
use crate::{
    protocol::{
        block::{Content, HEADER_LEN, Header},
        control::Role,
        message::{MissingBlocks, SourceMsg, TargetMsg},
    },
    transport::connection::Connection,
};
use std::{collections::BTreeSet, io::Read};

/// Lets a source announce its one file, sends it messages, and returns the error that ends it.
fn told(answers: &[TargetMsg]) -> String {
    let mut liar = Liar::to(Role::Source);
    let _stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), SourceMsg::ScanEnded) {}
    for answer in answers {
        liar.answer(answer);
    }
    liar.end.join().unwrap().unwrap_err().to_string()
}

#[test]
fn a_source_believes_no_count_and_is_asked_once() {
    let received = TargetMsg::Received {
        stream: 0,
        blocks: 1000,
    };
    assert!(told(&[received]).contains("1000 parcels confirmed"));
    let need = || TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..1]),
    };
    assert!(told(&[need(), need()]).contains("asks again"));
}

#[test]
fn a_source_that_is_asked_for_what_it_has_not_withdraws() {
    let mut liar = Liar::to(Role::Source);
    let _stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), SourceMsg::ScanEnded) {}
    let unknown = TargetMsg::Request {
        file: 4711,
        missing: MissingBlocks::Whole(u64::MAX),
    };
    liar.answer(&unknown);
    let beyond = MissingBlocks::Blocks(vec![u64::MAX - 1..u64::MAX, 5..u64::MAX, 9..3]);
    liar.answer(&TargetMsg::Request {
        file: 0,
        missing: beyond,
    });
    let said = Liar::hear(&mut liar.orders);
    assert!(matches!(said, SourceMsg::Aborted { file: 0 }), "{said:?}");
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

/// A stalled stream delays a copy no longer than another stream takes to carry its blocks.
#[test]
fn what_a_stream_does_not_get_through_goes_on_another() {
    let mut liar = Liar::over_streams(2, Role::Source);
    let [(_, stalled), (number, mut good)] = liar.meet_all();
    while !matches!(Liar::hear(&mut liar.orders), SourceMsg::ScanEnded) {}
    liar.answer(&TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..2]),
    });
    let mut blocks = BTreeSet::new();
    for received in 1..=2 {
        blocks.insert(receive(&mut good).block);
        liar.answer(&TargetMsg::Received {
            stream: number,
            blocks: received,
        });
    }
    assert_eq!(blocks, BTreeSet::from([0, 1]));
    liar.answer(&TargetMsg::Finished {
        removed: 0,
        failed: 0,
    });
    liar.end.join().unwrap().unwrap();
    drop(stalled);
}

/// A source learns nothing from a stream on which it has sent all its data, and the peer may never have
/// started to read it.
#[test]
fn a_stream_that_the_far_end_left_without_a_word_is_given_up() {
    let mut liar = Liar::to(Role::Source);
    let mut stream = liar.meet();
    while !matches!(Liar::hear(&mut liar.orders), SourceMsg::ScanEnded) {}
    liar.answer(&TargetMsg::Request {
        file: 0,
        missing: MissingBlocks::Blocks(vec![0..1]),
    });
    assert_eq!(receive(&mut stream).block, 0);
    drop(stream);
    while !matches!(
        Liar::hear(&mut liar.orders),
        SourceMsg::StreamAbandoned { stream: 0 }
    ) {}
    liar.answer(&TargetMsg::StreamEnded {
        stream: 0,
        blocks: 0,
    });
    let (_, mut stream) = liar.stream();
    assert_eq!(receive(&mut stream).block, 0);
    drop(liar.hang_up());
}
