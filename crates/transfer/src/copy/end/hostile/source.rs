// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source before a target that lies, or that a stream does not reach.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "such ranges are what is sent"
)]

use super::liar::Liar;
use crate::{
    protocol::{
        block::{Content, HEADER_LEN, Header},
        message::{Answer, Need, Order},
        order::Role,
    },
    transport::connection::Connection,
};
use std::{collections::BTreeSet, io::Read};

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
