// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator asks before the start: every key, and what a configuration comes to.

mod relay_process;

use serde_json::Value;
use std::{
    io::Write as _,
    process::{Command, Output},
};

fn relay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.arg("relay").args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn check(text: &str, more: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    relay(&[&["--config", path, "--check-config"], more].concat())
}

#[test]
fn the_default_configuration_stands_as_printed() {
    let printed = said(&relay(&["--print-default-config"]));
    let summary = said(&check(&printed, &[]));
    assert!(
        summary.contains("socks5 127.0.0.1:1080, for this machine only"),
        "{summary}"
    );
    assert!(summary.contains("16384 at once"), "{summary}");
}

const SITE: &str = r#"
[[listener]]
name = "web"
kind = "http"
address = "10.1.0.1:3128"
allow_from = ["10.1.0.0/16"]
deny_from = ["10.1.9.0/24"]
rate_per_client = "1gbit"
[peer.tokyo]
address = "192.0.2.9"
pool = 8
[peer.osaka]
address = "192.0.2.10:99"
[[route]]
to = ["169.254.0.0/16", "*.internal.example.org"]
deny = true
[[route]]
to = ["*.example.jp"]
ports = [80, "8000-8999"]
via = ["tokyo", "osaka"]
fallback = [["osaka"], []]
[limits]
connections = 1000
workers = 2
memory = "3GiB"
pipe_size = "256KiB"
"#;

#[test]
fn a_summary_says_who_where_and_how_much() {
    let text = said(&check(SITE, &[]));
    for line in [
        "web: http 10.1.0.1:3128, for this machine and 10.1.0.0/16, not 10.1.9.0/24, 1 Gbit/s a \
         client (profile near)",
        "tokyo: 192.0.2.9:5124, plain, 8 ready a worker (profile far)",
        "1  to 169.254.0.0/16 or *.internal.example.org: refused",
        "2  to *.example.jp, port 80 or 8000-8999: through tokyo and osaka, else through osaka, \
         else straight (profile far)",
        "3  everything else: straight (profile far)",
        "1000 at once, 2 workers",
        "three quarters of the connections at most, 64 lookups of names",
        "from 3.22 GB in sockets on, new connections wait\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn json_says_the_same() {
    let summary: Value = serde_json::from_str(&said(&check(SITE, &["--json"]))).unwrap();
    assert_eq!(summary["listeners"][0]["name"], "web");
    assert_eq!(summary["peers"][1]["pool"], 8);
    assert_eq!(summary["routes"][0]["then"], "refused");
    assert_eq!(summary["limits"]["connections"], 1000);
    let memory = &summary["memory"];
    assert_eq!(memory["budget_bytes"], 3u64 << 30);
    let pipes = memory["pipes_max"].as_u64().unwrap();
    assert_eq!(memory["pipes_bytes_max"], pipes * (256 << 10));
    // 16 and, a worker, 16, a listener's two and 8 ready connections; two sockets a connection,
    // two pipes with two ends each; four a lookup of a name, for which there is a 64th.
    let lookups = (16 + 2 * (16 + 2 + 8) + 2000 + 4000) / 64 / 4 * 4;
    let descriptors = &summary["descriptors"];
    assert_eq!(descriptors["needed_idle"], 16 + 2 * (16 + 2 + 8) + 2000);
    assert_eq!(
        descriptors["needed_busy"],
        16 + 2 * (16 + 2 + 8) + 2000 + 4000 + lookups
    );
}

#[test]
fn too_few_descriptors_are_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(SITE.as_bytes()).unwrap();
    let line = format!(
        "ulimit -n 400; exec '{}' relay --config '{}' --check-config",
        env!("CARGO_BIN_EXE_longhaul"),
        file.path().display()
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let text = said(&output);
    assert!(
        text.contains("room for 94 connections at once, not 1000: others wait"),
        "{text}"
    );
}

#[test]
fn a_mistake_is_named_with_its_place() {
    let output = check("[limits]\nconections = 5\n", &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(":2:1: unknown field `conections`"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    assert!(output.stdout.is_empty());
}

/// The kernel shows net.ipv4.tcp_mem in the first network namespace only.
#[test]
fn in_a_network_namespace_the_memory_budget_has_a_default() {
    if !relay_process::may_use_namespaces() {
        return;
    }
    let inside = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", env!("CARGO_BIN_EXE_longhaul"), "relay"]);
        command.args(["--socks5", "127.0.0.1:0", "--check-config"]);
        said(&command.args(more).output().unwrap())
    };
    let memory = serde_json::from_str::<Value>(&inside(&["--json"])).unwrap()["memory"].take();
    let machine = host::memory::of_machine();
    let budget = memory["budget_bytes"].as_u64().unwrap();
    assert!((1 << 20..=machine / 32).contains(&budget), "{memory}");
    let basis = memory["budget_basis"].as_str().unwrap();
    assert!(["machine", "cgroup"].contains(&basis), "{memory}");
    let text = inside(&[]);
    assert!(text.contains("limits.memory sets another"), "{text}");
    let text = inside(&["--memory", "3GiB"]);
    assert!(text.contains("from 3.22 GB in sockets on"), "{text}");
}
