// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the hosts of a testbed stand in its drawing: the first way in a row, what other ways have of
//! their own in rows below, in the column that is as far from a host which both pass.

use crate::result::{Testbed, TestbedHost, TestbedLink};
use std::collections::BTreeMap;

/// A host and its box.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) host: &'a TestbedHost,
    pub(super) column: usize,
    pub(super) row: usize,
}

/// A link between two places, each a column and a row.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    pub(super) link: &'a TestbedLink,
    pub(super) ends: [(usize, usize); 2],
}

/// The whole drawing; the first way's first host is the first place.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) places: Vec<Place<'a>>,
    pub(super) wires: Vec<Wire<'a>>,
}

pub(super) fn of(testbed: &Testbed) -> Layout<'_> {
    let mut found: BTreeMap<&str, (i64, usize)> = BTreeMap::new();
    let mut hosts: Vec<&TestbedHost> = Vec::new();
    for way in ways(testbed) {
        let offset = offset(way, &found);
        let row = free_row(way, offset, &found);
        for (n, host) in way.hosts.iter().enumerate() {
            if !found.contains_key(host.name.as_str()) {
                found.insert(&host.name, (n as i64 + offset, row));
                hosts.push(host);
            }
        }
    }
    let left = found.values().map(|(column, _)| *column).min().unwrap_or(0);
    let place = |name: &str| {
        let (column, row) = found[name];
        ((column - left) as usize, row)
    };
    Layout {
        places: hosts
            .iter()
            .map(|host| at(host, place(&host.name)))
            .collect(),
        wires: wires(testbed, place),
    }
}

fn at(host: &TestbedHost, (column, row): (usize, usize)) -> Place<'_> {
    Place { host, column, row }
}

fn ways(testbed: &Testbed) -> impl Iterator<Item = &Testbed> {
    std::iter::once(testbed).chain(&testbed.beside)
}

/// The column of a way's first host, by the first host that has its place already.
fn offset(way: &Testbed, found: &BTreeMap<&str, (i64, usize)>) -> i64 {
    let known = way
        .hosts
        .iter()
        .enumerate()
        .find_map(|(n, host)| Some(found.get(host.name.as_str())?.0 - n as i64));
    known.unwrap_or(0)
}

/// The first row in which every new host of a way finds its column free.
fn free_row(way: &Testbed, offset: i64, found: &BTreeMap<&str, (i64, usize)>) -> usize {
    let new = || {
        way.hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| !found.contains_key(host.name.as_str()))
    };
    let taken = |row: usize| {
        new().any(|(n, _)| {
            found
                .values()
                .any(|place| *place == (n as i64 + offset, row))
        })
    };
    (0..=found.len())
        .find(|row| !taken(*row))
        .unwrap_or(found.len())
}

/// Each link once, from left to right.
fn wires<'a>(testbed: &'a Testbed, place: impl Fn(&str) -> (usize, usize)) -> Vec<Wire<'a>> {
    let mut wires: Vec<Wire<'a>> = Vec::new();
    for way in ways(testbed) {
        for (link, two) in way.links.iter().zip(way.hosts.windows(2)) {
            let mut ends = [place(&two[0].name), place(&two[1].name)];
            ends.sort_unstable();
            if ends[0].0 < ends[1].0 && !wires.iter().any(|wire| wire.link.name == link.name) {
                wires.push(Wire { link, ends });
            }
        }
    }
    wires
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hosts: &[&str]) -> Testbed {
        let host = |name: &&str| TestbedHost {
            name: (*name).to_owned(),
            note: None,
        };
        let link = |two: &[&str]| TestbedLink {
            name: two.join("-"),
            ..TestbedLink::default()
        };
        Testbed {
            hosts: hosts.iter().map(host).collect(),
            links: hosts.windows(2).map(link).collect(),
            beside: Vec::new(),
        }
    }

    fn places(ways: &[&[&str]]) -> Vec<(String, usize, usize)> {
        let mut testbed = way(ways[0]);
        testbed.beside = ways[1..].iter().map(|hosts| way(hosts)).collect();
        of(&testbed)
            .places
            .iter()
            .map(|place| (place.host.name.clone(), place.column, place.row))
            .collect()
    }

    #[test]
    fn senders_and_receivers_of_a_dumbbell_stand_below_each_other() {
        let found = places(&[
            &["a", "r1", "r2", "x"],
            &["b", "r1", "r2", "y"],
            &["c", "r1", "r2", "z"],
        ]);
        let wanted = [
            ("a", 0, 0),
            ("r1", 1, 0),
            ("r2", 2, 0),
            ("x", 3, 0),
            ("b", 0, 1),
            ("y", 3, 1),
            ("c", 0, 2),
            ("z", 3, 2),
        ];
        assert_eq!(
            found,
            wanted.map(|(name, column, row)| (name.to_owned(), column, row))
        );
    }

    #[test]
    fn a_way_that_begins_further_left_moves_all() {
        let found = places(&[&["r", "s"], &["far", "near", "r", "s"]]);
        assert_eq!(found[0], ("r".to_owned(), 2, 0));
        assert_eq!(found[2], ("far".to_owned(), 0, 0));
    }

    #[test]
    fn every_link_is_drawn_once() {
        let mut testbed = way(&["a", "r", "s"]);
        testbed.beside = vec![way(&["b", "r", "s"]), way(&["p", "q"])];
        let names: Vec<String> = of(&testbed)
            .wires
            .iter()
            .map(|wire| wire.link.name.clone())
            .collect();
        assert_eq!(names, ["a-r", "r-s", "b-r", "p-q"]);
    }
}
