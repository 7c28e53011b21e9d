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
    let mut positions: BTreeMap<&str, (i64, usize)> = BTreeMap::new();
    let mut hosts: Vec<&TestbedHost> = Vec::new();
    for path in paths(testbed) {
        let offset = offset(path, &positions);
        let row = free_row(path, offset, &positions);
        for (n, host) in path.hosts.iter().enumerate() {
            if !positions.contains_key(host.name.as_str()) {
                positions.insert(&host.name, (n as i64 + offset, row));
                hosts.push(host);
            }
        }
    }
    let left = positions
        .values()
        .map(|(column, _)| *column)
        .min()
        .unwrap_or(0);
    let position = |name: &str| {
        let (column, row) = positions[name];
        ((column - left) as usize, row)
    };
    Layout {
        hosts: hosts
            .iter()
            .map(|host| host_position(host, position(&host.name)))
            .collect(),
        links: link_positions(testbed, position),
    }
}

fn host_position(host: &TestbedHost, (column, row): (usize, usize)) -> HostPosition<'_> {
    HostPosition { host, column, row }
}

fn paths(testbed: &Testbed) -> impl Iterator<Item = &Testbed> {
    std::iter::once(testbed).chain(&testbed.other_paths)
}

/// Returns the column of a path's first host, by the first host that has a position already.
fn offset(path: &Testbed, positions: &BTreeMap<&str, (i64, usize)>) -> i64 {
    let shared_column = path
        .hosts
        .iter()
        .enumerate()
        .find_map(|(n, host)| Some(positions.get(host.name.as_str())?.0 - n as i64));
    shared_column.unwrap_or(0)
}

/// Returns the first row in which the columns of all new hosts of a path are free.
fn free_row(path: &Testbed, offset: i64, positions: &BTreeMap<&str, (i64, usize)>) -> usize {
    let new = || {
        path.hosts
            .iter()
            .enumerate()
            .filter(|(_, host)| !positions.contains_key(host.name.as_str()))
    };
    let is_taken = |row: usize| {
        new().any(|(n, _)| {
            positions
                .values()
                .any(|position| *position == (n as i64 + offset, row))
        })
    };
    (0..=positions.len())
        .find(|row| !is_taken(*row))
        .unwrap_or(positions.len())
}

/// Returns each link once, from left to right.
fn link_positions<'a>(
    testbed: &'a Testbed,
    position: impl Fn(&str) -> (usize, usize),
) -> Vec<LinkPosition<'a>> {
    let mut links: Vec<LinkPosition<'a>> = Vec::new();
    for path in paths(testbed) {
        for (link, pair) in path.links.iter().zip(path.hosts.windows(2)) {
            let mut ends = [position(&pair[0].name), position(&pair[1].name)];
            ends.sort_unstable();
            if ends[0].0 < ends[1].0
                && !links.iter().any(|position| position.link.name == link.name)
            {
                links.push(LinkPosition { link, ends });
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(hosts: &[&str]) -> Testbed {
        let host = |name: &&str| TestbedHost {
            name: (*name).to_owned(),
            note: None,
        };
        let link = |pair: &[&str]| TestbedLink {
            name: pair.join("-"),
            ..TestbedLink::default()
        };
        Testbed {
            hosts: hosts.iter().map(host).collect(),
            links: hosts.windows(2).map(link).collect(),
            other_paths: Vec::new(),
        }
    }

    fn host_positions(paths: &[&[&str]]) -> Vec<(String, usize, usize)> {
        let mut testbed = path(paths[0]);
        testbed.other_paths = paths[1..].iter().map(|hosts| path(hosts)).collect();
        arrange(&testbed)
            .hosts
            .iter()
            .map(|position| (position.host.name.clone(), position.column, position.row))
            .collect()
    }

    #[test]
    fn aligns_senders_and_receivers_of_a_dumbbell() {
        let positions = host_positions(&[
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
            positions,
            wanted.map(|(name, column, row)| (name.to_owned(), column, row))
        );
    }

    #[test]
    fn shifts_all_hosts_for_a_path_that_begins_further_left() {
        let positions = host_positions(&[&["r", "s"], &["far", "near", "r", "s"]]);
        assert_eq!(positions[0], ("r".to_owned(), 2, 0));
        assert_eq!(positions[2], ("far".to_owned(), 0, 0));
    }

    #[test]
    fn draws_each_link_once() {
        let mut testbed = path(&["a", "r", "s"]);
        testbed.other_paths = vec![path(&["b", "r", "s"]), path(&["p", "q"])];
        let names: Vec<String> = arrange(&testbed)
            .links
            .iter()
            .map(|position| position.link.name.clone())
            .collect();
        assert_eq!(names, ["a-r", "r-s", "b-r", "p-q"]);
    }
}
