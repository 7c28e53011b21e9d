// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repair of interception: tables, policy rules and routes that other programs on the host remove.
//! They are restored at once, with one log line each time.

use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, may_use_namespaces, set_timeouts, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::{Addresses, BOTH, INTERCEPT, IPV4, IPV6, Testbed};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

/// Removals by other programs, and the command that shows the repair. Each removes once: `ip route flush` repeats until
/// nothing is left, and so removes what was restored.
const REMOVALS: [(&str, &str); 9] = [
    ("nft flush ruleset", "nft list ruleset"),
    ("nft delete table ip longhaul-3129", "nft list ruleset"),
    ("nft flush table ip6 longhaul-3129", "nft list ruleset"),
    (
        "nft flush chain ip longhaul-3129 inbound",
        "nft list ruleset",
    ),
    ("ip rule del prio 1000", "ip rule"),
    ("ip -6 rule del prio 1000", "ip -6 rule"),
    ("ip rule flush", "ip rule show prio 1000"),
    (
        "ip route del local default dev lo table 1279790137",
        "ip route show table 1279790137",
    ),
    (
        "ip -6 route del local default dev lo table 1279790137",
        "ip -6 route show table 1279790137",
    ),
];

fn run(bed: &Testbed, command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut command = bed.command_on_router(words.next().unwrap());
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a removal as soon as what it removes is there: the relay may still restore it after the last removal.
fn remove_again(bed: &Testbed, removal: &str) {
    let words: Vec<&str> = removal.split_whitespace().collect();
    let began = Instant::now();
    let is_removed = || {
        let output = bed.command_on_router(words[0]).args(&words[1..]).output();
        output.unwrap().status.success()
    };
    while !is_removed() {
        assert!(began.elapsed() < TEST_TIMEOUT, "{removal}: not restored");
    }
}

/// Stops a relay and returns its log lines about removals, and unexpected ones. A busy machine may stall a thread.
fn interception_log(relay: Relay) -> Vec<String> {
    const OTHER: [&str; 4] = [
        "RLIMIT_NOFILE",
        ": stopped, ",
        "a thread stalls: ",
        "intercepting again",
    ];
    let (_, log) = relay.stop();
    let is_expected = |line: &&str| !OTHER.iter().any(|other| line.contains(other));
    log.lines().filter(is_expected).map(str::to_owned).collect()
}

/// Returns the output without its variable parts: the elements are leases, which end on a busy machine and are renewed.
fn normalized_output(bed: &Testbed, command: &str) -> String {
    let listing = run(bed, command);
    let is_constant = |line: &&str| !line.contains("elements");
    let mut lines: Vec<&str> = listing.lines().filter(is_constant).collect();
    // A new table is listed last.
    lines.sort_unstable();
    lines.join("\n")
}

/// Connects until the relay intercepts: connections bypass it until the next renewal of the lease. Returns both ends of
/// the connection.
fn connect_intercepted(
    bed: &Testbed,
    family: &Addresses,
    listener: &TcpListener,
) -> (TcpStream, TcpStream) {
    let began = Instant::now();
    while began.elapsed() < TEST_TIMEOUT {
        match bed.connect(family.server_port(8080)) {
            Ok(client) => {
                let server = accept(listener);
                if server.peer_addr().unwrap().ip() == family.upstream {
                    return (client, server);
                }
            }
            // The last removal came between the SYN and the ACK, which then bypassed the relay.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    panic!("interception was not restored");
}

#[test]
fn restores_removed_rules_and_logs_once() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("removed");
    for more in [&[][..], &["--verify-connect"]] {
        for (removal, question) in REMOVALS {
            let relay = bed.relay(&[&INTERCEPT[..], more].concat());
            let before = normalized_output(&bed, question);
            run(&bed, removal);
            let began = Instant::now();
            while normalized_output(&bed, question) != before {
                assert!(
                    began.elapsed() < TEST_TIMEOUT,
                    "{removal}: {}",
                    normalized_output(&bed, question)
                );
            }
            println!("{removal} {more:?}: restored after {:?}", began.elapsed());
            if removal == "ip rule flush" {
                // Default rules of the system.
                run(&bed, "ip rule add prio 32766 lookup main");
                run(&bed, "ip rule add prio 32767 lookup default");
            }
            for family in BOTH {
                let listener = bed.listen(family.server_port(8080));
                let (client, server) = connect_intercepted(&bed, &family, &listener);
                set_timeouts(&client);
                transfer_both_ways(&client, &server, 1);
            }
            let log = interception_log(relay);
            assert_eq!(log.len(), 1, "{removal}: {log:?}");
            assert!(
                log[0].contains("removed by another program, restored: the "),
                "{log:?}"
            );
        }
    }
}

#[test]
fn open_connection_survives_removal_of_rules() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("stands");
    let _relay = bed.relay(&[&INTERCEPT[..], &["--keep-source"]].concat());
    for family in BOTH {
        let listener = bed.listen(family.server_port(8080));
        for (removal, _) in REMOVALS.into_iter().filter(|(r, _)| *r != "ip rule flush") {
            let client = bed.connect(family.server_port(8080)).unwrap();
            let server = accept(&listener);
            set_timeouts(&client);
            remove_again(&bed, removal);
            transfer_both_ways(&client, &server, 2);
        }
    }
}

#[test]
fn six_flushes_log_at_most_six_lines() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("six");
    for pause in [0, 20, 200, 1000] {
        let relay = bed.relay(&[&INTERCEPT[..], &["--verify-connect"]].concat());
        for _ in 0..6 {
            run(&bed, "nft flush ruleset");
            std::thread::sleep(Duration::from_millis(pause));
        }
        for family in BOTH {
            let listener = bed.listen(family.server_port(8080));
            connect_intercepted(&bed, &family, &listener);
        }
        let log = interception_log(relay);
        println!("{pause} ms apart: {} lines", log.len());
        assert!((1..=6).contains(&log.len()), "{log:?}");
        let is_right = |line: &String| {
            line.contains("removed by another program, restored: the nft rules of ")
        };
        assert!(log.iter().all(is_right), "{log:?}");
    }
}

