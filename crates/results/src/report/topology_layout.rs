// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of the topology diagram: the first path is in the top row. Hosts that belong only to other paths are in rows
//! below, in the column that matches their distance from a shared host.

use crate::result::{Testbed, TestbedHost, TestbedLink};
use std::collections::BTreeMap;

/// Position of a host in the diagram.
#[derive(Debug)]
pub(super) struct HostPosition<'a> {
    pub(super) host: &'a TestbedHost,
    pub(super) column: usize,
    pub(super) row: usize,
}

/// Link between two positions, each a column and a row.
#[derive(Debug)]
pub(super) struct LinkPosition<'a> {
    pub(super) link: &'a TestbedLink,
    pub(super) ends: [(usize, usize); 2],
}

/// Layout of the whole diagram; the first path's first host is the first position.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) hosts: Vec<HostPosition<'a>>,
    pub(super) links: Vec<LinkPosition<'a>>,
}

pub(super) fn arrange(testbed: &Testbed) -> Layout<'_> {
    let mut found: BTreeMap<&str, (i64, usize)> = BTreeMap::new();
    let mut hosts: Vec<&TestbedHost> = Vec::new();
    for way in paths(testbed) {
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
        hosts: hosts
            .iter()
            .map(|host| host_position(host, place(&host.name)))
            .collect(),
        links: link_positions(testbed, place),
    }
}

fn host_position(host: &TestbedHost, (column, row): (usize, usize)) -> HostPosition<'_> {
    HostPosition { host, column, row }
}

fn paths(testbed: &Testbed) -> impl Iterator<Item = &Testbed> {
    std::iter::once(testbed).chain(&testbed.other_paths)
}

/// Returns the column of a path's first host, by the first host that has a position already.
fn offset(way: &Testbed, found: &BTreeMap<&str, (i64, usize)>) -> i64 {
    let known = way
        .hosts
        .iter()
        .enumerate()
        .find_map(|(n, host)| Some(found.get(host.name.as_str())?.0 - n as i64));
    known.unwrap_or(0)
}

/// Returns the first row in which the columns of all new hosts of a path are free.
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

/// Returns each link once, from left to right.
fn link_positions<'a>(
    testbed: &'a Testbed,
    place: impl Fn(&str) -> (usize, usize),
) -> Vec<LinkPosition<'a>> {
    let mut wires: Vec<LinkPosition<'a>> = Vec::new();
    for way in paths(testbed) {
        for (link, two) in way.links.iter().zip(way.hosts.windows(2)) {
            let mut ends = [place(&two[0].name), place(&two[1].name)];
            ends.sort_unstable();
            if ends[0].0 < ends[1].0 && !wires.iter().any(|wire| wire.link.name == link.name) {
                wires.push(LinkPosition { link, ends });
            }
        }
    }
    wires
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(hosts: &[&str]) -> Testbed {
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
            other_paths: Vec::new(),
        }
    }

    fn places(ways: &[&[&str]]) -> Vec<(String, usize, usize)> {
        let mut testbed = path(ways[0]);
        testbed.other_paths = ways[1..].iter().map(|hosts| path(hosts)).collect();
        arrange(&testbed)
            .hosts
            .iter()
            .map(|place| (place.host.name.clone(), place.column, place.row))
            .collect()
    }

    #[test]
    fn aligns_senders_and_receivers_of_a_dumbbell() {
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
    fn shifts_all_hosts_for_a_path_that_begins_further_left() {
        let found = places(&[&["r", "s"], &["far", "near", "r", "s"]]);
        assert_eq!(found[0], ("r".to_owned(), 2, 0));
        assert_eq!(found[2], ("far".to_owned(), 0, 0));
    }

    #[test]
    fn draws_each_link_once() {
        let mut testbed = path(&["a", "r", "s"]);
        testbed.other_paths = vec![path(&["b", "r", "s"]), path(&["p", "q"])];
        let names: Vec<String> = arrange(&testbed)
            .links
            .iter()
            .map(|wire| wire.link.name.clone())
            .collect();
        assert_eq!(names, ["a-r", "r-s", "b-r", "p-q"]);
    }
}
