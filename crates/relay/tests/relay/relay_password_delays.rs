// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong passwords: the delay grows with each attempt, accepted clients are not delayed by others,
//! and one line is logged.

use crate::relay_admin::endpoint::Endpoint;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, listen_as_origin, parse_http_status, read_array, read_http_head,
    set_timeouts,
};
use socket2::{Domain, Socket, Type};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

const ANY: &str = "127.0.0.1:0";

/// `me:secret`, `you:secret` and `me:wrong` as Basic credentials.
const ME: &str = "bWU6c2VjcmV0";
const YOU: &str = "eW91OnNlY3JldA==";
const ME_WRONG: &str = "bWU6d3Jvbmc=";

/// A relay with two users, and an origin that answers every request.
struct Setup {
    relay: Relay,
    origin: SocketAddr,
    users: tempfile::NamedTempFile,
}

fn setup() -> Setup {
    setup_with(&[])
}

fn setup_with(flags: &[&str]) -> Setup {
    let users = tempfile::NamedTempFile::new().unwrap();
    fs::write(&users, "me:secret\nyou:secret\n").unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o600)).unwrap();
    let file = users.path().to_str().unwrap();
    let listeners = ["--http", ANY, "--socks5", ANY, "--users", file];
    let relay = Relay::start(&[&listeners, flags].concat());
    let (listener, origin) = listen_as_origin();
    std::thread::spawn(move || answer_all(&listener));
    Setup {
        relay,
        origin,
        users,
    }
}

fn answer_all(listener: &TcpListener) {
    loop {
        let mut server = accept(listener);
        std::thread::spawn(move || {
            while server.peek(&mut [0]).is_ok_and(|read| read > 0) {
                read_http_head(&mut server);
                let _ = server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            }
        });
    }
}

impl Setup {
    /// Returns the status that this client gets with these credentials.
    fn ask(&self, client: &mut TcpStream, credentials: &str) -> u16 {
        let origin = self.origin;
        write!(
            client,
            "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
        )
        .unwrap();
        let head = read_http_head(client);
        let body = head.to_ascii_lowercase();
        let length = body.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next());
        let length = length.map_or(0, |length| length.parse().unwrap());
        client.read_exact(&mut vec![0; length]).unwrap();
        parse_http_status(&head)
    }

    fn socks5(&self, password: &[u8]) -> [u8; 2] {
        read_array(&mut self.send_socks5(b"me", password))
    }

    /// Sends a SOCKS5 login, whose reply the caller reads.
    fn send_socks5(&self, user: &[u8], password: &[u8]) -> TcpStream {
        let mut client = connect(self.relay.address("socks5"));
        client.write_all(&[5, 1, 2]).unwrap();
        assert_eq!(read_array(&mut client), [5, 2]);
        let [user_len, password_len] = [user, password].map(|field| field.len() as u8);
        let message = [&[1, user_len], user, &[password_len], password].concat();
        client.write_all(&message).unwrap();
        client
    }

    /// Sends a request with these credentials on a connection of its own, whose response the caller reads.
    fn send(&self, credentials: &str) -> TcpStream {
        let mut client = http(self);
        let head = "GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\n";
        write!(
            client,
            "{head}Proxy-Authorization: Basic {credentials}\r\n\r\n"
        )
        .unwrap();
        client
    }

    /// Fills the queue of user `me` over HTTP: its further passwords would have to wait for too long.
    fn fill_http_queue(&self) -> Vec<TcpStream> {
        (0..6).for_each(|_| assert_eq!(self.ask(&mut http(self), ME_WRONG), 407));
        let send = || (0..8).map(|_| self.send(ME_WRONG));
        let mut clients: Vec<_> = send().collect();
        // The workers may check the last one first. It waits for its turn then, and the queue is empty after it.
        while self.ask(&mut http(self), ME_WRONG) != 429 {
            clients.extend(send());
        }
        clients
    }

    /// Replaces the users and waits until the relay has them.
    fn reload(&self, users: &str) {
        fs::write(&self.users, users).unwrap();
        self.relay.signal(rustix::process::Signal::HUP);
        self.relay.wait_for_stderr("configuration reloaded");
    }

    /// Stops the relay and returns its log lines about wrong passwords.
    fn log_lines(self) -> Vec<String> {
        let (_, log) = self.relay.stop();
        let lines = log.lines().filter(|line| line.contains("password"));
        lines.map(str::to_owned).collect()
    }
}

