// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caps on connections of other programs over loopback.

use longhaul_congestion::sockets::window_cap::Caps;
use longhaul_linux::{
    netns::Netns,
    sock_diag::{Connection, SockDiag},
    socket::{Options, outgoing},
};
use longhaul_testnet::namespace::Namespace;
use longhaul_testprograms::wait::wait_until;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Runs `work` in a network namespace of its own, or reports why it is skipped.
fn alone(name: &str, work: impl FnOnce(&Caps) + Send) {
    let caps = match Caps::load() {
        Ok(caps) => caps,
        Err(error) => {
            let _ = longhaul_testprograms::skip::require(false, error);
            return;
        }
    };
    let inside = || {
        work(&caps);
        Ok(())
    };
    Namespace::new(&format!("decp-{name}")).run(inside).unwrap();
}

/// A bulk sender and its reader, on their own threads from [`Transfer::begin`] until it is dropped.
struct Transfer {
    port: u16,
    ends: Option<(TcpStream, TcpStream)>,
    stop: Arc<AtomicBool>,
}

impl Transfer {
    fn connect(congestion_control: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let options = Options {
            congestion_control: Some(congestion_control.into()),
            // Many segments a write: otherwise the window would rarely limit the sender, and an unused
            // window does not grow (tcp_is_cwnd_limited).
            mss: Some(536),
            ..Options::default()
        };
        let socket: socket2::Socket = outgoing(to, None, &options).unwrap().into();
        socket.set_nonblocking(false).unwrap();
        socket.connect(&to.into()).unwrap();
        let client: TcpStream = socket.into();
        let (server, _) = listener.accept().unwrap();
        Self {
            port: client.local_addr().unwrap().port(),
            ends: Some((client, server)),
            stop: Arc::default(),
        }
    }

    /// Starts the transfer. A cap applies when the window limits the sender. Over loopback only a small one
    /// does, so orders are given before this: the initial window limits the first write already.
    fn begin(&mut self) {
        let (mut client, mut server) = self.ends.take().unwrap();
        let ended = Arc::clone(&self.stop);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) && client.write_all(&[0; 65536]).is_ok() {}
        });
        std::thread::spawn(
            move || {
                while server.read(&mut [0; 65536]).is_ok_and(|count| count > 0) {}
            },
        );
    }

    fn connection(&self, diag: &mut SockDiag) -> Connection {
        let all = diag.connections().unwrap();
        all.into_iter()
            .find(|connection| connection.local.port() == self.port)
            .unwrap()
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Walks until the condition is true.
fn until(caps: &Caps, mut condition: impl FnMut() -> bool) {
    wait_until(|| {
        caps.carry_out().unwrap();
        condition()
    });
}

#[test]
fn applies_raises_and_lifts_a_cap_and_restores_ssthresh() {
    for congestion_control in ["reno", "cubic", "bbr"] {
        alone(&format!("cap-{congestion_control}"), |caps| {
            let mut transfer = Transfer::connect(congestion_control);
            let mut diag = SockDiag::open(&Netns::current().unwrap()).unwrap();
            let before = transfer.connection(&mut diag).sender;
            assert!(before.cwnd_segments >= 10);

            let cookie = before.cookie;
            caps.order(cookie, 5, false).unwrap();
            caps.carry_out().unwrap();
            transfer.begin();
            let mut connection = || transfer.connection(&mut diag);
            until(caps, || connection().sender.cwnd_segments <= 5);
            assert_eq!(caps.cap_in_force(cookie), Some(5));
            for _ in 0..50 {
                caps.carry_out().unwrap();
                assert!(connection().sender.cwnd_segments <= 5);
            }

            caps.order(cookie, 7, false).unwrap();
            until(caps, || caps.cap_in_force(cookie) == Some(7));
            until(caps, || connection().sender.cwnd_segments == 7);

            caps.order(cookie, 0, false).unwrap();
            until(caps, || caps.cap_in_force(cookie) == Some(0));
            let after = connection();
            assert_eq!(after.congestion, congestion_control);
            if congestion_control != "bbr" {
                let segments = after.ssthresh_bytes.unwrap() / u64::from(after.sender.mss_bytes);
                assert!(segments <= 7, "no slow start without an end: {segments}");
            }
            until(caps, || connection().sender.cwnd_segments > 7);
        });
    }
}

#[test]
fn ignores_connections_without_an_order() {
    alone("alone", |caps| {
        let [mut capped, mut other] = ["reno", "reno"].map(Transfer::connect);
        let mut diag = SockDiag::open(&Netns::current().unwrap()).unwrap();
        let cookie = capped.connection(&mut diag).sender.cookie;
        caps.order(cookie, 4, false).unwrap();
        caps.carry_out().unwrap();
        capped.begin();
        other.begin();
        until(caps, || {
            capped.connection(&mut diag).sender.cwnd_segments <= 4
        });
        assert!(other.connection(&mut diag).sender.cwnd_segments >= 10);
        let unknown = other.connection(&mut diag).sender.cookie;
        assert_eq!(
            (caps.cap_in_force(unknown), caps.orders_by_cookie()),
            (None, vec![cookie])
        );
    });
}

#[test]
fn reports_the_cgroup_of_a_connection() {
    alone("cgroup", |_| {
        let transfer = Transfer::connect("reno");
        let mut diag = SockDiag::open(&Netns::current().unwrap()).unwrap();
        assert_ne!(transfer.connection(&mut diag).sender.cgroup, 0);
    });
}
