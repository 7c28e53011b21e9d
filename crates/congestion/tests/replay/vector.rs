// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recorded flows of Linux's own congestion controls; `vectors/README.md` describes the format.

use flate2::read::GzDecoder;
use longhaul_tcpsim::congestion_control::{State, Window};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

/// Returns every `CONTROL-PATH.calls.csv.gz`, by name.
pub(crate) fn paths() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".calls.csv.gz"))
        .collect();
    paths.sort();
    paths
}

/// A recorded flow.
pub(crate) struct Vector {
    /// Name of the file: `htcp-overflow-38ms`.
    pub(crate) name: String,
    /// Linux's name of the congestion control.
    pub(crate) control: String,
    /// Names of the private columns: `alpha`, `ai`, …
    pub(crate) private: Vec<String>,
    pub(crate) calls: Vec<Call>,
}

/// One call, with the window before and after it.
pub(crate) struct Call {
    pub(crate) kind: String,
    /// Number of the excerpt without gaps. It starts from the private state of its first row.
    pub(crate) excerpt: u32,
    /// Time since the connection began.
    pub(crate) time_us: u64,
    /// The kernel's jiffies, without wrap-around.
    pub(crate) jiffies: u64,
    pub(crate) arg: String,
    pub(crate) rtt_us: i64,
    pub(crate) state: State,
    pub(crate) limited: bool,
    pub(crate) before: Window,
    pub(crate) after: Window,
    pub(crate) packets_out: u32,
    /// Values of the private columns after the call.
    pub(crate) private: Vec<i64>,
}

impl Call {
    /// Returns `arg` as a number.
    pub(crate) fn number(&self) -> u32 {
        self.arg.parse().unwrap()
    }
}

/// The columns that are not private.
const PUBLIC: [&str; 19] = [
    "call",
    "excerpt",
    "after_us",
    "after_jiffies",
    "arg",
    "rtt_us",
    "state",
    "limited",
    "cwnd_before",
    "cnt_before",
    "ssthresh_before",
    "cwnd",
    "cnt",
    "ssthresh",
    "packets_out",
    "sacked_out",
    "lost_out",
    "retrans_out",
    "newly_delivered",
];

impl Vector {
    pub(crate) fn read(path: &Path) -> Self {
        let mut lines = BufReader::new(GzDecoder::new(File::open(path).unwrap()))
            .lines()
            .map(Result::unwrap);
        let mut header = HashMap::new();
        let columns = loop {
            let line = lines.next().unwrap();
            let Some(pair) = line.strip_prefix("# ") else {
                break line;
            };
            let (name, value) = pair.split_once(": ").unwrap_or((pair, ""));
            header.insert(name.to_owned(), value.to_owned());
        };
        assert_eq!(header["hz"], "1000");
        let columns: Vec<_> = columns.split(',').collect();
        assert_eq!(columns[..PUBLIC.len()], PUBLIC);
        let mut clock = Clock {
            time_us: 0,
            jiffies: header["first_jiffies"].parse().unwrap(),
        };
        let mut row = vec![String::new(); columns.len()];
        let calls = lines.map(|line| {
            fill_in(&mut row, &line);
            call(&row, &mut clock)
        });
        Self {
            name: path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .replace(".calls.csv.gz", ""),
            calls: calls.collect(),
            private: columns[PUBLIC.len()..]
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            control: header.remove("control").unwrap(),
        }
    }
}

struct Clock {
    time_us: u64,
    jiffies: u64,
}

/// Fills empty cells with the value of the cell above.
fn fill_in(row: &mut [String], line: &str) {
    for (cell, new) in row.iter_mut().zip(line.split(',')) {
        if !new.is_empty() {
            new.clone_into(cell);
        }
    }
}

fn call(row: &[String], clock: &mut Clock) -> Call {
    let [
        kind,
        excerpt,
        after_us,
        after_jiffies,
        arg,
        rtt_us,
        in_state,
        limited,
        rest @ ..,
    ] = row
    else {
        panic!("{row:?}")
    };
    let number = |text: &String| text.parse::<u32>().unwrap();
    let window = |[cwnd, cwnd_cnt, ssthresh]: [&String; 3]| Window {
        cwnd: number(cwnd),
        cwnd_cnt: number(cwnd_cnt),
        ssthresh: number(ssthresh),
    };
    clock.time_us += u64::from(number(after_us));
    clock.jiffies += u64::from(number(after_jiffies));
    Call {
        kind: kind.clone(),
        excerpt: number(excerpt),
        time_us: clock.time_us,
        jiffies: clock.jiffies,
        arg: arg.clone(),
        rtt_us: rtt_us.parse().unwrap(),
        state: state(in_state),
        limited: limited == "1",
        before: window([&rest[0], &rest[1], &rest[2]]),
        after: window([&rest[3], &rest[4], &rest[5]]),
        packets_out: number(&rest[6]),
        private: row[PUBLIC.len()..]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect(),
    }
}

/// Parses the vectors' name of a state.
pub(crate) fn state(name: &str) -> State {
    match name {
        "open" => State::Open,
        "disorder" => State::Disorder,
        "cwr" => State::Cwr,
        "recovery" => State::Recovery,
        "loss" => State::Loss,
        other => panic!("{other}"),
    }
}