fn http(setup: &Setup) -> TcpStream {
    connect(setup.relay.address("http"))
}

/// Returns the sum of the delays before `attempts` wrong passwords are checked. The delays are 0,
/// 100 ms, 200 ms …
fn delay_sum(attempts: u32) -> Duration {
    (0..attempts.saturating_sub(1))
        .map(|n| Duration::from_millis(100 << n))
        .sum()
}

#[test]
fn delay_applies_to_all_connections_of_address() {
    let setup = setup();
    let began = Instant::now();
    for attempt in 0..5 {
        assert_eq!(setup.socks5(b"wrong"), [1, 1], "{attempt}");
    }
    assert!(began.elapsed() >= delay_sum(5), "{:?}", began.elapsed());
    // A correct password has to wait as well, or the fast reply would reveal it.
    let began = Instant::now();
    assert_eq!(setup.socks5(b"secret"), [1, 0]);
    assert!(began.elapsed() >= Duration::from_millis(800));
    // The correct password ends the series of wrong ones.
    assert_eq!(setup.socks5(b"secret"), [1, 0]);
    let log = setup.log_lines();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("127.0.0.1"), "{log:?}");
}

#[test]
fn login_as_other_user_does_not_reset_delay() {
    let setup = setup();
    let mut client = http(&setup);
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(setup.ask(&mut client, ME_WRONG), 407);
        assert_eq!(setup.ask(&mut client, YOU), 204);
    }
    assert!(began.elapsed() >= delay_sum(5), "{:?}", began.elapsed());
    assert_eq!(setup.log_lines().len(), 1);
}

#[test]
fn authenticated_connection_is_not_delayed() {
    let setup = setup();
    let mut known = http(&setup);
    assert_eq!(setup.ask(&mut known, ME), 204);
    let mut other = http(&setup);
    for _ in 0..7 {
        assert_eq!(setup.ask(&mut other, ME_WRONG), 407);
    }
    // The next attempt from this address waits for 6.4 s.
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(setup.ask(&mut known, ME), 204);
    }
    assert!(
        began.elapsed() < Duration::from_millis(6400),
        "{:?}",
        began.elapsed()
    );
}

/// The relay does not check these passwords, so its response does not say that they are wrong.
#[test]
fn unchecked_passwords_get_429() {
    let setup = setup();
    (0..6).for_each(|_| assert_eq!(setup.ask(&mut http(&setup), ME_WRONG), 407));
    // The first of these waits for 3.2 s, the next for 6.4 s, and others would have to wait longer.
    let clients: Vec<_> = (0..8).map(|_| setup.send(ME_WRONG)).collect();
    let heads: Vec<_> = clients
        .into_iter()
        .map(|mut client| read_http_head(&mut client))
        .collect();
    let unchecked = heads.iter().filter(|head| parse_http_status(head) == 429);
    let unchecked: Vec<_> = unchecked.collect();
    assert!(!unchecked.is_empty(), "{heads:?}");
    assert!(unchecked.iter().all(|head| head.contains("retry-after:")));
}

#[test]
fn unchecked_socks5_passwords_get_no_reply() {
    let setup = setup();
    (0..6).for_each(|_| assert_eq!(setup.socks5(b"wrong"), [1, 1]));
    let clients: Vec<_> = (0..8).map(|_| setup.send_socks5(b"me", b"wrong")).collect();
    let answers: Vec<_> = clients
        .into_iter()
        .map(|mut client| client.read_exact(&mut [0; 2]).is_ok())
        .collect();
    assert!(
        answers.contains(&true),
        "no password was checked: {answers:?}"
    );
    assert!(
        answers.contains(&false),
        "every password was checked: {answers:?}"
    );
}

