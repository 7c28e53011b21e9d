// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two relays with mismatched settings. Each logs the cause and the remedy once. The peer counts as
//! down, clients use the fallback, and the interval between checks of the peer grows.

use longhaul_protocol::{
    convert::{Answer, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    Relay, TEST_TIMEOUT, accept, connect, dial, listen_as_origin, may_use_namespaces,
    parse_http_status, read_array, read_http_head, set_timeouts, transfer_both_ways,
};
use longhaul_testnet::relay_testbed::Testbed;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

/// Makes an authority, and all kinds of certificates signed by it.
fn authority(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write("ca.pem", params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    let both = [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    for (name, dns, years, usages) in [
        ("near", "near", (2020, 2100), &both[..]),
        ("far", "far", (2020, 2100), &both),
        ("near-expired", "near", (2020, 2021), &both),
        ("far-expired", "far", (2020, 2021), &both),
        ("near-early", "near", (2090, 2100), &both),
        ("far-early", "far", (2090, 2100), &both),
        ("near-server", "near", (2020, 2100), &both[..1]),
        ("far-client", "far", (2020, 2100), &both[1..]),
        ("far-other", "other", (2020, 2100), &both),
    ] {
        let mut params = CertificateParams::new(vec![dns.to_owned()]).unwrap();
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        params.extended_key_usages = usages.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        write(&format!("{name}.pem"), certificate.pem());
        write(&format!("{name}-key.pem"), key.serialize_pem());
    }
}

/// `tls` setting with an authority, a certificate (`AUTHORITY/NAME`), and more keys.
fn tls(directory: &Path, ca: &str, certificate: &str, more: &str) -> String {
    let directory = directory.display();
    format!(
        "tls = {{ ca = '{directory}/{ca}/ca.pem', certificate = '{directory}/{certificate}.pem', \
         key = '{directory}/{certificate}-key.pem'{more} }}\n"
    )
}

fn listener(kind: &str, at: &str, more: &str) -> String {
    format!("[[listener]]\nkind = '{kind}'\naddress = '{at}'\n{more}")
}

/// Starts a relay with a route through `far`, and through `second` as fallback. A peer that does
/// not answer is soon given up.
fn near(far: SocketAddr, peer: &str, second: SocketAddr) -> Relay {
    near_within("1s", far, peer, second)
}

fn near_within(connect_timeout: &str, far: SocketAddr, peer: &str, second: SocketAddr) -> Relay {
    let listeners = listener("http", ANY, "") + &listener("socks5", ANY, "");
    let rest = format!(
        "[limits]\nconnect_timeout = '{connect_timeout}'\n[[route]]\nvia = ['far']\nfallback = [['second']]\n\
         [peer.second]\naddress = '{second}'\n[peer.far]\naddress = '{far}'\n{peer}"
    );
    Relay::start_with_config(&(listeners + &rest), 2)
}

fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

/// Line that contains `word`.
fn line<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines()
        .find(|line| line.contains(word))
        .unwrap_or_else(|| panic!("{word}: {text}"))
}

/// Checks that clients of `near` reach their destination by the fallback, the first client
/// included.
fn assert_fallback_works(near: &Relay) {
    let (listener, address) = listen_as_origin();
    let to = Destination::Address(address);
    for kind in ["http", "socks5", "http"] {
        let client = dial(kind, near.address(kind), &to).unwrap();
        transfer_both_ways(&client, &accept(&listener), 1);
    }
    get(near, &listener, address);
}

/// Sends an HTTP request that is not a tunnel.
fn get(near: &Relay, listener: &TcpListener, origin: SocketAddr) {
    let mut client = connect(near.address("http"));
    write!(
        client,
        "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n"
    )
    .unwrap();
    let mut server = accept(listener);
    read_http_head(&mut server);
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .unwrap();
    assert_eq!(parse_http_status(&read_http_head(&mut client)), 204);
}

/// Checks that `near` and `far` log one line each, with this text.
fn assert_logged_once(near: Relay, near_message: &str, far: Relay, far_message: &str) {
    near.wait_for_stderr("peer far is down");
    if !far_message.is_empty() {
        far.wait_for_stderr("client refused");
    }
    let (_, near) = near.stop();
    let log = line(&near, "peer far is down");
    assert!(log.contains(near_message), "{near_message}: {log}");
    assert_eq!(count(&near, "peer far"), 1, "{near}");
    let (_, far) = far.stop();
    if far_message.is_empty() {
        assert_eq!(count(&far, "client refused"), 0, "{far}");
        return;
    }
    let log = line(&far, "client refused");
    assert!(log.contains(far_message), "{far_message}: {log}");
    assert_eq!(count(&far, "client refused"), 1, "{far}");
}

/// Checks two relays with these settings of `[peer.far]` and of its listener, and the log line of
/// each. The long time-out lets the server-side relay answer even on a busy machine.
fn check_mismatch(peer: &str, listener_settings: &str, near_message: &str, far_message: &str) {
    check_mismatch_within("20s", peer, listener_settings, near_message, far_message);
}

fn check_mismatch_within(
    timeout: &str,
    peer: &str,
    listener_settings: &str,
    near_message: &str,
    far_message: &str,
) {
    eprintln!("{near_message} / {far_message}: {peer}{listener_settings}");
    let second = Relay::start(&["--convert", ANY]);
    for pool in ["", "pool = 4\n"] {
        let far = Relay::start_with_config(&listener("convert", ANY, listener_settings), 1);
        let peer = pool.to_owned() + peer;
        let (far_at, second_at) = (far.address("convert"), second.address("convert"));
        let near = near_within(timeout, far_at, &peer, second_at);
        assert_fallback_works(&near);
        assert_logged_once(near, near_message, far, far_message);
    }
}

#[test]
fn reports_tls_at_one_end_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let (near, far) = (tls(path, "a", "a/near", ""), tls(path, "a", "a/far", ""));
    check_mismatch(
        "",
        &far,
        "it requires TLS: give this peer tls",
        "does not speak TLS",
    );
    check_mismatch(
        &near,
        "",
        "it does not speak TLS: remove tls from this peer",
        "it speaks TLS",
    );
}

#[test]
fn reports_rejected_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    authority(&path.join("b"));
    let (near, far) = (tls(path, "a", "a/near", ""), tls(path, "a", "a/far", ""));
    let a = |certificate| tls(path, "a", certificate, "");
    let cases = [
        // One end or both do not trust the other's authority.
        (
            a("b/near"),
            far.clone(),
            "its ca lacks the authority of this relay's certificate",
            "its certificate is from another authority",
        ),
        (
            near.clone(),
            a("b/far"),
            "its certificate is from another authority",
            "its ca lacks the authority of this relay's certificate",
        ),
        (
            tls(path, "b", "b/near", ""),
            far.clone(),
            "its certificate is from another authority",
            "its ca lacks the authority of this relay's certificate",
        ),
        (
            a("a/near-expired"),
            far.clone(),
            "this relay's certificate has expired: renew it here",
            "its certificate has expired: renew it there",
        ),
        (
            near.clone(),
            a("a/far-expired"),
            "its certificate has expired: renew it there",
            "this relay's certificate has expired: renew it here",
        ),
        (
            a("a/near-early"),
            far.clone(),
            "set the clocks right",
            "its certificate is not valid yet",
        ),
        (
            near.clone(),
            a("a/far-early"),
            "its certificate is not valid yet",
            "set the clocks right",
        ),
        (
            near.clone(),
            a("a/far-other"),
            "its certificate is for other, which is not its name: set tls.name",
            "correct tls.name of its peer",
        ),
        (
            tls(path, "a", "a/near", ", name = 'other'"),
            far.clone(),
            "its certificate is for far, which is not its name: set tls.name",
            "correct tls.name of its peer",
        ),
        (
            near.clone(),
            tls(path, "a", "a/far", ", allow = ['others', 'more']"),
            "allow does not name this relay's certificate",
            "its certificate is for near, which allow does not name: add one of these to allow",
        ),
        (
            a("a/near-server"),
            far,
            "this relay's certificate is not for relays",
            "its certificate is not for relays",
        ),
        (
            near,
            a("a/far-client"),
            "its certificate is not for relays",
            "this relay's certificate is not for relays",
        ),
    ];
    for (peer, listener_settings, near_message, far_message) in cases {
        check_mismatch(&peer, &listener_settings, near_message, far_message);
    }
}

