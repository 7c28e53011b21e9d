// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/metrics`: format, and values that match the traffic.

use crate::{
    relay_admin::ANY, relay_admin::endpoint::Endpoint, relay_admin::forwarding,
    relay_admin::openmetrics::Exposition,
};
use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, read_http_head, refusing_address,
    transfer_both_ways,
};
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

const MIB: f64 = 1024.0 * 1024.0;

fn scrape(endpoint: Endpoint) -> Exposition {
    let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    let answer = endpoint.get_with("/metrics", accept);
    assert_eq!(answer.status, 200);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(answer.head.contains(kind), "{}", answer.head);
    Exposition::parse(&answer.body)
}

/// Scrapes once all connections have ended: a connection is counted when its record is written,
/// soon after its last byte.
fn scrape_when_idle(endpoint: Endpoint) -> Exposition {
    let is_idle = |status: &serde_json::Value| status["relay"]["total"]["active"] == 0;
    endpoint.until("/api/v1/status", |status| is_idle(status).then_some(()));
    // The connection samples may be a second older than the counters.
    endpoint.until("/api/v1/status", |status| {
        let legs = status["legs"].as_array().unwrap();
        let open = |leg: &serde_json::Value| leg["limited_by"].as_object().unwrap().len();
        legs.iter().all(|leg| open(leg) == 0).then_some(())
    });
    scrape(endpoint)
}

/// Sends `mib` MiB both ways. Neither side closes before it has received all: bytes still queued
/// when the relay closes a socket are sent by the kernel, uncounted.
fn transfer_without_close(client: &TcpStream, server: &TcpStream, mib: usize) {
    let write = |mut to: &TcpStream| to.write_all(&vec![5; mib << 20]).unwrap();
    let read = |mut from: &TcpStream| from.read_exact(&mut vec![0; mib << 20]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| write(client));
        scope.spawn(|| write(server));
        scope.spawn(|| read(client));
        scope.spawn(|| read(server));
    });
}

