// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals, in the terms of each protocol.

use longhaul_protocol::{
    convert::{Answer, ErrorCode, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, parse_http_status, read_array,
    read_convert_answer, read_http_head, refusing_address,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
};

const ANY: &str = "127.0.0.1:0";

fn all_listeners(forward_to: SocketAddr, more: &[&str]) -> Relay {
    let forward = format!("{ANY}={forward_to}");
    let all = [
        "--socks5",
        ANY,
        "--http",
        ANY,
        "--convert",
        ANY,
        "--forward",
        &forward,
    ];
    Relay::start(&[&all, more].concat())
}

#[test]
fn reports_refused_connection_in_each_protocol() {
    let (_socket, closed) = refusing_address();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    for peers in [vec![], vec!["--peer", &peer]] {
        let relay = all_listeners(closed, &peers);
        let to = Destination::Address(closed);
        for (kind, code) in [("socks5", 5), ("http", 502), ("convert", 96)] {
            let outcome = dial(kind, relay.address(kind), &to);
            assert_eq!(outcome.err(), Some(code), "{kind} {peers:?}");
        }
        assert_ends_without_data(connect(relay.address("forward")), true);
    }
}

#[test]
fn reports_unknown_name_in_each_protocol() {
    let relay = all_listeners(([127, 0, 0, 1], 9).into(), &[]);
    let to = "no-such-host.invalid:80".parse().unwrap();
    for (kind, code) in [("socks5", 4), ("http", 502), ("convert", 97)] {
        assert_eq!(
            dial(kind, relay.address(kind), &to).err(),
            Some(code),
            "{kind}"
        );
    }
}

#[test]
fn http_request_to_refusing_origin_gets_502() {
    let (_socket, closed) = refusing_address();
    let relay = all_listeners(closed, &[]);
    let mut client = connect(relay.address("http"));
    write!(client, "GET http://{closed}/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 502);
}

/// Checks that the stream ends without data, with RST if `reset`.
fn assert_ends_without_data(mut stream: TcpStream, reset: bool) {
    match stream.read(&mut [0; 100]) {
        Ok(0) => assert!(!reset, "FIN instead of RST"),
        Ok(n) => panic!("{n} bytes"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn unknown_socks_command_gets_reply_7() {
    let relay = Relay::start(&["--socks5", ANY]);
    for command in [0, 4, 99] {
        let mut client = connect(relay.address("socks5"));
        client.write_all(&[5, 1, 0]).unwrap();
        assert_eq!(read_array(&mut client), [5, 0]);
        client
            .write_all(&[5, command, 0, 1, 127, 0, 0, 1, 0, 80])
            .unwrap();
        assert_eq!(read_array(&mut client), [5, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_ends_without_data(client, false);
    }
}

#[test]
fn refuses_socks_client_without_common_method() {
    let relay = Relay::start(&["--socks5", ANY]);
    let mut client = connect(relay.address("socks5"));
    client.write_all(&[5, 1, 2]).unwrap();
    assert_eq!(read_array(&mut client), [5, 0xFF]);
    assert_ends_without_data(client, false);
}

#[test]
fn invalid_convert_messages_get_rfc_error_codes() {
    let relay = Relay::start(&["--convert", ANY]);
    for (bytes, code) in [
        (
            b"GET / HTTP/1.1\r\n\r\n".as_slice(),
            ErrorCode::MalformedMessage,
        ),
        (&[2, 1, 0x22, 0x63], ErrorCode::UnsupportedVersion),
        (
            &[1, 2, 0x22, 0x63, 0x77, 1, 0, 0],
            ErrorCode::UnsupportedMessage,
        ),
    ] {
        let mut client = connect(relay.address("convert"));
        client.write_all(bytes).unwrap();
        assert_eq!(read_convert_answer(&mut client), Answer::refused(code));
    }
}

#[test]
fn detects_loop_of_two_relays() {
    // Each relay must know the other's address before it starts: loopback addresses derived from
    // this process's number.
    let [.., high, low] = std::process::id().to_be_bytes();
    let (first, second) = (
        format!("127.77.{high}.{low}"),
        format!("127.78.{high}.{low}"),
    );
    let relay = Relay::start(&["--convert", &first, "--peer", &second]);
    let _other = Relay::start(&["--convert", &second, "--peer", &first]);
    let to = "192.0.2.1:80".parse().unwrap();
    let outcome = dial("convert", relay.address("convert"), &to);
    assert_eq!(outcome.err(), Some(ErrorCode::NetworkFailure.code().into()));
}

#[test]
fn forwards_bytes_sent_with_preamble() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--convert", ANY]);
    let mut client = connect(relay.address("convert"));
    let mut first = Request::new(Destination::Address(address), vec![]).encode();
    first.extend(b"early");
    client.write_all(&first).unwrap();
    // The server gets them before the client reads the answer.
    let mut server = accept(&listener);
    assert_eq!(read_array(&mut server), *b"early");
    assert_eq!(read_convert_answer(&mut client), Answer::Accepted);
}

#[test]
fn closes_silent_clients_after_handshake_timeout() {
    let (_listener, address) = listen_as_origin();
    let relay = all_listeners(address, &["--handshake-timeout", "200ms"]);
    for kind in ["socks5", "http", "convert"] {
        let mut slow = connect(relay.address(kind));
        // One byte that begins a message of the protocol.
        slow.write_all(if kind == "http" { b"G" } else { b"\x05" })
            .unwrap();
        let mut rest = Vec::new();
        match slow.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{kind}"),
        }
    }
}

fn exit_code(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(longhaul_testprograms::longhaul())
        .arg("relay")
        .args(args)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn invalid_arguments_exit_with_code_2() {
    for (args, word) in [
        (vec![], "no listener"),
        (vec!["--socks5", "0.0.0.0:1"], "--allow-from"),
        (
            vec!["--socks5", ANY, "--cc-downstream", "no-such"],
            "--cc-downstream no-such: ",
        ),
        (vec!["--forward", "127.0.0.1:1"], "LISTEN=DESTINATION"),
        (vec!["--socks5", ANY, "--peer", "no host"], "HOST:PORT"),
        (
            vec!["--socks5", ANY, "--allow-from", "10.0.0.0/33"],
            "not a network",
        ),
        (
            vec!["--socks5", ANY, "--allow-from", "10.0.0.1/8"],
            "did you mean 10.0.0.0/8?",
        ),
        (
            vec!["--socks5", ANY, "--counters", "/no/such/counters"],
            "/no/such/counters (--counters, counters.file): ",
        ),
        (
            vec!["--socks5", ANY, "--access-log", "/tmp"],
            "/tmp (--access-log, counters.access_log): ",
        ),
        (vec!["--socks5", "127.0.0.1"], "ADDRESS:PORT or [IPv6]:PORT"),
        (vec!["--socks5", ANY, "--grace", "10"], "unit"),
    ] {
        let (code, log) = exit_code(&args);
        assert_eq!(code, Some(2), "{args:?}: {log}");
        assert!(log.contains(word), "{args:?}: {log}");
    }
}

#[test]
fn port_in_use_exits_with_code_1_and_names_its_flag() {
    let (_listener, address) = listen_as_origin();
    let address = address.to_string();
    let forward = format!("{address}=127.0.0.1:9");
    for (args, flag) in [
        (vec!["--socks5", &address], "--socks5"),
        (vec!["--http", &address], "--http"),
        (vec!["--convert", &address], "--convert"),
        (vec!["--forward", &forward], "--forward"),
        (vec!["--socks5", ANY, "--admin", &address], "--admin"),
    ] {
        let (code, log) = exit_code(&args);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(&format!("{flag} {address}: ")), "{log}");
    }
}

#[test]
fn one_port_for_two_listeners_exits_with_code_2() {
    let (_listener, address) = listen_as_origin();
    let port = address.port();
    let (address, any) = (address.to_string(), format!("0.0.0.0:{port}"));
    for (args, word) in [
        (vec!["--http", &address], "two listeners have the address"),
        (
            vec!["--admin", &address],
            "the admin endpoint has this port",
        ),
        (
            vec!["--http", &any, "--allow-from", "192.0.2.0/24"],
            "socks5 listener 127.0.0.1:",
        ),
    ] {
        let (code, log) = exit_code(&[&["--socks5", &address][..], &args].concat());
        assert_eq!(code, Some(2), "{log}");
        assert!(log.contains(word), "{log}");
    }
}

#[test]
fn logs_denied_destinations_once_per_client() {
    let listener = format!("[[listener]]\nkind = 'socks5'\naddress = '{ANY}'\n");
    let route = "[[route]]\nto = ['192.0.2.0/24']\ndeny = true\n";
    let relay = Relay::start_with_config(&(listener + route), 1);
    for to in ["192.0.2.1:80", "192.0.2.2:80"] {
        let outcome = dial("socks5", relay.address("socks5"), &to.parse().unwrap());
        assert_eq!(outcome.err(), Some(2), "{to}");
    }
    let (_, log) = relay.stop();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("destination refused"))
        .collect();
    assert!(
        matches!(lines[..], [line] if line.contains("destination=192.0.2.1:80")),
        "{log}"
    );
}

#[test]
fn loopback_clients_are_always_allowed() {
    let (_listener, address) = listen_as_origin();
    let args = ["--socks5", "0.0.0.0:0", "--allow-from", "192.0.2.0/24"];
    let relay = Relay::start(&args);
    let port = relay.address("socks5").port();
    let to = Destination::Address(address);
    assert!(dial("socks5", ([127, 0, 0, 1], port).into(), &to).is_ok());
}
