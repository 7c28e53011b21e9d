// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ack_control CGROUP RATIO [HOLD_MS [CLASS]]`: controls the ACKs of a cgroup's sockets until its
//! input ends, then prints what it did.

use bpf::ack_thin::{Settings, attach};
use std::{fs::File, io::Read, os::fd::AsFd, time::Duration};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        arguments
            .get(at)
            .map(|word| word.parse::<u32>())
            .transpose()
    };
    let cgroup = File::open(&arguments[0])?;
    let settings = Settings {
        ratio: number(1)?.unwrap_or(8),
        hold_max: Duration::from_millis(number(2)?.unwrap_or(10).into()),
        pace_class: number(3)?,
    };
    let control = attach(cgroup.as_fd(), &settings)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", control.counts());
    Ok(())
}
