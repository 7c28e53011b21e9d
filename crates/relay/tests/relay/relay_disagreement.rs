// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two relays whose settings do not fit together: each end says why, once, with the remedy; the peer
//! counts as down, clients go by the fallback, and the peer is asked again more and more rarely.

use longhaul_protocol::{
    convert::{Answer, Request},
    destination::Destination,
};
use longhaul_testnet::relay_process::{
    PATIENCE, Relay, accept, connect, dial, exchange, http_head, http_status, may_use_namespaces,
    origin, patient, read_array,
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

/// An authority, and certificates of all kinds by it.
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

/// `tls` with an authority's file, a certificate as `AUTHORITY/NAME`, and more.
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

/// A relay whose clients go by `far`, and by `second` if they can't. It soon gives up a peer that does not answer.
fn near(far: SocketAddr, peer: &str, second: SocketAddr) -> Relay {
    near_within("1s", far, peer, second)
}

fn near_within(connect_timeout: &str, far: SocketAddr, peer: &str, second: SocketAddr) -> Relay {
    let listeners = listener("http", ANY, "") + &listener("socks5", ANY, "");
    let rest = format!(
        "[limits]\nconnect_timeout = '{connect_timeout}'\n[[route]]\nvia = ['far']\nfallback = [['second']]\n\
         [peer.second]\naddress = '{second}'\n[peer.far]\naddress = '{far}'\n{peer}"
    );
    Relay::configured(&(listeners + &rest), 2)
}

fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

/// The line that has `word`.
fn line<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines()
        .find(|line| line.contains(word))
        .unwrap_or_else(|| panic!("{word}: {text}"))
}

/// Clients of `near` arrive by the fallback, the first one too.
fn go_by_fallback(near: &Relay) {
    let (listener, address) = origin();
    let to = Destination::Address(address);
    for kind in ["http", "socks5", "http"] {
        let client = dial(kind, near.address(kind), &to).unwrap();
        exchange(&client, &accept(&listener), 1);
    }
    get(near, &listener, address);
}

/// A request that is no tunnel.
fn get(near: &Relay, listener: &TcpListener, origin: SocketAddr) {
    let mut client = connect(near.address("http"));
    write!(
        client,
        "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n"
    )
    .unwrap();
    let mut server = accept(listener);
    http_head(&mut server);
    server
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .unwrap();
    assert_eq!(http_status(&http_head(&mut client)), 204);
}

/// What `near` and `far` say: one line each, with these words.
fn say_once(near: Relay, near_says: &str, far: Relay, far_says: &str) {
    near.says("peer far is down");
    if !far_says.is_empty() {
        far.says("client refused");
    }
    let (_, near) = near.stop();
    let said = line(&near, "peer far is down");
    assert!(said.contains(near_says), "{near_says}: {said}");
    assert_eq!(count(&near, "peer far"), 1, "{near}");
    let (_, far) = far.stop();
    if far_says.is_empty() {
        assert_eq!(count(&far, "client refused"), 0, "{far}");
        return;
    }
    let said = line(&far, "client refused");
    assert!(said.contains(far_says), "{far_says}: {said}");
    assert_eq!(count(&far, "client refused"), 1, "{far}");
}

/// Two relays with these settings of `[peer.far]` and of its listener, and the words of each. The far one answers, however
/// busy the machine is.
fn disagree(peer: &str, listens: &str, near_says: &str, far_says: &str) {
    disagree_within("20s", peer, listens, near_says, far_says);
}

fn disagree_within(timeout: &str, peer: &str, listens: &str, near_says: &str, far_says: &str) {
    eprintln!("{near_says} / {far_says}: {peer}{listens}");
    let second = Relay::start(&["--convert", ANY]);
    for pool in ["", "pool = 4\n"] {
        let far = Relay::configured(&listener("convert", ANY, listens), 1);
        let peer = pool.to_owned() + peer;
        let (far_at, second_at) = (far.address("convert"), second.address("convert"));
        let near = near_within(timeout, far_at, &peer, second_at);
        go_by_fallback(&near);
        say_once(near, near_says, far, far_says);
    }
}

#[test]
fn tls_at_one_end_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let (near, far) = (tls(path, "a", "a/near", ""), tls(path, "a", "a/far", ""));
    disagree(
        "",
        &far,
        "it wants TLS: give this peer tls",
        "does not speak TLS",
    );
    disagree(
        &near,
        "",
        "it does not speak TLS: take tls from this peer",
        "it speaks TLS",
    );
}

