// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that an endpoint of a copy receives from its peer. A message is read to its last byte and not beyond, reads
//! the same after it is encoded again, and its paths stay inside the copy.

use longhaul_copy::protocol::message::{SourceMsg, TargetMsg, read, write};
use longhaul_store::{entry::Kind, path::RelPath};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Debug, path::Component};

pub(crate) fn check(input: &[u8]) {
    read_all::<SourceMsg>(input).iter().for_each(check_paths);
    read_all::<TargetMsg>(input);
    // The same bytes with a correct length prefix.
    let framed = [&(input.len() as u32).to_be_bytes(), input].concat();
    read_all::<SourceMsg>(&framed).iter().for_each(check_paths);
    read_all::<TargetMsg>(&framed);
}

/// Reads messages up to the end of the bytes, or up to the first invalid one.
fn read_all<M: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) -> Vec<M> {
    let (mut rest, mut all) = (bytes, Vec::new());
    loop {
        let before = rest;
        match read::<M>(&mut rest) {
            Ok(Some(message)) => {
                check_length(before, rest);
                check_round_trip(&message);
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

fn check_length(before: &[u8], rest: &[u8]) {
    let (length, _) = before.split_first_chunk().unwrap();
    let taken = before.len() - rest.len();
    assert_eq!(taken, 4 + u32::from_be_bytes(*length) as usize);
}

/// Compares messages, not bytes: the encoding of a number may be longer than necessary.
fn check_round_trip<M: Serialize + DeserializeOwned + Debug>(message: &M) {
    let mut encoded = Vec::new();
    write(&mut encoded, message).unwrap();
    let again: M = read(&mut encoded.as_slice()).unwrap().unwrap();
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
    let mut twice = Vec::new();
    write(&mut twice, &again).unwrap();
    assert_eq!(twice, encoded);
}

fn check_paths(message: &SourceMsg) {
    match message {
        SourceMsg::Roots(roots) => roots.iter().for_each(check_path),
        SourceMsg::Excluded(path) => check_path(path),
        SourceMsg::Entry { entry, .. } | SourceMsg::Reannounce { entry, .. } => {
            check_path(&entry.path);
            if let Kind::HardLink { to } = &entry.kind {
                check_path(to);
            }
        }
        _ => {}
    }
}

fn check_path(path: &RelPath) {
    let mut components = path.as_path().components();
    assert!(components.all(|component| matches!(component, Component::Normal(_))));
}