#[test]
fn reports_rejected_certificates_over_udt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let udt =
        |certificate, more| "transport = 'udt'\n".to_owned() + &tls(path, "a", certificate, more);
    check_mismatch(
        &udt("a/near-expired", ""),
        &udt("a/far", ""),
        "this relay's certificate has expired",
        "its certificate has expired",
    );
    check_mismatch(
        &udt("a/near", ""),
        &udt("a/far", ", allow = ['other']"),
        "allow does not name this relay's certificate",
        "which allow does not name",
    );
}

#[test]
fn reports_udt_at_one_end_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let leg = |owner, transport: &str| {
        format!("transport = '{transport}'\n{}", tls(path, "a", owner, ""))
    };
    // A port of the other transport receives nothing, so only the client-side relay can detect the
    // mismatch.
    check_mismatch_within(
        "1s",
        &leg("a/near", "tcp"),
        &leg("a/far", "udt"),
        "or the transport",
        "",
    );
    check_mismatch_within("1s", &leg("a/near", "udt"), &leg("a/far", "tcp"), "", "");
}

#[test]
fn reports_required_proxy_header() {
    check_mismatch(
        "",
        "accept_proxy = true\n",
        "closes the connection",
        "accept_proxy",
    );
}

#[test]
fn reports_denied_relay() {
    let denied = "deny_from = ['127.0.0.0/8']\n";
    check_mismatch(
        "",
        denied,
        "its allow_from may not name",
        "deny_from names it",
    );
}

