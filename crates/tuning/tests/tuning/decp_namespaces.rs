// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul decp` with an unmodified iperf3, over an emulated path.

use longhaul_congestion::sockets::window_cap::Caps;
use longhaul_linux::sock_diag::{Connection, SockDiag};
use longhaul_testnet::link_process::{Testbed, may_use_namespaces, traffic::serve_iperf3};
use longhaul_testprograms::{process::Running, wait::wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const STREAMS: usize = 6;

/// Path, and iperf3 with parallel streams from its left to its right.
struct Iperf3Testbed {
    bed: Testbed,
    _ends: [Running; 2],
    diag: SockDiag,
    caps: Caps,
}

impl Iperf3Testbed {
    fn start(name: &str) -> Self {
        let path = ["--delay", "10ms", "--rate", "50mbit", "--queue", "1bdp"];
        let bed = Testbed::start(name, ["10.88.0.1/30", "10.88.0.2/30"], &path);
        let server = serve_iperf3(&bed.right);
        let streams = STREAMS.to_string();
        let client = [
            "--client",
            "10.88.0.2",
            "--time",
            "60",
            "--congestion",
            "reno",
            "--parallel",
            &streams,
        ];
        let mut iperf3 = bed.left.command("iperf3");
        iperf3
            .args(client)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let client = Running(iperf3.spawn().unwrap());
        let mut diag = SockDiag::open(&bed.left).unwrap();
        wait_until(|| senders(&mut diag).len() > STREAMS);
        Self {
            bed,
            _ends: [server, client],
            diag,
            caps: Caps::load().unwrap(),
        }
    }

    /// Starts `longhaul decp` as on the sending host.
    fn decp(&self, flags: &[&str]) -> Child {
        let mut command = Command::new(longhaul_testprograms::longhaul());
        command
            .args([
                "decp",
                "--filter",
                "dport 5201",
                "--interval",
                "50ms",
                "--netns",
            ])
            .arg(self.bed.left.name())
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the caps of the kernel's sockets with their windows, read independently of the command.
    fn caps_in_force(&mut self) -> Vec<(u32, u32)> {
        let all = senders(&mut self.diag);
        for connection in &all {
            self.caps.order_read(connection.sender.cookie).unwrap();
        }
        let walk = || self.caps.carry_out();
        self.bed.left.run(walk).unwrap();
        let cap = |c: &Connection| {
            Some((
                self.caps.cap_in_force(c.sender.cookie)?,
                c.sender.cwnd_segments,
            ))
        };
        let found = all.iter().filter_map(cap);
        found.filter(|(cap, _)| *cap > 0).collect()
    }
}

/// Lists iperf3's connections, its control connection too.
fn senders(diag: &mut SockDiag) -> Vec<Connection> {
    let mut all = diag.connections().unwrap();
    all.retain(|connection| connection.remote.port() == 5201);
    all
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn caps_fast_streams_and_lifts_caps_at_the_end() {
    if !may_use_namespaces() {
        return;
    }
    let mut bulk = Iperf3Testbed::start("decp-end");
    let mut decp = bulk.decp(&["--keep-caps", "--json"]);
    wait_until(|| !bulk.caps_in_force().is_empty());
    wait_until(|| {
        let caps = bulk.caps_in_force();
        !caps.is_empty() && caps.iter().all(|(cap, window)| window <= cap)
    });
    send(&decp, Signal::INT);
    let mut message = String::new();
    decp.stdout
        .take()
        .unwrap()
        .read_to_string(&mut message)
        .unwrap();
    let status = decp.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(bulk.caps_in_force(), []);

    let records: Vec<Value> = message
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, samples) = records.split_last().unwrap();
    assert_eq!(summary["summary"]["connections"], STREAMS);
    assert!(summary["summary"]["caps_set"].as_u64().unwrap() > 0);
    let capped = |sample: &&Value| sample["capped"].as_u64().unwrap() > 0;
    let sample = samples.iter().find(capped).expect("a sample with caps");
    assert_eq!(
        sample["bulk"], STREAMS,
        "the control connection is not a stream: {sample}"
    );
    // No stream is capped below the equal share of the link's 50 Mbit/s.
    let of = |sample: &Value| sample["fair_share_bps"].as_f64();
    let least = samples.iter().filter_map(of).fold(f64::INFINITY, f64::min);
    let capacity = sample["capacity_bps"].as_f64().unwrap();
    assert!(
        least >= capacity / STREAMS as f64 * 0.5,
        "{least} of {capacity}"
    );
}

#[test]
fn lifts_caps_after_sigkill_and_sigstop() {
    if !may_use_namespaces() {
        return;
    }
    let mut bulk = Iperf3Testbed::start("decp-kill");
    let mut decp = bulk.decp(&["--keep-caps"]);
    wait_until(|| !bulk.caps_in_force().is_empty());

    send(&decp, Signal::STOP);
    wait_until(|| bulk.caps_in_force().is_empty());
    send(&decp, Signal::CONT);
    wait_until(|| !bulk.caps_in_force().is_empty());

    decp.kill().unwrap();
    decp.wait().unwrap();
    wait_until(|| bulk.caps_in_force().is_empty());
    // No caps appear later.
    sleep(Duration::from_millis(300));
    assert_eq!(bulk.caps_in_force(), []);
}

#[test]
fn dry_run_sets_no_caps_and_lift_removes_leftovers() {
    if !may_use_namespaces() {
        return;
    }
    let mut bulk = Iperf3Testbed::start("decp-dry");
    let decp = bulk.decp(&["--dry-run", "--duration", "3s", "--json"]);
    let output = decp.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(bulk.caps_in_force(), []);
    let message = String::from_utf8(output.stdout).unwrap();
    let samples = message
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(
        samples.filter(|sample| sample["bulk"] == STREAMS).count() > 5,
        "{message}"
    );

    // As if all of `longhaul decp` had been killed at once.
    let cookie = senders(&mut bulk.diag)[1].sender.cookie;
    bulk.caps.order(cookie, 5, false).unwrap();
    wait_until(|| {
        let walk = || bulk.caps.carry_out();
        bulk.bed.left.run(walk).unwrap();
        bulk.caps.cap_in_force(cookie) == Some(5)
    });
    let output = bulk.decp(&["--remove-caps"]).wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(bulk.caps_in_force(), []);
}