/// Two failures: another process owns the relay's table in the kernel, and the loopback interface
/// is down.
#[test]
fn health_reports_failed_interception() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("cannot");
    let relay = bed.relay(&[&INTERCEPT[..], &["--admin", "127.0.0.1:9100"]].concat());
    let listeners = BOTH.map(|family| bed.listen(family.server_port(8080)));
    let source = |family: &Addresses| {
        let _client = bed.connect(family.server_port(8080)).unwrap();
        let listener = &listeners[usize::from(family.server.is_ipv6())];
        accept(listener).peer_addr().unwrap().ip()
    };
    let mut client_network = bed
        .command_on_router("nft")
        .arg("-i")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let table = "table ip longhaul-3129";
    let hold = format!("delete {table}; add {table} {{ flags owner; }}");
    writeln!(client_network.stdin.as_ref().unwrap(), "{hold}").unwrap();
    relay.wait_for_stderr("not intercepting: ");
    assert!(health(&bed).contains(r#""status":"not_intercepting""#));
    // The other address family has its own table.
    assert_eq!(BOTH.each_ref().map(source), [IPV4.client, IPV6.upstream]);
    drop(client_network.stdin.take());
    client_network.wait().unwrap();
    relay.wait_for_stderr("removed by another program, restored: the nft rules of 127.0.0.1:3129");
    assert!(health(&bed).contains(r#""status":"serving""#));
    assert!(BOTH.iter().all(|family| source(family) == family.upstream));

    run(&bed, "ip link set lo down");
    relay.wait_for_stderr("not intercepting: [::1]:3129");
    // IPv4 routes through the interface are kept.
    assert_eq!(BOTH.each_ref().map(source), [IPV4.upstream, IPV6.client]);
    run(&bed, "ip link set lo up");
    relay.wait_for_stderr("removed by another program, restored: the policy rule or route of ");
    assert!(BOTH.iter().all(|family| source(family) == family.upstream));
}

fn health(bed: &Testbed) -> String {
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, 9100));
    let mut endpoint = bed.router.run(|| TcpStream::connect(admin)).unwrap();
    set_timeouts(&endpoint);
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    endpoint.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    endpoint.read_to_string(&mut answer).unwrap();
    answer
}
