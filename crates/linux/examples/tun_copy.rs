// SPDX-License-Identifier: MIT OR Apache-2.0
//! Baseline of `bench/link.toml`: one thread that copies super-packets between two TUN devices. Its throughput is the upper
//! bound for any emulator in user space on TUN on this machine. The difference to `longhaul link` is the cost of
//! emulation.
//!
//! ```sh
//! tun_copy LEFT-NAMESPACE LEFT-ADDRESS RIGHT-NAMESPACE RIGHT-ADDRESS
//! ```
//!
//! The interfaces are called `wan0`, the prefix is 30. It reads, sleeps and yields as
//! `longhaul link` does, so that only the decisions differ. It runs until it is killed.

use longhaul_linux::{
    interface,
    netns::Netns,
    tun::{self, Tun},
    wait::{self, Waker},
};
use longhaul_packet::vnet;
use longhaul_units::Time;
use std::{io, net::IpAddr};

/// Packets read in one direction before the other, as in `longhaul link`.
const READS_PER_ROUND: usize = 4;
/// Rounds without a packet before the thread sleeps, as in `longhaul link`.
const IDLE_ROUNDS: u32 = 100;
/// Transmit queue in packets, as in `longhaul link`.
const QUEUE: u32 = 10_000;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [left, left_address, right, right_address] = &arguments[..] else {
        return Err(io::Error::other(
            "usage: tun_copy LEFT-NAMESPACE ADDRESS RIGHT-NAMESPACE ADDRESS",
        ));
    };
    let left = open_tun(left, left_address)?;
    let right = open_tun(right, right_address)?;
    eprintln!("ready");
    copy_forever(&left, &right)
}

fn open_tun(namespace: &str, address: &str) -> io::Result<Tun> {
    let netns = Netns::named(namespace)?;
    let address: IpAddr = address.parse().map_err(io::Error::other)?;
    let tun = netns.run(|| Tun::create("wan0", true))?;
    interface::configure(&netns, "wan0", 1500, QUEUE, &[(address, 30)])?;
    Ok(tun)
}

fn copy_forever(left: &Tun, right: &Tun) -> io::Result<()> {
    let mut buffer = vec![0; vnet::LEN + tun::PACKET_MAX];
    let waker = Waker::new()?;
    let mut idle_rounds = 0;
    loop {
        let read = copy(left, right, &mut buffer)? + copy(right, left, &mut buffer)?;
        idle_rounds = if read > 0 { 0 } else { idle_rounds + 1 };
        match idle_rounds {
            0 => {}
            1..IDLE_ROUNDS => wait::yield_now(),
            _ => drop(waker.wait([left, right].into_iter(), Time::from_secs(1))?),
        }
    }
}

/// Copies queued packets, up to a limit, and returns their number. Packets that the kernel refuses are lost.
fn copy(from: &Tun, to: &Tun, buffer: &mut [u8]) -> io::Result<usize> {
    for read in 0..READS_PER_ROUND {
        match from.read(buffer) {
            Ok(len) => drop(to.write(&buffer[..len], &[])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(read),
            Err(error) => return Err(error),
        }
    }
    Ok(READS_PER_ROUND)
}