#[test]
fn a_certificate_that_the_other_end_does_not_accept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    authority(&path.join("b"));
    let (near, far) = (tls(path, "a", "a/near", ""), tls(path, "a", "a/far", ""));
    let a = |certificate| tls(path, "a", certificate, "");
    let cases = [
        // Only one end knows the other's authority, or neither does.
        (
            a("b/near"),
            far.clone(),
            "its ca lacks the authority of this relay's certificate",
            "its certificate is of another authority",
        ),
        (
            near.clone(),
            a("b/far"),
            "its certificate is of another authority",
            "its ca lacks the authority of this relay's certificate",
        ),
        (
            tls(path, "b", "b/near", ""),
            far.clone(),
            "its certificate is of another authority",
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
    for (peer, listens, near_says, far_says) in cases {
        disagree(&peer, &listens, near_says, far_says);
    }
}

#[test]
fn tls_over_udt_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let udt =
        |certificate, more| "transport = 'udt'\n".to_owned() + &tls(path, "a", certificate, more);
    disagree(
        &udt("a/near-expired", ""),
        &udt("a/far", ""),
        "this relay's certificate has expired",
        "its certificate has expired",
    );
    disagree(
        &udt("a/near", ""),
        &udt("a/far", ", allow = ['other']"),
        "allow does not name this relay's certificate",
        "which allow does not name",
    );
}

#[test]
fn udt_at_one_end_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    authority(&path.join("a"));
    let leg = |owner, transport: &str| {
        format!("transport = '{transport}'\n{}", tls(path, "a", owner, ""))
    };
    // Nothing arrives at a port of the other transport: only the near end can know.
    disagree_within(
        "1s",
        &leg("a/near", "tcp"),
        &leg("a/far", "udt"),
        "or the transport",
        "",
    );
    disagree_within("1s", &leg("a/near", "udt"), &leg("a/far", "tcp"), "", "");
}

#[test]
fn a_listener_that_wants_a_header_of_the_proxy_protocol() {
    disagree(
        "",
        "accept_proxy = true\n",
        "closes the connection",
        "accept_proxy",
    );
}

#[test]
fn a_listener_that_denies_the_other_relay() {
    let denied = "deny_from = ['127.0.0.0/8']\n";
    disagree(
        "",
        denied,
        "its allow_from may not name",
        "deny_from names it",
    );
}

#[test]
fn a_listener_of_another_kind() {
    let second = Relay::start(&["--convert", ANY]);
    for (kind, near_says) in [
        ("http", "it answers in HTTP: correct the address"),
        ("socks5", "no Convert listener"),
    ] {
        let far = Relay::configured(&listener(kind, ANY, ""), 1);
        let near = near(far.address(kind), "", second.address("convert"));
        go_by_fallback(&near);
        say_once(near, near_says, far, "");
    }
}

/// `allow_from` holds off loopback only.
#[test]
fn an_allow_from_that_lacks_the_other_relay() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("disagree");
    let (second, near, far) = bed
        .router
        .run(|| {
            let second = Relay::start(&["--convert", ANY]);
            let listens = "allow_from = ['192.0.2.1']\n";
            let far = Relay::configured(&listener("convert", "10.77.1.2:0", listens), 1);
            let near = near(
                far.address("convert"),
                "pool = 2\n",
                second.address("convert"),
            );
            go_by_fallback(&near);
            Ok((second, near, far))
        })
        .unwrap();
    let near_says = "its allow_from may not name";
    say_once(
        near,
        near_says,
        far,
        "client refused: allow_from does not name it client=10.77.1.2",
    );
    drop(second);
}

/// A server that does the same with each connection, and how many there were.
fn server(each: impl Fn(TcpStream) + Send + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = origin();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Relaxed);
            patient(&stream);
            each(stream);
        }
    });
    (address, count)
}

