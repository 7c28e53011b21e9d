// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of `tcptrace -l -r --csv`.

use crate::tap_peers::Direction;
use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Command};

/// Cells of one direction by column name, without the suffix of the direction.
#[derive(Debug)]
pub(crate) struct Tcptrace(BTreeMap<String, String>);

impl Tcptrace {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("tcptrace has no {name}"))
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap()
    }

    /// Returns a count plus a correction for different definitions.
    pub(crate) fn count_and(&self, name: &str, others: i64) -> u64 {
        let count = self.count(name).checked_add_signed(others);
        count.unwrap_or_else(|| panic!("{name}: {} and {others}", self.text(name)))
    }

    /// Returns a time in ms, with a precision of 0.1 ms.
    pub(crate) fn ms(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap()
    }
}

/// Reads both directions of every connection.
pub(crate) fn read(file: &Path) -> BTreeMap<Direction, Tcptrace> {
    let output = Command::new("tcptrace")
        .args(["-l", "-r", "-n", "--csv"])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text
        .lines()
        .filter(|line| line.contains(',') && !line.starts_with('#'));
    let first = lines.next();
    let names = cells(first.unwrap_or_else(|| panic!("tcptrace printed no table: {output:?}")));
    lines
        .flat_map(|line| both_directions(&names, &cells(line)))
        .collect()
}

fn cells(line: &str) -> Vec<String> {
    line.split(',').map(|cell| cell.trim().to_owned()).collect()
}

fn both_directions(names: &[String], cells: &[String]) -> [(Direction, Tcptrace); 2] {
    let row: BTreeMap<_, _> = names.iter().cloned().zip(cells.iter().cloned()).collect();
    let end = |which: &str| -> (IpAddr, u16) {
        let address = row[&format!("host_{which}")].parse().unwrap();
        (address, row[&format!("port_{which}")].parse().unwrap())
    };
    let columns = |ending: &str| {
        let own = row.iter().filter_map(|(name, cell)| {
            let name = name.strip_suffix(ending)?;
            Some((name.to_owned(), cell.clone()))
        });
        Tcptrace(own.collect())
    };
    let (a, b) = (end("a"), end("b"));
    [((a, b), columns("_a2b")), ((b, a), columns("_b2a"))]
}