#[test]
fn reports_listener_of_another_kind() {
    let second = Relay::start(&["--convert", ANY]);
    for (kind, near_message) in [
        ("http", "it answers in HTTP: correct the address"),
        ("socks5", "not a longhaul Convert listener"),
    ] {
        let far = Relay::start_with_config(&listener(kind, ANY, ""), 1);
        let near = near(far.address(kind), "", second.address("convert"));
        assert_fallback_works(&near);
        assert_logged_once(near, near_message, far, "");
    }
}

/// `allow_from` only applies off loopback.
#[test]
fn reports_missing_allow_from() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("disagree");
    let (second, near, far) = bed
        .router
        .run(|| {
            let second = Relay::start(&["--convert", ANY]);
            let listener_settings = "allow_from = ['192.0.2.1']\n";
            let far =
                Relay::start_with_config(&listener("convert", "10.77.1.2:0", listener_settings), 1);
            let near = near(
                far.address("convert"),
                "pool = 2\n",
                second.address("convert"),
            );
            assert_fallback_works(&near);
            Ok((second, near, far))
        })
        .unwrap();
    let near_message = "its allow_from may not name";
    assert_logged_once(
        near,
        near_message,
        far,
        "client refused: allow_from does not name it: add it there if it may use this client=10.77.1.2",
    );
    drop(second);
}

/// Starts a server that handles each connection with `each`. Returns its address and the number of
/// connections.
fn server(each: impl Fn(TcpStream) + Send + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = listen_as_origin();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Relaxed);
            set_timeouts(&stream);
            each(stream);
        }
    });
    (address, count)
}

/// Starts a server that reads once and sends `answer`.
fn answer_with(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    server(move |mut stream| {
        let answer = answer.clone();
        std::thread::spawn(move || {
            if matches!(stream.read(&mut [0; 1024]), Ok(1..)) {
                let _ = stream.write_all(&answer);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
    })
}

#[test]
fn reports_other_server_at_peer_address() {
    let second = Relay::start(&["--convert", ANY]);
    let version_2 = vec![2, 1, 0x22, 0x63];
    let refused = |code| Answer::refused(code).encode();
    use longhaul_protocol::convert::ErrorCode as E;
    for (answer, near_message) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "it answers in HTTP",
        ),
        (
            b"220 mail.example ESMTP\r\n".to_vec(),
            "its answer is not Convert",
        ),
        (b"\0".to_vec(), "its answer is not Convert"),
        // Echo of the request.
        (
            Request::health_check().encode(),
            "it returns what it receives",
        ),
        (Vec::new(), "closes the connection without an answer"),
        (version_2, "it speaks version 2 of Convert"),
        (
            refused(E::UnsupportedVersion),
            "it does not understand this relay",
        ),
        (
            refused(E::UnsupportedMessage),
            "it does not understand this relay",
        ),
        (refused(E::MissingCookie), "it requires a cookie"),
    ] {
        eprintln!("{near_message}");
        let (address, _) = answer_with(answer);
        let near = near(address, "", second.address("convert"));
        assert_fallback_works(&near);
        let (_, log) = near.stop();
        assert!(
            line(&log, "peer far is down").contains(near_message),
            "{log}"
        );
        assert_eq!(count(&log, "peer far"), 1, "{log}");
    }
}

#[test]
fn reports_peer_that_closes_at_once() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, _) = server(drop);
    let near = near(address, "", second.address("convert"));
    assert_fallback_works(&near);
    let (_, log) = near.stop();
    assert!(
        line(&log, "peer far is down").contains("closes the connection"),
        "{log}"
    );
}