/// Reads what comes first, and answers it.
fn answering(answer: Vec<u8>) -> (SocketAddr, Arc<AtomicUsize>) {
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
fn something_else_at_the_peer_s_address() {
    let second = Relay::start(&["--convert", ANY]);
    let version_2 = vec![2, 1, 0x22, 0x63];
    let refused = |code| Answer::refused(code).encode();
    use longhaul_protocol::convert::ErrorCode as E;
    for (answer, near_says) in [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "it answers in HTTP",
        ),
        (
            b"220 mail.example ESMTP\r\n".to_vec(),
            "its answer is not Convert",
        ),
        (b"\0".to_vec(), "its answer is not Convert"),
        // An echo.
        (Request::check().encode(), "it returns what it is sent"),
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
        (refused(E::MissingCookie), "it wants a cookie"),
    ] {
        eprintln!("{near_says}");
        let (address, _) = answering(answer);
        let near = near(address, "", second.address("convert"));
        go_by_fallback(&near);
        let (_, said) = near.stop();
        assert!(
            line(&said, "peer far is down").contains(near_says),
            "{said}"
        );
        assert_eq!(count(&said, "peer far"), 1, "{said}");
    }
}

#[test]
fn a_peer_that_closes_at_once() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, _) = server(drop);
    let near = near(address, "", second.address("convert"));
    go_by_fallback(&near);
    let (_, said) = near.stop();
    assert!(
        line(&said, "peer far is down").contains("closes the connection"),
        "{said}"
    );
}

#[test]
fn a_silent_peer() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, _) = server(std::mem::forget);
    let near = near(address, "", second.address("convert"));
    // A destination may be as silent as its relay: only the check that follows can tell.
    go_by_fallback(&near);
    let (_, said) = near.stop();
    assert_eq!(count(&said, "peer far is down"), 1, "{said}");
    assert!(said.contains("has not answered for 1 s"), "{said}");
}

/// A far relay that is well, and a destination that says nothing: the peer stays up.
#[test]
fn a_silent_destination_is_not_the_peer_s_fault() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("silent");
    bed.router
        .run(|| {
            let far = Relay::start(&["--convert", ANY, "--connect-timeout", "1s"]);
            let near = near(far.address("convert"), "", far.address("convert"));
            let nobody =
                Destination::Address((longhaul_testnet::relay_testbed::IPV4.nobody, 80).into());
            assert!(dial("http", near.address("http"), &nobody).is_err());
            let (listener, address) = origin();
            let client =
                dial("http", near.address("http"), &Destination::Address(address)).unwrap();
            exchange(&client, &accept(&listener), 1);
            let (_, said) = near.stop();
            assert_eq!(count(&said, "peer far"), 0, "{said}");
            Ok(())
        })
        .unwrap();
}

/// Ready connections are not opened again and again, and a peer that is down is asked more and more
/// rarely.
#[test]
fn a_pool_does_not_storm_a_peer_that_turns_it_away() {
    let second = Relay::start(&["--convert", ANY]);
    let (address, connections) = server(drop);
    let near = near(address, "pool = 8\n", second.address("convert"));
    near.says("peer far is down");
    let (start, workers) = (
        Instant::now(),
        std::thread::available_parallelism().unwrap().get(),
    );
    // Two rounds of each worker's pool, a check for each, and then checks after 1, 2, 4 s.
    std::thread::sleep(Duration::from_secs(5));
    let (count, most) = (connections.load(Relaxed), workers * (2 * 8 + 2) + 5);
    assert!(
        start.elapsed() < PATIENCE && count <= most,
        "{count} connections"
    );
    go_by_fallback(&near);
}

/// A peer that has stopped to disagree is back without a restart.
#[test]
fn a_peer_that_was_set_right_is_back() {
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
    let mut command = std::process::Command::new(longhaul_testbed::longhaul());
    command.args(["relay", "--config"]).arg(&file);
    let far = Relay::spawn_waiting(command, 1);
    let second = Relay::start(&["--convert", ANY]);
    let near = near(far.address("convert"), "", second.address("convert"));
    go_by_fallback(&near);
    near.says("peer far is down");
    write("");
    far.signal(rustix::process::Signal::HUP);
    near.says("peer far is back");
    drop(second);
    let (listener, address) = origin();
    let client = dial(
        "socks5",
        near.address("socks5"),
        &Destination::Address(address),
    )
    .unwrap();
    exchange(&client, &accept(&listener), 1);
}

/// Checks leave no failure behind at the peer that they find well.
#[test]
fn a_check_is_no_failure() {
    let far = Relay::start(&["--convert", ANY, "--counters", "-"]);
    let mut stream = connect(far.address("convert"));
    stream
        .write_all(&longhaul_protocol::convert::Request::check().encode())
        .unwrap();
    assert_eq!(read_array(&mut stream), [1, 1, 0x22, 0x63]);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}
