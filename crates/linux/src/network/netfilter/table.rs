// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a table in the kernel.

use super::{
    Family,
    message::{self, ACK, DUMP, Message, TABLES, attributes},
};
use std::io;

/// `NFT_MSG_NEWTABLE`, `NFT_MSG_GETTABLE`, `NFT_MSG_NEWRULE` and `NFT_MSG_GETRULE`.
const TABLE: u16 = TABLES << 8;
const GET_TABLE: u16 = TABLES << 8 | 1;
const RULE: u16 = TABLES << 8 | 6;
const GET_RULES: u16 = TABLES << 8 | 7;

/// `NFTA_TABLE_NAME` and `NFTA_RULE_TABLE`.
const NAME: u16 = 1;

/// Attempts to dump a list that other processes change meanwhile.
const ATTEMPTS: usize = 5;

/// A table that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Number that the kernel gave the table at its creation, unique in the network namespace.
    pub handle: u64,
    /// Number of rules in all its chains.
    pub rules: usize,
}

impl Table {
    /// Finds the table of this name, if it exists.
    pub fn find(family: Family, name: &str) -> io::Result<Option<Self>> {
        let found = handle(family, name)?.map(|handle| {
            let rules = rules(family, name)?;
            Ok(Self { handle, rules })
        });
        found.transpose()
    }
}

/// Returns the generation of all rules in this network namespace: a change through netlink begins a new one.
pub fn generation() -> io::Result<u32> {
    const GET_GENERATION: u16 = TABLES << 8 | 16;
    const ID: u16 = 1;
    let mut generation = None;
    let query = Message::new(GET_GENERATION, ACK, 0, 0).finish();
    message::exchange(&message::open()?, &query, |answer| {
        let mut ids = attributes(answer.body).filter(|(kind, _)| *kind == ID);
        let id = ids.next().and_then(|(_, value)| value.first_chunk());
        generation = id.map(|id| u32::from_be_bytes(*id)).or(generation);
    })?;
    generation.ok_or_else(|| io::Error::other("the kernel names no generation"))
}

fn handle(family: Family, name: &str) -> io::Result<Option<u64>> {
    const HANDLE: u16 = 4;
    let request = Message::new(GET_TABLE, ACK, family.number(), 0).text(NAME, name);
    let mut found = None;
    let outcome = message::exchange(&message::open()?, &request.finish(), |answer| {
        let mut all = attributes(answer.body).filter(|(kind, _)| *kind == HANDLE);
        if let (TABLE, Some((_, value))) = (answer.kind, all.next()) {
            found = value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        }
    });
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(|()| found),
    }
}

fn rules(family: Family, name: &str) -> io::Result<usize> {
    let request = Message::new(GET_RULES, DUMP, family.number(), 0).text(NAME, name);
    let request = request.finish();
    let mut count = 0;
    for _ in 0..ATTEMPTS {
        let mut is_interrupted = false;
        count = 0;
        message::exchange(&message::open()?, &request, |answer| {
            is_interrupted |= answer.is_interrupted();
            count += usize::from(answer.kind == RULE);
        })?;
        if !is_interrupted {
            break;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::{super::nft, *};
    use crate::netns::Netns;
    use longhaul_testprograms::skip;

    #[test]
    fn counts_rules_and_detects_recreated_tables() {
        if !skip::require(rustix::process::geteuid().is_root(), "root (CAP_NET_ADMIN)") {
            return;
        }
        let name = format!("table-{}", std::process::id());
        let netns = Netns::create(&name).unwrap();
        let load = |commands: &[&str]| nft::load(&commands.join("\n")).map_err(io::Error::other);
        let one = [
            "add table ip t",
            "add chain ip t a",
            "add rule ip t a accept",
        ];
        let more = [
            "add rule ip t a drop",
            "add table ip u",
            "add chain ip u a",
            "add rule ip u a drop",
        ];
        let found = netns.run(|| {
            let find = || Table::find(Family::Ip, "t");
            let mut found = vec![find()?];
            load(&[&one[..], &more].concat())?;
            found.push(find()?);
            load(&["flush table ip t"])?;
            found.push(find()?);
            load(&[&["delete table ip t"], &one[..]].concat())?;
            found.push(find()?);
            Ok(found)
        });
        Netns::delete(&name).unwrap();
        let found = found.unwrap();
        let rules: Vec<_> = found.iter().map(|table| table.map(|t| t.rules)).collect();
        assert_eq!(rules, [None, Some(2), Some(0), Some(1)]);
        let handle = |n: usize| found[n].unwrap().handle;
        assert_eq!(handle(1), handle(2));
        assert_ne!(handle(2), handle(3));
    }
}