#[test]
fn other_addresses_are_not_delayed() {
    let setup = setup();
    let mut client = http(&setup);
    for _ in 0..7 {
        assert_eq!(setup.ask(&mut client, ME_WRONG), 407);
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = ("127.0.0.9".parse::<IpAddr>().unwrap(), 0).into();
    socket.bind(&source.into()).unwrap();
    socket.connect(&setup.relay.address("http").into()).unwrap();
    let mut other = TcpStream::from(socket);
    set_timeouts(&other);
    let began = Instant::now();
    assert_eq!(setup.ask(&mut other, ME), 204);
    assert!(
        began.elapsed() < Duration::from_millis(6400),
        "{:?}",
        began.elapsed()
    );
}

/// One client with a stale password must not lock out the other users of its address.
#[test]
fn stale_password_does_not_delay_other_users_of_address() {
    let setup = setup();
    let _stale = setup.fill_http_queue();
    for request in 0..40 {
        assert_eq!(setup.ask(&mut http(&setup), YOU), 204, "{request}");
    }
    (0..5).for_each(|_| assert_eq!(setup.socks5(b"wrong"), [1, 1]));
    let _stale: Vec<_> = (0..8).map(|_| setup.send_socks5(b"me", b"wrong")).collect();
    for login in 0..40 {
        let reply: [u8; 2] = read_array(&mut setup.send_socks5(b"you", b"secret"));
        assert_eq!(reply, [1, 0], "{login}");
    }
}

/// A user who has logged in from this address passes, whatever another program of theirs sends.
#[test]
fn stale_password_does_not_delay_login_that_was_accepted_lately() {
    let setup = setup();
    assert_eq!(setup.ask(&mut http(&setup), ME), 204);
    let _stale = setup.fill_http_queue();
    for request in 0..40 {
        assert_eq!(setup.ask(&mut http(&setup), ME), 204, "{request}");
    }
}

/// Repeated stale passwords fill their own queue only. The new password is checked after one delay.
#[test]
fn stale_password_does_not_lock_out_new_password_of_same_user() {
    let setup = setup();
    let _stale = setup.fill_http_queue();
    for request in 0..10 {
        assert_eq!(setup.ask(&mut http(&setup), ME), 204, "{request}");
    }
}

#[test]
fn reload_of_users_ends_old_passwords_and_penalties() {
    let setup = setup();
    assert_eq!(setup.ask(&mut http(&setup), ME), 204);
    // `me:wrong` becomes right, and `me:secret`, which was accepted, wrong.
    let _stale = setup.fill_http_queue();
    setup.reload("me:wrong\nyou:secret\n");
    assert_eq!(setup.ask(&mut http(&setup), ME), 407);
    for request in 0..10 {
        assert_eq!(setup.ask(&mut http(&setup), ME_WRONG), 204, "{request}");
    }
}

/// Names that differ in case are different users, but an address gets no new guesses by changing names.
#[test]
fn many_user_names_do_not_evade_delay() {
    let setup = setup();
    let spell = |n: usize| {
        let letter = |(i, c): (usize, char)| match n >> i & 1 {
            1 => c.to_ascii_uppercase(),
            _ => c,
        };
        "operator"
            .chars()
            .enumerate()
            .map(letter)
            .collect::<String>()
    };
    let began = Instant::now();
    // Eight names have a queue of their own. The others wait for each other.
    for name in (0..8 + 5).map(spell) {
        let reply: [u8; 2] = read_array(&mut setup.send_socks5(name.as_bytes(), b"guess"));
        assert_eq!(reply, [1, 1], "{name}");
    }
    assert!(began.elapsed() >= delay_sum(5), "{:?}", began.elapsed());
}

/// The operator learns whose passwords are wrong and whose are not checked, in one line each.
#[test]
fn logs_and_counts_delayed_and_unchecked_passwords() {
    let setup = setup_with(&["--admin", ANY]);
    drop(setup.fill_http_queue());
    let metrics = Endpoint::of(&setup.relay).get("/metrics").body;
    let count = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        let mut lines = metrics.lines().filter(|line| line.contains(&label));
        let http = lines.find(|line| line.contains("kind=\"http\"")).unwrap();
        http.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    assert!(count("wrong") >= 6 && count("delayed") >= 5, "{metrics}");
    assert!(count("unchecked") >= 1, "{metrics}");
    let log = setup.log_lines();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log.iter().all(|line| line.contains("user=me")), "{log:?}");
    assert!(log[1].contains("password_delay"), "{log:?}");
}

#[test]
fn password_delay_of_zero_checks_at_once() {
    let setup = setup_with(&["--password-delay", "0s"]);
    for attempt in 0..100 {
        assert_eq!(setup.socks5(b"wrong"), [1, 1], "{attempt}");
    }
    assert_eq!(setup.socks5(b"secret"), [1, 0]);
}