#[test]
fn reports_silent_peer() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, _) = server(std::mem::forget);
    let near = near(address, "", second.address("convert"));
    // Without an answer, the peer or its destination may be at fault; the check that follows
    // decides.
    assert_fallback_works(&near);
    let (_, log) = near.stop();
    assert_eq!(count(&log, "peer far is down"), 1, "{log}");
    assert!(log.contains("has not answered for 1 s"), "{log}");
}

/// The server-side relay works and a destination is silent: the peer stays up.
#[test]
fn silent_destination_does_not_mark_peer_down() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("silent");
    bed.router
        .run(|| {
            let far = Relay::start(&["--convert", ANY, "--connect-timeout", "1s"]);
            let near = near(far.address("convert"), "", far.address("convert"));
            let nobody =
                Destination::Address((longhaul_testnet::relay_testbed::IPV4.unassigned, 80).into());
            assert!(dial("http", near.address("http"), &nobody).is_err());
            let (listener, address) = listen_as_origin();
            let client =
                dial("http", near.address("http"), &Destination::Address(address)).unwrap();
            transfer_both_ways(&client, &accept(&listener), 1);
            let (_, log) = near.stop();
            assert_eq!(count(&log, "peer far"), 0, "{log}");
            Ok(())
        })
        .unwrap();
}

/// Pooled connections are not reopened in a loop, and a peer that is down is checked at growing
/// intervals.
#[test]
fn pool_backs_off_from_refusing_peer() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, connections) = server(drop);
    let near = near(address, "pool = 8\n", second.address("convert"));
    near.wait_for_stderr("peer far is down");
    let (start, workers) = (
        Instant::now(),
        std::thread::available_parallelism().unwrap().get(),
    );
    // Two rounds of each worker's pool, a check for each, and then checks after 1, 2 and 4 s.
    std::thread::sleep(Duration::from_secs(5));
    let (count, most) = (connections.load(Relaxed), workers * (2 * 8 + 2) + 5);
    assert!(
        start.elapsed() < TEST_TIMEOUT && count <= most,
        "{count} connections"
    );
    assert_fallback_works(&near);
}

/// A peer whose settings are corrected is used again without a restart.
#[test]
fn corrected_peer_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("far.toml");
    let write = |more: &str| {
        std::fs::write(
            &file,
            listener("convert", ANY, &format!("name = 'c'\n{more}")),
        )
        .unwrap();
    };
    write("deny_from = ['127.0.0.0/8']\n");
    let mut command = std::process::Command::new(longhaul_testprograms::longhaul());
    command.args(["relay", "--config"]).arg(&file);
    let far = Relay::spawn_with_listeners(command, 1);
    let second = Relay::start(&["--convert", ANY]);
    let near = near(far.address("convert"), "", second.address("convert"));
    assert_fallback_works(&near);
    near.wait_for_stderr("peer far is down");
    write("");
    far.signal(rustix::process::Signal::HUP);
    near.wait_for_stderr("peer far is back");
    drop(second);
    let (listener, address) = listen_as_origin();
    let client = dial(
        "socks5",
        near.address("socks5"),
        &Destination::Address(address),
    )
    .unwrap();
    transfer_both_ways(&client, &accept(&listener), 1);
}

/// Checks count no failure at a peer that works.
#[test]
fn health_check_counts_no_failure() {
    let far = Relay::start(&["--convert", ANY, "--counters", "-"]);
    let mut stream = connect(far.address("convert"));
    stream
        .write_all(&longhaul_protocol::convert::Request::health_check().encode())
        .unwrap();
    assert_eq!(read_array(&mut stream), [1, 1, 0x22, 0x63]);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}