#[test]
fn counters_match_traffic() {
    let (listener, address) = listen_as_origin();
    let (_socket, closed) = refusing_address();
    let relay = forwarding(address, &["--socks5", ANY]);
    let endpoint = Endpoint::of(&relay);
    for _ in 0..2 {
        let client = connect(relay.address("forward"));
        transfer_without_close(&client, &accept(&listener), 3);
    }
    let refused = dial(
        "socks5",
        relay.address("socks5"),
        &Destination::Address(closed),
    );
    assert_eq!(refused.err(), Some(5));

    let found = scrape_when_idle(endpoint);
    let of = |name, labels: &[&str]| found.sum(name, &[&[r#"kind="forward""#], labels].concat());
    let up = [r#"direction="up""#];
    let down = [r#"direction="down""#];
    assert_eq!(of("longhaul_listener_connections_total", &[]), 2.0);
    assert_eq!(of("longhaul_listener_connections_open", &[]), 0.0);
    assert_eq!(of("longhaul_listener_relayed_bytes_total", &up), 6.0 * MIB);
    assert_eq!(
        of("longhaul_listener_relayed_bytes_total", &down),
        6.0 * MIB
    );
    assert_eq!(of("longhaul_listener_failures_total", &[]), 0.0);
    let cause = [r#"kind="socks5""#, r#"cause="connection_refused""#];
    assert_eq!(found.sum("longhaul_listener_failures_total", &cause), 1.0);
    assert_eq!(found.sum("longhaul_listener_failures_total", &[]), 1.0);

    let name = format!(r#"listener="{}""#, relay.address("forward"));
    for leg in [r#"leg="downstream""#, r#"leg="upstream""#] {
        let sent = found.sum("longhaul_leg_sent_bytes_total", &[&name, leg]);
        let retransmitted = found.sum("longhaul_leg_retransmitted_bytes_total", &[&name, leg]);
        assert_eq!(sent - retransmitted, 6.0 * MIB, "{leg}");
        assert_eq!(found.sum("longhaul_legs_open", &[&name, leg]), 0.0);
    }
    assert_eq!(found.sum("longhaul_serving", &[]), 1.0);
    assert_eq!(found.sum("longhaul_build_info", &[r#"version=""#]), 1.0);
}

#[test]
fn manual_lists_every_metric() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = forwarding(address, &["--peer", &peer]);
    let client = connect(relay.address("forward"));
    transfer_both_ways(&client, &accept(&listener), 1);
    let found = scrape_when_idle(Endpoint::of(&relay));
    let manual = include_str!("../../../../../docs/admin.md");
    for family in found.families() {
        let suffix = match found.kind(family) {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let written = format!("`{family}{suffix}`");
        assert!(manual.contains(&written), "docs/admin.md lacks {written}");
    }
}

#[test]
fn peer_metrics_count_its_traffic() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert");
    let relay = forwarding(address, &["--peer", &peer.to_string(), "--peer-pool", "1"]);
    let endpoint = Endpoint::of(&relay);
    let client = connect(relay.address("forward"));
    transfer_without_close(&client, &accept(&listener), 2);
    drop(client);
    let found = scrape_when_idle(endpoint);
    let label = format!(r#"peer="{peer}""#);
    let of = |name, labels: &[&str]| found.sum(name, &[&[&*label], labels].concat());
    assert_eq!(of("longhaul_peer_up", &[]), 1.0);
    assert_eq!(of("longhaul_peer_connections_total", &[]), 1.0);
    assert_eq!(of("longhaul_peer_connections_open", &[]), 0.0);
    for direction in [r#"direction="up""#, r#"direction="down""#] {
        assert_eq!(
            of("longhaul_peer_relayed_bytes_total", &[direction]),
            2.0 * MIB
        );
    }
    assert!(of("longhaul_leg_sent_bytes_total", &[r#"leg="upstream""#]) >= 2.0 * MIB);

    drop(far);
    // The next connection detects it.
    drop(connect(relay.address("forward")));
    endpoint.until("/api/v1/status", |status| {
        let down = !status["peers"][0]["down_s"].is_null();
        if !down {
            drop(connect(relay.address("forward")));
        }
        down.then_some(())
    });
    let found = scrape(endpoint);
    assert_eq!(found.sum("longhaul_peer_up", &[&label]), 0.0);
    assert!(found.sum("longhaul_peer_failures_total", &[&label]) >= 1.0);
}

/// Clients create no new series, however many there are.
#[test]
fn clients_create_no_series() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let one = || {
        let client = connect(relay.address("forward"));
        transfer_both_ways(&client, &accept(&listener), 1);
    };
    one();
    let before = scrape_when_idle(endpoint);
    (0..5).for_each(|_| one());
    let after = scrape_when_idle(endpoint);
    assert_eq!(before.series(), after.series());
}

/// A relay with a peer that has relayed, refused and waited.
fn busy() -> (Relay, Relay) {
    let (listener, address) = listen_as_origin();
    let (_socket, closed) = refusing_address();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = forwarding(address, &["--socks5", ANY, "--peer", &peer]);
    transfer_both_ways(&connect(relay.address("forward")), &accept(&listener), 1);
    let refused = Destination::Address(closed);
    assert!(dial("socks5", relay.address("socks5"), &refused).is_err());
    (far, relay)
}

#[test]
#[ignore = "needs promtool: make test-peers"]
fn promtool_accepts_the_classic_format() {
    let (_far, relay) = busy();
    let endpoint = Endpoint::of(&relay);
    scrape_when_idle(endpoint);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, which scripts/setup installs");
    let text = endpoint.get("/metrics").body;
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let output_text = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_text);
    assert!(
        output.status.success() && output_text.is_empty(),
        "{output_text}\n{text}"
    );
}

#[test]
fn negotiates_format() {
    let (_far, relay) = busy();
    let kind = |fields: &str| {
        let answer = Endpoint::of(&relay).get_with("/metrics", fields);
        assert!(answer.head.contains("vary: accept"), "{}", answer.head);
        let lines = answer.head.lines();
        let kind = lines.filter_map(|line| line.strip_prefix("content-type: "));
        (kind.collect::<String>(), answer.body.ends_with("# EOF\n"))
    };
    let open = (
        "application/openmetrics-text; version=1.0.0; charset=utf-8".to_owned(),
        true,
    );
    let classic = ("text/plain; version=0.0.4; charset=utf-8".to_owned(), false);
    assert_eq!(kind(""), classic);
    assert_eq!(kind("Accept: */*\r\n"), classic);
    assert_eq!(kind("Accept: text/plain\r\n"), classic);
    assert_eq!(kind("Accept: application/openmetrics-text\r\n"), open);
    // The header of Prometheus 2.42.
    let prometheus = "Accept: application/openmetrics-text;version=1.0.0,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
    assert_eq!(kind(prometheus), open);
}

/// Both formats have the same series.
#[test]
fn formats_have_same_series() {
    let (_far, relay) = busy();
    let endpoint = Endpoint::of(&relay);
    let open = scrape_when_idle(endpoint);
    let classic = endpoint.get("/metrics").body;
    let samples = classic.lines().filter(|line| !line.starts_with('#'));
    let series: BTreeSet<_> = samples
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    assert_eq!(series, open.series());
}

/// Names, and labels whose values are longhaul's own words.
#[test]
fn labels_are_in_snake_case() {
    let (_far, relay) = busy();
    let found = scrape_when_idle(Endpoint::of(&relay));
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    for series in found.series() {
        let (_, labels) = series
            .trim_end_matches('}')
            .split_once('{')
            .unwrap_or_default();
        for (name, value) in labels
            .split("\",")
            .filter_map(|label| label.split_once("=\""))
        {
            let ours = [
                "cause",
                "kind",
                "direction",
                "outcome",
                "leg",
                "limiter",
                "role",
            ];
            assert!(name.chars().all(fits), "{series}");
            let value = value.trim_end_matches('"');
            assert!(!ours.contains(&name) || value.chars().all(fits), "{series}");
        }
    }
    assert!(
        found.sum(
            "longhaul_listener_failures_total",
            &[r#"cause="connection_refused""#]
        ) > 0.0
    );
}

#[test]
fn counts_durations_once_per_connection() {
    let (_far, relay) = busy();
    let found = scrape_when_idle(Endpoint::of(&relay));
    let of = |kind: &str, name: &str| {
        let label = format!(r#"listener="{}""#, relay.address(kind));
        let count = format!("longhaul_listener_{name}_seconds_count");
        let bucket = format!("longhaul_listener_{name}_seconds_bucket");
        let count = found.sum(&count, &[&label]);
        assert_eq!(found.sum(&bucket, &[&label, r#"le="+Inf""#]), count);
        count
    };
    assert_eq!(of("forward", "connect"), 1.0);
    assert_eq!(of("forward", "first_byte"), 1.0);
    assert_eq!(of("forward", "connection_duration"), 1.0);
    // The peer was reached, and then refused the destination.
    assert_eq!(of("socks5", "connect"), 1.0);
    assert_eq!(of("socks5", "first_byte"), 0.0);
    assert_eq!(of("socks5", "connection_duration"), 1.0);
}

/// Each request is timed by itself, however long the client's connection lasts.
#[test]
fn counts_each_request_of_persistent_connection() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--http", ANY, "--admin", ANY]);
    let mut client = connect(relay.address("http"));
    let mut server = None;
    for _ in 0..3 {
        write!(
            client,
            "GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"
        )
        .unwrap();
        let server = server.get_or_insert_with(|| accept(&listener));
        read_http_head(server);
        server
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!")
            .unwrap();
        read_http_head(&mut client);
        client.read_exact(&mut [0]).unwrap();
    }
    let found = scrape(Endpoint::of(&relay));
    assert_eq!(
        found.sum("longhaul_listener_first_byte_seconds_count", &[]),
        3.0
    );
    assert_eq!(
        found.sum("longhaul_listener_connect_seconds_count", &[]),
        1.0
    );
}

#[test]
fn exports_process_metrics() {
    let (_far, relay) = busy();
    let found = scrape(Endpoint::of(&relay));
    let value = |name| found.sum(name, &[]);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_open_fds") > 5.0);
    assert!(value("process_max_fds") >= value("process_open_fds"));
    assert!(value("process_threads") >= 2.0);
    assert!(value("process_cpu_seconds_total") >= 0.0);
    let age = value("longhaul_start_time_seconds") - value("process_start_time_seconds");
    assert!((-1.0..60.0).contains(&age), "{age}");
    let build = found.sum(
        "longhaul_build_info",
        &[r#"version=""#, r#"commit=""#, r#"arch=""#],
    );
    assert_eq!(build, 1.0);
}

#[test]
fn exports_reloads_and_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().display().to_string();
    let mut make = Command::new(longhaul_testprograms::longhaul());
    make.args(["relay", "--make-certificates", &path, "here", "tokyo"]);
    assert!(make.output().unwrap().status.success());
    let file = directory.path().join("relay.toml");
    let tls = |name: &str| {
        format!(
            "ca = '{path}/ca.pem'\ncertificate = '{path}/{name}.pem'\nkey = '{path}/{name}-key.pem'\n"
        )
    };
    let text = format!(
        "[[listener]]\nkind = 'convert'\naddress = '{ANY}'\nname = 'far'\n[listener.tls]\n{}\
         [peer.tokyo]\naddress = '127.0.0.1:1'\n[peer.tokyo.tls]\n{}[admin]\naddress = '{ANY}'\n",
        tls("tokyo"),
        tls("here"),
    );
    std::fs::write(&file, &text).unwrap();
    let mut command = Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--config"]).arg(&file);
    let relay = Relay::spawn_with_listeners(command, 2);
    let endpoint = Endpoint::of(&relay);
    let now = jiff::Timestamp::now().as_second() as f64;
    let found = scrape(endpoint);
    let end = |labels: &[&str]| found.sum("longhaul_certificate_expiry_timestamp_seconds", labels);
    let years = 365.0 * 86400.0;
    for (used_by, name) in [("listener", "far"), ("peer", "tokyo")] {
        let of = [
            format!(r#"used_by="{used_by}""#),
            format!(r#"name="{name}""#),
        ];
        for role in [r#"role="own""#, r#"role="authority""#] {
            let left = end(&[&of[0], &of[1], role]) - now;
            assert!(
                (9.0 * years..11.0 * years).contains(&left),
                "{used_by} {role}: {left}"
            );
        }
    }
    assert_eq!(
        found.sum("longhaul_config_last_reload_successful", &[]),
        1.0
    );

    std::fs::write(&file, "nonsense").unwrap();
    relay.signal(Signal::HUP);
    relay.wait_for_stderr("not reloaded");
    let failed = endpoint.until("/api/v1/status", |status| {
        (status["reload"]["successful"] == false).then(|| status["reload"].clone())
    });
    assert!(
        failed["error"].as_str().unwrap().contains("relay.toml:1"),
        "{failed}"
    );
    let found = scrape(endpoint);
    let value = |name: &str| found.sum(&format!("longhaul_config_last_reload_{name}"), &[]);
    assert_eq!(value("successful"), 0.0);
    assert!(value("timestamp_seconds") > value("success_timestamp_seconds"));

    std::fs::write(&file, &text).unwrap();
    relay.signal(Signal::HUP);
    endpoint.until("/api/v1/status", |status| {
        (status["reload"]["successful"] == true).then_some(())
    });
    let found = scrape(endpoint);
    let value = |name: &str| found.sum(&format!("longhaul_config_last_reload_{name}"), &[]);
    assert_eq!(
        value("timestamp_seconds"),
        value("success_timestamp_seconds")
    );
}
