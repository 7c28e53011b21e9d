// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--check-config` and `--print-default-config`: errors, warnings and the summary of a
//! configuration.

use serde_json::Value;
use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

fn relay(args: &[&str]) -> Output {
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.arg("relay").args(args).output().unwrap()
}

fn stdout_of(output: &Output) -> String {
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
fn accepts_printed_default_configuration() {
    let printed = stdout_of(&relay(&["--print-default-config"]));
    let summary = stdout_of(&check(&printed, &[]));
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
fn summary_lists_clients_routes_and_limits() {
    let text = stdout_of(&check(SITE, &[]));
    for line in [
        "web: http 10.1.0.1:3128, for this machine and 10.1.0.0/16, not 10.1.9.0/24, 1 Gbit/s per \
         client (profile downstream)",
        "tokyo: 192.0.2.9:5124, plain, pool of 8 per worker (profile upstream)",
        "1  to 169.254.0.0/16 or *.internal.example.org: refused",
        "2  to *.example.jp, port 80 or 8000-8999: through tokyo and osaka, else through osaka, \
         else directly (profile upstream)",
        "3  everything else: directly (profile upstream)",
        "1000 at once, 2 workers",
        "three quarters of the connections at most, 64 lookups of names",
        "at 3.22 GB in sockets, new connections wait\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn json_matches_text() {
    let summary: Value = serde_json::from_str(&stdout_of(&check(SITE, &["--json"]))).unwrap();
    assert_eq!(summary["listeners"][0]["name"], "web");
    assert_eq!(summary["peers"][1]["pool"], 8);
    assert_eq!(summary["routes"][0]["action"], "refused");
    assert_eq!(summary["limits"]["connections"], 1000);
    let memory = &summary["memory"];
    assert_eq!(memory["budget_bytes"], 3u64 << 30);
    let pipes = memory["pipes_max"].as_u64().unwrap();
    assert_eq!(memory["pipes_bytes_max"], pipes * (256 << 10));
    // 16 for the process. For each worker 16, two for a listener and 8 pooled connections. Two
    // sockets a connection, two pipes with two ends each. Four for each lookup of a name, which may
    // use a 64th of all.
    let lookups = (16 + 2 * (16 + 2 + 8) + 2000 + 4000) / 64 / 4 * 4;
    let descriptors = &summary["descriptors"];
    assert_eq!(descriptors["needed_idle"], 16 + 2 * (16 + 2 + 8) + 2000);
    assert_eq!(
        descriptors["needed_busy"],
        16 + 2 * (16 + 2 + 8) + 2000 + 4000 + lookups
    );
}

#[test]
fn reports_too_few_descriptors() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(SITE.as_bytes()).unwrap();
    let limited = |limit: u32, more: &str| {
        let line = format!(
            "ulimit -n {limit}; exec '{}' relay --config '{}' {more}",
            longhaul_testprograms::longhaul(),
            file.path().display()
        );
        Command::new("sh").args(["-c", &line]).output().unwrap()
    };
    let text = stdout_of(&limited(400, "--check-config"));
    assert!(
        text.contains("room for 94 connections at once, not 1000: others wait"),
        "{text}"
    );
    let remedy = "too low for a single connection: raise the hard limit (ulimit -Hn, LimitNOFILE=";
    let text = stdout_of(&limited(60, "--check-config"));
    assert!(text.contains(remedy), "{text}");
    let output = limited(60, "");
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(remedy), "{error}");
}

#[test]
fn locates_unknown_key() {
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

/// The kernel shows net.ipv4.tcp_mem only in the initial network namespace.
#[test]
fn network_namespace_has_default_memory_budget() {
    if !longhaul_testnet::relay_process::may_use_namespaces() {
        return;
    }
    let inside = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", longhaul_testprograms::longhaul(), "relay"]);
        command.args(["--socks5", "127.0.0.1:0", "--check-config"]);
        stdout_of(&command.args(more).output().unwrap())
    };
    let memory = serde_json::from_str::<Value>(&inside(&["--json"])).unwrap()["memory"].take();
    let machine = longhaul_linux::memory::machine_bytes();
    let budget = memory["budget_bytes"].as_u64().unwrap();
    assert!((1 << 20..=machine / 32).contains(&budget), "{memory}");
    let basis = memory["budget_basis"].as_str().unwrap();
    assert!(["machine", "cgroup"].contains(&basis), "{memory}");
    let text = inside(&[]);
    assert!(text.contains("limits.memory sets another"), "{text}");
    let text = inside(&["--memory", "3GiB"]);
    assert!(text.contains("at 3.22 GB in sockets"), "{text}");
}

/// Location (`LINE:COLUMN`) and message of the error that a file with this text gives.
fn refused(text: &str) -> (String, String) {
    let output = check(text, &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = error.trim().strip_prefix("longhaul: ").unwrap().to_owned();
    let (location, message) = error.split_once(": ").unwrap();
    let location: Vec<_> = location.split(':').skip(1).collect();
    (location.join(":"), message.to_owned())
}

#[test]
fn locates_invalid_values() {
    let listener = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:1080'\n";
    for (text, location, word) in [
        (
            "[[route]]\nvia = ['a',\n  'tokyo']\n[peer.a]\naddress = '10.0.0.1'",
            "6:3",
            "tokyo",
        ),
        (
            "[[route]]\ndeny = true\nprofile = 'upstream'",
            "5:1",
            "deny excludes",
        ),
        (
            "[[route]]\nto = ['x']\nlistener = ['web']",
            "6:1",
            "no listener is called web",
        ),
        (
            "[[route]]\nprofile = 'long'",
            "5:1",
            "no profile is called long",
        ),
        ("[profile.long]\nmss = 1400\ndscp = 64", "6:1", "0 to 63"),
        (
            "[peer.p]\naddress = '10.0.0.1'\nstreams = 17",
            "6:11",
            "1 to 16",
        ),
        (
            "[peer.p]\naddress = '10.0.0.1'\n[peer.p.tls]\nca = '/no/ca'\ncertificate = '/no/c'\nkey = '/no/k'",
            "7:6",
            "/no/ca",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '10.0.0.1:3128'",
            "6:11",
            "not on loopback",
        ),
        (
            "[[listener]]\nkind = 'forward'\naddress = '[::1]:1'",
            "5:8",
            "needs a destination",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:1080'",
            "6:1",
            "two listeners",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '[::1]:1'\nusers = '/no/users'",
            "7:9",
            "/no/users",
        ),
        (
            "[limits]\nconnections = 5\npipe_size = '1B'",
            "6:1",
            "pipe_size",
        ),
        ("[limits]\ntunnel_idle_timeout = '1ms'", "5:1", "1s to 7d"),
        (
            "[admin]\naddress = '0.0.0.0:9100'",
            "5:1",
            "not on loopback",
        ),
        ("[counters]\ninterval = '0s'", "5:1", "interval"),
        ("[counters]\ninterval = '1us'", "5:1", "1ms or more"),
        ("[counters]\naccess_log_interval = '1ms'", "5:1", "1s to 7d"),
        (
            "[counters]\naccess_log_format = 'common'\naccess_log_interval = '1m'",
            "6:1",
            "access_log_format",
        ),
        ("[limits]\nworkers = 0", "5:1", "expected 1 to 1024"),
        ("[limits]\nworkers = 1025", "5:1", "expected 1 to 1024"),
        ("[limits]\nconnections = 0", "5:1", "expected 1 to 1000000"),
        (
            "[limits]\nconnections = 1000001",
            "5:1",
            "expected 1 to 1000000",
        ),
        (
            "[limits]\nlookups_per_client = 0",
            "5:1",
            "expected 1 to 1024",
        ),
        ("[limits]\nmemory = '0B'", "5:1", "or more"),
        ("[limits]\nmemory_per_client = '2'", "5:1", "or more"),
        (
            "[profile.downstream]\ncongestion_control = ''",
            "5:1",
            "expected a name",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = 'localhost:80'",
            "6:11",
            "is not ADDRESS:PORT or [IPv6]:PORT (for example 127.0.0.1:1080",
        ),
        (
            "[admin]\naddress = '127.0.0.1'",
            "5:11",
            "is not ADDRESS:PORT",
        ),
        (
            "[[listener]]\nkind = 'transparent'\naddress = '127.0.0.1:1'\nintercept = ['10.0.0.0/8']\n\
             [[listener]]\nkind = 'transparent'\naddress = '127.0.0.2:1'\nintercept = ['10.0.0.0/8']",
            "11:1",
            "give them different ports",
        ),
    ] {
        let (found, message) = refused(&format!("{listener}{text}"));
        assert_eq!(found, location, "{text}: {message}");
        assert!(message.contains(word), "{text}: {message}");
    }
}

/// Rules of different families or ports do not conflict.
#[test]
fn accepts_transparent_listeners_of_two_ports_or_families() {
    let listener = |address: &str, network: &str| {
        format!(
            "[[listener]]\nkind = 'transparent'\naddress = '{address}'\nintercept = ['{network}']\n"
        )
    };
    let first = listener("127.0.0.1:1", "10.0.0.0/8");
    for (address, network) in [("[::1]:1", "[fd00::/8]"), ("127.0.0.2:2", "10.0.0.0/8")] {
        stdout_of(&check(&(first.clone() + &listener(address, network)), &[]));
    }
}

/// Days are a unit of time.
#[test]
fn accepts_days() {
    let limits = "[limits]\ntunnel_idle_timeout = '7d'\n";
    let text = stdout_of(&check(&format!("{SOCKS}{limits}"), &["--json"]));
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["limits"]["tunnel_idle_timeout_s"], 604_800.0);
}

/// An error in a flag has no location.
#[test]
fn flag_error_has_no_location() {
    let output = check("", &["--http", "10.0.0.1:3128"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("longhaul: http 10.0.0.1:3128 is not on loopback"),
        "{error}"
    );
}

/// Warnings about a file with this text, as `LINE:COLUMN: TEXT`.
fn warnings(text: &str) -> Vec<String> {
    // One file for both runs, so that its name is the same.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let args = ["--config", file.path().to_str().unwrap(), "--check-config"];
    let words = stdout_of(&relay(&args));
    let summary = stdout_of(&relay(&[&args[..], &["--json"]].concat()));
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let warnings = summary["warnings"].as_array().unwrap().iter();
    let warnings: Vec<_> = warnings
        .map(|warning| {
            let location = &warning["location"];
            let text = warning["text"].as_str().unwrap();
            let file = location["file"].as_str().unwrap();
            assert!(
                words.contains(&format!("  {file}:{}:", location["line"])),
                "{words}"
            );
            format!("{}:{}: {text}", location["line"], location["column"])
        })
        .collect();
    for warning in &warnings {
        assert!(words.contains(warning), "{warning} is not in\n{words}");
    }
    assert_eq!(
        words.contains("\nwarnings\n"),
        !warnings.is_empty(),
        "{words}"
    );
    warnings
}

const SOCKS: &str = "[[listener]]\nkind = 'socks5'\naddress = '127.0.0.1:1080'\nname = 'socks'\n";

#[test]
fn warns_of_probable_mistakes() {
    let peer = "[peer.tokyo]\naddress = '192.0.2.9'\n";
    for (text, want) in [
        (peer, "5:1: peer tokyo: no route uses it"),
        (
            "[profile.long]\nmss = 1400",
            "5:1: profile long: no listener, peer or route uses it",
        ),
        (
            "[[route]]\ndeny = true\n[[route]]\nto = ['10.0.0.0/8']",
            "7:1: route 2: it is never reached: earlier routes match all that it would",
        ),
        (
            "[[listener]]\nkind = 'forward'\naddress = '127.0.0.1:80'\ndestination = 'localhost:80'",
            "8:1: listener 127.0.0.1:80: destination: localhost:80 leads back to itself",
        ),
        (
            "[[listener]]\nkind = 'forward'\naddress = '127.0.0.1:80'\ndestination = '127.0.0.1:9100'\n\
             [admin]\naddress = '127.0.0.1:9100'",
            "8:1: listener 127.0.0.1:80: destination: it leads to the admin endpoint",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:1080'\nname = 'web'",
            "7:1: listener web: address: socks5 listener socks has this port: the start will fail",
        ),
        (
            "[admin]\naddress = '127.0.0.1:1080'",
            "3:1: listener socks: address: the admin endpoint has this port: the start will fail",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '0.0.0.0:3128'\nallow_from = ['10.1.0.0/16']\n\
             deny_from = ['10.0.0.0/8']",
            "9:1: listener 0.0.0.0:3128: deny_from covers all of allow_from: it serves this machine only",
        ),
        (
            "[[listener]]\nkind = 'http'\naddress = '127.0.0.1:3128'\nrate = '1mbit'\nrate_per_client = '2mbit'",
            "9:1: listener 127.0.0.1:3128: rate_per_client has no effect: 2 Mbit/s is not below the rate of all, 1 Mbit/s",
        ),
        ("[limits]\nmemory = '9000000GB'", "6:1: memory: "),
        (
            "[counters]\nfile = '/no/such/directory/relay.jsonl'",
            "6:8: counters.file: /no/such/directory/relay.jsonl: its directory is not there: the start will fail",
        ),
        (
            "[counters]\nfile = '/tmp'",
            "6:8: counters.file: /tmp: it is a directory: the start will fail",
        ),
        (
            "[limits]\nmemory = '1MiB'\nmemory_per_client = '2MiB'",
            "7:1: memory_per_client has no effect: 2.1 MB is not below memory, 1.05 MB",
        ),
        (
            "[limits]\nconnections = 10\nconnections_per_client = 10",
            "7:1: connections_per_client has no effect: 10 is not below connections, 10",
        ),
        (
            "[peer.tokyo]\naddress = '127.0.0.1:1080'\n[[route]]\nvia = ['tokyo']",
            "6:1: peer tokyo: address: 127.0.0.1:1080 is this relay's own listener socks",
        ),
        (
            "[peer.tokyo]\naddress = '127.0.0.1:9100'\n[[route]]\nvia = ['tokyo']\n\
             [admin]\naddress = '127.0.0.1:9100'",
            "6:1: peer tokyo: address: 127.0.0.1:9100 is this relay's own admin endpoint",
        ),
        (
            "[peer.tokyo]\naddress = '192.0.2.9'\n[[route]]\nfallback = [['tokyo']]",
            "8:1: route 1: fallback has no effect: without via, connections are direct",
        ),
    ] {
        let found = warnings(&format!("{SOCKS}{text}"));
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(want), "{found:?}");
    }
}

#[test]
fn warns_of_useless_chains() {
    let peers = "[peer.a]\naddress = '192.0.2.9'\n[peer.b]\naddress = '192.0.2.10'\n\
                 [[route]]\nvia = ['a', 'a']\n[[route]]\n";
    let later = |text: &str| {
        let route = format!(
            "{SOCKS}{}",
            peers.replace("via = ['a', 'a']", "to = ['x.org']\nvia = ['a', 'a']")
        );
        let found = warnings(&format!("{route}{text}"));
        assert!(
            found
                .iter()
                .any(|w| w.contains("route 1: a chain passes a twice")),
            "{found:?}"
        );
        found
            .into_iter()
            .filter(|w| w.contains("route 2"))
            .collect::<Vec<_>>()
    };
    let again = later("via = ['b']\nfallback = [[], ['b']]");
    assert!(
        again[0].contains("fallback has a chain that was tried before: b"),
        "{again:?}"
    );
    let profile = later("via = ['b']\nprofile = 'upstream'");
    assert!(profile[0].contains("profile has no effect"), "{profile:?}");
    assert_eq!(
        later("via = ['b']\nprofile = 'upstream'\nfallback = [[]]"),
        Vec::<String>::new()
    );
}

#[test]
fn warns_of_forwarding_loop() {
    let forward = |at: u16, to: u16| {
        format!(
            "[[listener]]\nkind = 'forward'\naddress = '127.0.0.1:{at}'\ndestination = '0.0.0.0:{to}'\n"
        )
    };
    let found = warnings(&[forward(81, 82), forward(82, 83), forward(83, 81)].concat());
    assert_eq!(found.len(), 3, "{found:?}");
    let found = warnings(&[forward(81, 82), forward(82, 84)].concat());
    assert!(found.is_empty(), "{found:?}");
}

/// Behind a peer, 127.0.0.1 is the peer's host.
#[test]
fn forward_through_peer_is_no_loop() {
    let forward = "[[listener]]\nkind = 'forward'\nname = 'f'\naddress = '127.0.0.1:80'\n\
                   destination = '127.0.0.1:80'\n[peer.tokyo]\naddress = '192.0.2.9'\n";
    let found = |routes: &str| warnings(&format!("{forward}{routes}"));
    let via = "[[route]]\nvia = ['tokyo']\n";
    let on = |condition: &str| format!("[[route]]\n{condition}\nvia = ['tokyo']\n");
    for valid in [
        via,
        &on("listener = ['f']"),
        &on("to = ['127.0.0.0/8']"),
        &format!("[[route]]\nports = [81]\n{via}"),
        &on("fallback = [[]]"),
    ] {
        assert_eq!(found(valid), Vec::<String>::new(), "{valid}");
    }
    for looping in [
        &on("to = ['10.0.0.0/8']"),
        &on("from = ['10.0.0.0/8']"),
        &format!("[[route]]\nto = ['127.0.0.1']\n{via}"),
    ] {
        let found = found(looping);
        assert!(
            found[0].contains("leads back to itself"),
            "{looping}: {found:?}"
        );
    }
}

#[test]
fn valid_file_has_no_warnings() {
    let valid = "[[listener]]\nkind = 'convert'\naddress = '127.0.0.1:5124'\n[peer.tokyo]\n\
                 address = '192.0.2.9'\nprofile = 'long'\n[profile.long]\nmss = 1400\n[[route]]\n\
                 listener = ['socks']\nto = ['*.example.jp']\nvia = ['tokyo']\nfallback = [[]]\n[[route]]\n\
                 to = ['10.0.0.0/8']\ndeny = true\n";
    assert_eq!(warnings(&format!("{SOCKS}{valid}")), Vec::<String>::new());
    let printed = stdout_of(&relay(&["--print-default-config"]));
    assert_eq!(warnings(&printed), Vec::<String>::new());
}

/// A directory with an authority and its certificates.
fn authority(names: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    stdout_of(&relay(&[&["--make-certificates", path], names].concat()));
    directory
}

/// Configuration of a Convert listener and a peer with these certificates.
fn with_certificates(own: &std::path::Path, ca: &std::path::Path, name: &str) -> String {
    let tls = format!(
        "ca = '{}/ca.pem'\ncertificate = '{own}/{name}.pem'\nkey = '{own}/{name}-key.pem'\n",
        ca.display(),
        own = own.display()
    );
    format!(
        "[[listener]]\nkind = 'convert'\naddress = '127.0.0.1:5124'\nname = 'far'\n[listener.tls]\n{tls}\
         [peer.tokyo]\naddress = '192.0.2.9'\n[peer.tokyo.tls]\n{tls}[[route]]\nvia = ['tokyo']\n"
    )
}

#[test]
fn warns_of_certificate_from_other_authority() {
    let (ours, others) = (authority(&["here"]), authority(&["here"]));
    let valid = with_certificates(ours.path(), ours.path(), "here");
    assert_eq!(warnings(&valid), Vec::<String>::new());
    let found = warnings(&with_certificates(ours.path(), others.path(), "here"));
    assert_eq!(found.len(), 2, "{found:?}");
    for (warning, user) in found.iter().zip(["listener far", "peer tokyo"]) {
        assert!(warning.contains(user), "{found:?}");
        assert!(
            warning.contains("is not signed by an authority in"),
            "{found:?}"
        );
    }
    assert!(
        found[0].starts_with("7:15: ") && found[1].starts_with("13:15: "),
        "{found:?}"
    );
}

#[test]
fn warns_of_expired_and_future_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap();
    std::fs::write(path.join("ca.pem"), ca.pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    for (name, years, word) in [
        ("old", [2001, 2002], "expired on 2002-01-01"),
        ("new", [2190, 2191], "not valid before 2190-01-01"),
    ] {
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        let [start, end] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        (params.not_before, params.not_after) = (start, end);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(path.join(format!("{name}.pem")), certificate.pem()).unwrap();
        let key_file = path.join(format!("{name}-key.pem"));
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let only_owner = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&key_file, only_owner).unwrap();
        let found = warnings(&with_certificates(path, path, name));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().all(|warning| warning.contains(word)),
            "{found:?}"
        );
    }
}

#[test]
fn explains_mismatched_certificate_and_key() {
    let ours = authority(&["here", "there"]);
    let path = ours.path();
    std::fs::copy(path.join("there-key.pem"), path.join("here-key.pem")).unwrap();
    let (location, message) = refused(&with_certificates(path, path, "here"));
    assert_eq!(location, "14:7");
    let want = format!(
        "here-key.pem: it is not the key to {}/here.pem",
        path.display()
    );
    assert!(message.ends_with(&want), "{message}");
    std::fs::write(
        path.join("here-key.pem"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let (_, message) = refused(&with_certificates(path, path, "here"));
    assert!(
        message.ends_with("here-key.pem: no private key in it, or one that a password protects"),
        "{message}"
    );
    let found = warnings(&with_certificates(path, path, "ca"));
    assert!(
        found
            .iter()
            .all(|warning| warning.contains("it is an authority's certificate")),
        "{found:?}"
    );
}
