// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul run` leaves no cgroup, BPF program or link, however it ends.

use crate::run_program::{RunningProgram, connect, listen_on_loopback, may_attach_bpf, output};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use longhaul_linux::cgroup;
use longhaul_testprograms::wait::wait_until;
use rustix::{
    fs::{Dir, Mode, OFlags, fstat, openat},
    process::{Pid, Signal, kill_process},
};
use std::{os::fd::OwnedFd, path::Path, process::Command};

/// Kernel objects of a run.
#[derive(Debug)]
struct KernelState {
    cgroup: String,
    links: Vec<u32>,
    programs: Vec<u32>,
}

impl KernelState {
    /// Reads the objects of a run in progress.
    fn of(longhaul: Pid) -> Self {
        let [cgroup] = &cgroups_of(longhaul)[..] else {
            panic!("no cgroup, or several");
        };
        let links: Vec<_> = LinkInfoIter::default()
            .filter(|link| match &link.info {
                LinkTypeInfo::Cgroup(info) => info.cgroup_id == inode_of(cgroup),
                _ => false,
            })
            .collect();
        Self {
            cgroup: cgroup.clone(),
            links: links.iter().map(|link| link.id).collect(),
            programs: links.iter().map(|link| link.prog_id).collect(),
        }
    }

    fn bpf_is_gone(&self) -> bool {
        !LinkInfoIter::default().any(|link| self.links.contains(&link.id))
            && !ProgInfoIter::default().any(|program| self.programs.contains(&program.id))
    }

    fn cgroup_is_gone(&self) -> bool {
        !all_cgroups().contains(&self.cgroup)
    }
}

fn all_cgroups() -> Vec<String> {
    let own = cgroup::own().unwrap();
    let names = Dir::read_from(&own).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with("longhaul-run."))
        .collect()
}

fn cgroups_of(longhaul: Pid) -> Vec<String> {
    let mine = format!("longhaul-run.{longhaul}.");
    let mut all = all_cgroups();
    all.retain(|name| name.starts_with(&mine));
    all
}

fn open(cgroup: &str) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(cgroup::own().unwrap(), cgroup, flags, Mode::empty()).unwrap()
}

fn inode_of(cgroup: &str) -> u64 {
    fstat(open(cgroup)).unwrap().st_ino
}

/// Returns the output of `longhaul doctor --clean`.
fn doctor_clean_output() -> String {
    let state = tempfile::tempdir().unwrap();
    let output = Command::new(longhaul_testprograms::longhaul())
        .args(["doctor", "--clean"])
        .env("XDG_STATE_HOME", state.path())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn doctor_removes_leftovers_of_a_killed_run() {
    if !may_attach_bpf() {
        return;
    }
    let mut running = RunningProgram::start(&[], "");
    let traces = KernelState::of(running.longhaul());
    running.longhaul.kill().unwrap();
    running.wait();
    kill_process(running.program, Signal::KILL).unwrap();
    // (Another test's run may be the one that finds it.)
    wait_until(|| {
        doctor_clean_output();
        traces.cgroup_is_gone()
    });
}

#[test]
fn leaves_nothing_after_the_program_exits() {
    if !may_attach_bpf() {
        return;
    }
    let mut running = RunningProgram::start(&["--pacing-rate", "1gbit", "--gso", "off"], "");
    let traces = KernelState::of(running.longhaul());
    // The profile, and the four that report sockets.
    assert_eq!(traces.links.len(), 5);
    assert_eq!(running.finish().0, Some(0));
    assert!(traces.cgroup_is_gone());
    wait_until(|| traces.bpf_is_gone());
}

#[test]
fn leaves_nothing_after_sigterm() {
    if !may_attach_bpf() {
        return;
    }
    let mut running = RunningProgram::start(&["--pacing-rate", "1gbit"], "");
    let traces = KernelState::of(running.longhaul());
    assert_eq!(traces.links.len(), 1);
    running.signal(Signal::TERM);
    assert_eq!(running.wait(), Some(143));
    assert!(traces.cgroup_is_gone());
    wait_until(|| traces.bpf_is_gone());
}

/// The program continues: its work is worth more than its profile.
#[test]
fn program_survives_sigkill_and_next_run_cleans_up() {
    if !may_attach_bpf() {
        return;
    }
    let (_listener, address) = listen_on_loopback();
    let mut running = RunningProgram::start(&["--pacing-rate", "80mbit"], &connect(address));
    let traces = KernelState::of(running.longhaul());
    let stream = running.socket(3);
    running.longhaul.kill().unwrap();
    running.wait();
    wait_until(|| traces.bpf_is_gone());
    // Its connection keeps its settings.
    assert_eq!(
        longhaul_linux::socket::pacing_rate(&stream).unwrap(),
        10_000_000
    );
    assert!(output(&[], &["true"]).status.success());
    assert!(!traces.cgroup_is_gone(), "a process is in it");
    let stays = format!("cgroup {} stays", traces.cgroup);
    assert!(
        doctor_clean_output().contains(&stays),
        "{}",
        doctor_clean_output()
    );
    kill_process(running.program, Signal::KILL).unwrap();
    wait_until(|| {
        assert!(output(&[], &["true"]).status.success());
        traces.cgroup_is_gone()
    });
}

/// A congestion control is loaded by name, so it outlives a killed process.
#[test]
fn next_run_unloads_algorithm_of_a_killed_run() {
    if !may_attach_bpf() {
        return;
    }
    let pinned = || Path::new("/sys/fs/bpf/longhaul/cc/hstcp").exists();
    let mut running = RunningProgram::start(&["--cc", "lh_hstcp"], "");
    assert!(pinned());
    running.longhaul.kill().unwrap();
    running.wait();
    // (Another test's run may be the one that finds it.)
    wait_until(|| {
        assert!(output(&[], &["true"]).status.success());
        !pinned()
    });
}

#[test]
fn remaining_processes_return_to_their_cgroup() {
    if !may_attach_bpf() {
        return;
    }
    // (Its own output, or the test would wait for its end.)
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let message =
        crate::run_program::stdout_of(&["--pacing-rate", "1gbit"], &["bash", "-c", script]);
    let sleeper = message.trim().parse().ok().and_then(Pid::from_raw).unwrap();
    let cgroup_of = |process: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
        let line = text.lines().find(|line| line.starts_with("0::"));
        line.unwrap().to_owned()
    };
    assert_eq!(cgroup_of(message.trim()), cgroup_of("self"));
    kill_process(sleeper, Signal::KILL).unwrap();
}

#[test]
fn hundred_runs_leave_nothing_behind() {
    if !may_attach_bpf() {
        return;
    }
    let mut traces = Vec::new();
    for round in 0..100 {
        let mut running = RunningProgram::start(&["--pacing-rate", "1gbit"], "");
        traces.push(KernelState::of(running.longhaul()));
        assert_eq!(running.finish().0, Some(0), "round {round}");
    }
    assert!(traces.iter().all(KernelState::cgroup_is_gone));
    wait_until(|| traces.iter().all(KernelState::bpf_is_gone));
}
