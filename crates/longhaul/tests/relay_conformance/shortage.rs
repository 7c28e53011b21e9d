// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors run out while the relay serves, as when others use up the system's: it says so once,
//! waits without spinning, loses nobody, and goes on.

use crate::{
    relay_process::{Relay, connect, exchange, origin, read_array},
    way::accept,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::{fs, io::Write, net::Shutdown, process::Command, thread::sleep, time::Duration};

const CLIENTS: u8 = 50;

#[test]
fn without_descriptors_it_waits_and_says_so() {
    waits_with_so_many_left(0);
}

/// Enough for a client's leg, but not for the other.
#[test]
fn with_one_descriptor_left_it_refuses_nobody() {
    waits_with_so_many_left(1);
}

fn waits_with_so_many_left(spare: u64) {
    let (listener, address) = origin();
    let forward = format!("127.0.0.1:0={address}");
    let relay = Relay::start(&["--forward", &forward, "--workers", "1"]);
    let pid = relay.pid();
    // Now it has all descriptors that it needs without clients, and pipes besides.
    exchange(&connect(relay.address("forward")), &accept(&listener), 1);
    let hard = hard_limit(pid);
    limit_descriptors(pid, lowest_free_descriptor(pid) + spare, hard);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| connect(relay.address("forward")))
        .collect();
    for (client, number) in clients.iter_mut().zip(0..) {
        client.write_all(&[number]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
    }
    let spent = ticks_in_a_second(pid);
    assert!(
        spent < 30,
        "{spent} ticks of CPU in one second without descriptors"
    );
    limit_descriptors(pid, hard, hard);
    let mut seen: Vec<u8> = (0..CLIENTS)
        .map(|_| read_array::<1>(&mut accept(&listener))[0])
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..CLIENTS));
    drop(clients);
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
    let times = |words| said.matches(words).count();
    assert!((1..5).contains(&times("new connections wait")), "{said}");
    assert_eq!(
        times("accepting again"),
        times("new connections wait"),
        "{said}"
    );
}

fn limit_descriptors(pid: Pid, current: u64, maximum: u64) {
    let limit = Rlimit {
        current: Some(current),
        maximum: Some(maximum),
    };
    prlimit(Some(pid), Resource::Nofile, limit).unwrap();
}

/// The relay has raised its soft limit to this one.
fn hard_limit(pid: Pid) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    line.unwrap()
        .split_whitespace()
        .nth(4)
        .unwrap()
        .parse()
        .unwrap()
}

/// With this as its limit, a process has no descriptor left.
fn lowest_free_descriptor(pid: Pid) -> u64 {
    let taken = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let free = (0..).find(|number| fs::symlink_metadata(format!("{taken}/{number}")).is_err());
    free.unwrap()
}

/// User and system time (proc_pid_stat(5), fields 14 and 15), in ticks of 10 ms.
fn ticks(pid: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    let fields = behind_name.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

fn ticks_in_a_second(pid: Pid) -> u64 {
    let before = ticks(pid);
    sleep(Duration::from_secs(1));
    ticks(pid) - before
}

#[test]
fn a_limit_known_from_the_start_is_kept_without_a_word() {
    let (listener, address) = origin();
    let mut command = Command::new("prlimit");
    command.args(["--nofile=128:128", env!("CARGO_BIN_EXE_longhaul"), "relay"]);
    let forward = format!("127.0.0.1:0={address}");
    command.args(["--workers", "1", "--forward", &forward]);
    let relay = Relay::spawn(command);
    let waiting = (0..2 * CLIENTS).map(|_| connect(relay.address("forward")));
    // More at once than it has room for; each that goes makes room.
    for mut client in waiting.collect::<Vec<_>>() {
        client.write_all(b"x").unwrap();
        assert_eq!(read_array(&mut accept(&listener)), *b"x");
    }
    let (_, said) = relay.stop();
    assert!(said.contains("no connection cut"), "{said}");
    assert!(!said.contains("new connections wait"), "{said}");
}
