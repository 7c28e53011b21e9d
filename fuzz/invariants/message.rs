// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an end of a copy hears from the other: a message is read to its last byte and not beyond, written again it says
//! the same, and its paths lead nowhere else.

use longhaul_store::path::RelPath;
use longhaul_transfer::protocol::{
    entry::Kind,
    message::{Answer, Order, read, write},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Debug, path::Component};

pub(crate) fn check(input: &[u8]) {
    heard::<Order>(input).iter().for_each(leads_nowhere);
    heard::<Answer>(input);
    // A script that needs not know its length.
    let framed = [&(input.len() as u32).to_be_bytes(), input].concat();
    heard::<Order>(&framed).iter().for_each(leads_nowhere);
    heard::<Answer>(&framed);
}

/// The messages of a conversation, up to its end or what is none.
fn heard<M: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Vec<M> {
    let (mut rest, mut all) = (bytes, Vec::new());
    loop {
        let before = rest;
        match read::<M>(&mut rest) {
            Ok(Some(message)) => {
                ends_where_it_says(before, rest);
                says_the_same(&message);
                all.push(message);
            }
            Ok(None) => {
                assert!(before.len() < 4, "the end, and {} bytes more", before.len());
                return all;
            }
            Err(_) => return all,
        }
    }
}

fn ends_where_it_says(before: &[u8], rest: &[u8]) {
    let (length, _) = before.split_first_chunk().unwrap();
    let taken = before.len() - rest.len();
    assert_eq!(taken, 4 + u32::from_be_bytes(*length) as usize);
}

/// Numbers may be written longer than they need be: what is read of it is what counts.
fn says_the_same<M: Serialize + DeserializeOwned + Debug>(message: &M) {
    let mut written = Vec::new();
    write(&mut written, message).unwrap();
    let again: M = read(&mut written.as_slice()).unwrap().unwrap();
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
    let mut twice = Vec::new();
    write(&mut twice, &again).unwrap();
    assert_eq!(twice, written);
}

fn leads_nowhere(order: &Order) {
    match order {
        Order::Tops(tops) => tops.iter().for_each(stays_below),
        Order::Spared(path) => stays_below(path),
        Order::Entry { entry, .. } | Order::Again { entry, .. } => {
            stays_below(&entry.path);
            if let Kind::HardLink { to } = &entry.kind {
                stays_below(to);
            }
        }
        _ => {}
    }
}

fn stays_below(path: &RelPath) {
    let mut components = path.as_path().components();
    assert!(components.all(|component| matches!(component, Component::Normal(_))));
}
