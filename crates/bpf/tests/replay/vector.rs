// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorded flow of Linux's own congestion control: `vectors/README.md` has the format.

use flate2::read::GzDecoder;
use model::tcp::congestion_control::{State, Window};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

/// Every `CONTROL-PATH.calls.csv.gz`, by name.
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

/// One flow.
pub(crate) struct Vector {
    /// As the file is called: `htcp-overflow-38ms`.
    pub(crate) name: String,
    /// Linux's name of the congestion control.
    pub(crate) control: String,
    pub(crate) calls: Vec<Call>,
}

/// One call, with the window before and after it.
pub(crate) struct Call {
    pub(crate) kind: String,
    /// A stretch without gaps. The private state of its first row is where it starts from.
    pub(crate) excerpt: u32,
    /// Since the connection began.
    pub(crate) time_us: u64,
    /// The kernel's jiffies, which do not wrap here.
    pub(crate) jiffies: u64,
    pub(crate) arg: String,
    pub(crate) rtt_us: i64,
    pub(crate) state: State,
    pub(crate) limited: bool,
    pub(crate) before: Window,
    pub(crate) after: Window,
    pub(crate) packets_out: u32,
    /// The columns from `alpha`, `ai`, … on, after the call.
    pub(crate) private: HashMap<String, i64>,
}

impl Call {
    /// `arg` where it is a number.
    pub(crate) fn number(&self) -> u32 {
        self.arg.parse().unwrap()
    }
}

/// The columns that are not private.
const PUBLIC: usize = 19;

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
        let columns: Vec<_> = columns.split(',').map(str::to_owned).collect();
        let mut clock = Clock {
            time_us: 0,
            jiffies: header["first_jiffies"].parse().unwrap(),
        };
        let mut row = vec![String::new(); columns.len()];
        let calls = lines.map(|line| {
            fill_in(&mut row, &line);
            call(&columns, &row, &mut clock)
        });
        Self {
            name: path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .replace(".calls.csv.gz", ""),
            calls: calls.collect(),
            control: header.remove("control").unwrap(),
        }
    }
}

struct Clock {
    time_us: u64,
    jiffies: u64,
}

/// An empty cell holds what the cell above it holds.
fn fill_in(row: &mut [String], line: &str) {
    for (cell, new) in row.iter_mut().zip(line.split(',')) {
        if !new.is_empty() {
            new.clone_into(cell);
        }
    }
}

fn call(columns: &[String], row: &[String], clock: &mut Clock) -> Call {
    let text = |name: &str| &row[columns.iter().position(|column| column == name).unwrap()];
    let number = |name: &str| text(name).parse::<u32>().unwrap();
    clock.time_us += u64::from(number("after_us"));
    clock.jiffies += u64::from(number("after_jiffies"));
    let private = columns.iter().zip(row).skip(PUBLIC);
    Call {
        kind: text("call").clone(),
        excerpt: number("excerpt"),
        time_us: clock.time_us,
        jiffies: clock.jiffies,
        arg: text("arg").clone(),
        rtt_us: text("rtt_us").parse().unwrap(),
        state: state(text("state")),
        limited: text("limited") == "1",
        before: Window {
            cwnd: number("cwnd_before"),
            cwnd_cnt: number("cnt_before"),
            ssthresh: number("ssthresh_before"),
        },
        after: Window {
            cwnd: number("cwnd"),
            cwnd_cnt: number("cnt"),
            ssthresh: number("ssthresh"),
        },
        packets_out: number("packets_out"),
        private: private
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect(),
    }
}

/// By the name that the vectors give it.
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
