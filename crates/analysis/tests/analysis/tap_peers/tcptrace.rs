// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `tcptrace -l -r --csv` says.

use crate::tap_peers::Way;
use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Command};

/// Columns of one way, without the ending that says which.
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

    /// A count, and what other rules make of it.
    pub(crate) fn count_and(&self, name: &str, others: i64) -> u64 {
        let count = self.count(name).checked_add_signed(others);
        count.unwrap_or_else(|| panic!("{name}: {} and {others}", self.text(name)))
    }

    /// To a tenth.
    pub(crate) fn ms(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap()
    }
}

/// Both ways of every connection.
pub(crate) fn read(file: &Path) -> BTreeMap<Way, Tcptrace> {
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
    let names = cells(first.unwrap_or_else(|| panic!("tcptrace says nothing of use: {output:?}")));
    lines.flat_map(|line| both(&names, &cells(line))).collect()
}

fn cells(line: &str) -> Vec<String> {
    line.split(',').map(|cell| cell.trim().to_owned()).collect()
}

fn both(names: &[String], cells: &[String]) -> [(Way, Tcptrace); 2] {
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
