// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/api/v1/connections`, and the limiting factors of real sockets.

use crate::{relay_admin::ANY, relay_admin::endpoint::Endpoint, relay_admin::forwarding};
use longhaul_protocol::destination::Destination;
use longhaul_testnet::relay_process::{
    Relay, accept, connect, dial, listen_as_origin, transfer_both_ways,
};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// Bytes: more than sockets and pipes hold.
const LARGE: usize = 64 << 20;
const CONNECTIONS: &str = "/api/v1/connections";

/// Waits until the only connection satisfies `wanted`, and returns it.
fn connection(endpoint: Endpoint, wanted: impl Fn(&Value) -> bool) -> Value {
    endpoint.until(CONNECTIONS, |list| {
        let connection = &list["connections"][0];
        (connection.is_object() && wanted(connection)).then(|| connection.clone())
    })
}

/// Writes to `stream` until it fails.
fn write_forever(mut stream: TcpStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || while stream.write_all(&[7; 1 << 16]).is_ok() {})
}

/// Reads and discards to the end.
fn discard_all(mut stream: TcpStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })
}

#[test]
fn describes_connection() {
    let (listener, address) = listen_as_origin();
    let relay = Relay::start(&["--socks5", ANY, "--admin", ANY]);
    let endpoint = Endpoint::of(&relay);
    let to = Destination::Address(address);
    let mut client = dial("socks5", relay.address("socks5"), &to).unwrap();
    let mut server = accept(&listener);
    client.write_all(&[1; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[2; 5000]).unwrap();
    client.read_exact(&mut [0; 5000]).unwrap();

    let found = connection(endpoint, |c| c["bytes_down"] == 5000);
    assert_eq!(found["bytes_up"], 1000);
    assert_eq!(found["client"], client.local_addr().unwrap().to_string());
    assert_eq!(found["destination"], address.to_string());
    assert_eq!(found["next_hop"], address.to_string());
    assert_eq!(found["listener"], relay.address("socks5").to_string());
    assert_eq!(found["kind"], "socks5");
    assert_eq!(found["mode"], "auto");
    assert!(found["peer"].is_null(), "{found}");
    assert!(found["age_s"].as_f64().unwrap() > 0.0);
    // The SOCKS5 replies are sent on the downstream leg too: 2 and 10 bytes.
    assert_eq!(found["downstream"]["tcp"]["sent_bytes"], 5012);
    assert_eq!(
        found["upstream"]["tcp"]["acked_bytes"], 1001,
        "SYN included"
    );

    drop((client, server));
    endpoint.until(CONNECTIONS, |list| (list["total"] == 0).then_some(()));
}

/// A striped leg is one leg with several streams at both ends, while it is open and afterwards.
#[test]
fn striped_leg_lists_its_streams() {
    const BYTES: u64 = 8 << 20;
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY, "--admin", ANY]);
    let peer = far.address("convert").to_string();
    let near = forwarding(address, &["--peer", &peer, "--streams", "4"]);
    let mut client = connect(near.address("forward"));
    let mut server = accept(&listener);
    let writer = write_bytes(client.try_clone().unwrap(), BYTES);
    server.read_exact(&mut vec![0; BYTES as usize]).unwrap();
    writer.join().unwrap();
    server.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();

    for (relay, leg, counted) in [
        (&near, "upstream", "sent_bytes"),
        (&far, "downstream", "received_bytes"),
    ] {
        let found = connection(Endpoint::of(relay), |c| {
            c[leg]["streams"].as_array().is_some_and(|s| s.len() == 4)
        });
        let streams = found[leg]["streams"].as_array().unwrap();
        assert_eq!(streams[0]["mss_bytes"], found[leg]["tcp"]["mss_bytes"]);
        let carried = streams.iter().map(|s| s[counted].as_u64().unwrap());
        assert!(carried.sum::<u64>() > BYTES, "{leg}: {streams:?}");
    }
    let single = connection(Endpoint::of(&near), |c| c["downstream"].is_object());
    assert!(single["downstream"].get("streams").is_none(), "{single}");
    let status = Endpoint::of(&near).json("/api/v1/status");
    for leg in status["legs"].as_array().unwrap() {
        let open = leg["limited_by"].as_object().unwrap().values();
        assert_eq!(open.map(|n| n.as_u64().unwrap()).sum::<u64>(), 1, "{leg}");
        let streams = if leg["leg"] == "upstream" { 4 } else { 1 };
        assert_eq!(leg["streams_open"], streams, "{leg}");
    }

    drop((client, server));
    let sent = Endpoint::of(&near).until("/api/v1/status", |status| {
        let legs = status["legs"].as_array().unwrap();
        let leg = legs.iter().find(|leg| leg["leg"] == "upstream").unwrap();
        (leg["streams_open"] == 0).then(|| leg["sent_bytes"].as_u64().unwrap())
    });
    assert!(sent > BYTES, "{sent}");
}

fn write_bytes(mut stream: TcpStream, bytes: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || stream.write_all(&vec![7; bytes as usize]).unwrap())
}

#[test]
fn idle_connection_is_application_limited() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let _client = connect(relay.address("forward"));
    let _server = accept(&listener);
    let found = connection(Endpoint::of(&relay), |c| {
        !c["upstream"]["limited_by"].is_null()
    });
    assert_eq!(found["upstream"]["limited_by"], "application");
    assert_eq!(found["downstream"]["limited_by"], "application");
    assert_eq!(found["downstream"]["reading_paused"], false);
}

#[test]
fn stalled_reader_is_window_limited() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let client = connect(relay.address("forward"));
    let mut server = accept(&listener);
    let writer = std::thread::spawn(move || {
        server.write_all(&vec![7; LARGE]).unwrap();
        server
    });
    let found = connection(endpoint, |c| {
        c["downstream"]["limited_by"] == "receive_window" && c["upstream"]["reading_paused"] == true
    });
    let tcp = |key: &str| found["downstream"]["tcp"][key].as_u64().unwrap();
    assert!(tcp("notsent_bytes") > tcp("send_window_bytes"), "{found}");
    assert!(
        found["downstream"]["buffered_bytes"].as_u64().unwrap() > 100_000,
        "{found}"
    );
    assert_eq!(
        found["upstream"]["reading_pauses"].as_u64().map(|n| n > 0),
        Some(true)
    );
    assert_eq!(found["downstream"]["reading_paused"], false, "{found}");
    let (near, far) = endpoint.until("/api/v1/status", |status| {
        let legs = status["legs"].as_array().unwrap();
        let of = |side: &str| legs.iter().find(|leg| leg["leg"] == side).cloned();
        let (near, far) = (of("downstream")?, of("upstream")?);
        let limited = near["receive_window_limited_us"].as_u64()? > 1_000_000;
        limited.then_some((near, far))
    });
    assert_eq!(near["limited_by"]["receive_window"], 1, "{near}");
    assert_eq!(far["reading_paused"], 1, "{far}");

    let reader = discard_all(client);
    // Once the client has read everything, there is nothing more to send.
    connection(endpoint, |c| {
        c["bytes_down"] == LARGE && c["downstream"]["limited_by"] == "application"
    });
    drop((writer.join().unwrap(), relay));
    reader.join().unwrap();
}

#[test]
fn detects_send_buffer_limit() {
    let (listener, address) = listen_as_origin();
    let text = format!(
        "[[listener]]\nkind = 'forward'\naddress = '{ANY}'\ndestination = '{address}'\n\
         profile = 'narrow'\n[profile.narrow]\nsend_buffer = '4KiB'\n[admin]\naddress = '{ANY}'"
    );
    let relay = Relay::start_with_config(&text, 2);
    let reader = discard_all(connect(relay.address("forward")));
    let writer = write_forever(accept(&listener));
    let found = connection(Endpoint::of(&relay), |c| {
        c["downstream"]["limited_by"] == "send_buffer"
    });
    assert!(
        found["bytes_down_per_s"].as_f64().unwrap() > 0.0,
        "it moves all the same"
    );
    drop(relay);
    writer.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn limits_and_sorts_list() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let endpoint = Endpoint::of(&relay);
    let mut open = Vec::new();
    for len in [10, 3000, 200] {
        let mut client = connect(relay.address("forward"));
        let mut server = accept(&listener);
        client.write_all(&vec![0; len]).unwrap();
        server.read_exact(&mut vec![0; len]).unwrap();
        open.push((client, server));
    }
    let listed = |query: &str| {
        endpoint.until(&format!("{CONNECTIONS}?{query}"), |list| {
            let all = list["connections"].as_array()?;
            let bytes: Vec<_> = all
                .iter()
                .map(|c| c["bytes_up"].as_u64().unwrap())
                .collect();
            (list["total"] == 3).then_some(bytes)
        })
    };
    endpoint.until(CONNECTIONS, |list| {
        let all = list["connections"].as_array()?;
        let up = |c: &Value| c["bytes_up"].as_u64().unwrap();
        (all.iter().map(up).sum::<u64>() == 3210).then_some(())
    });
    assert_eq!(listed("sort=bytes"), [3000, 200, 10]);
    assert_eq!(listed("sort=bytes&limit=1"), [3000]);
    assert_eq!(listed("sort=age"), [10, 3000, 200]);
    for query in ["limit=0", "limit=1001", "sort=colour", "offset=3"] {
        assert_eq!(
            endpoint.get(&format!("{CONNECTIONS}?{query}")).status,
            400,
            "{query}"
        );
    }
}

#[test]
fn keeps_throughput_history() {
    let (listener, address) = listen_as_origin();
    let relay = forwarding(address, &[]);
    let client = connect(relay.address("forward"));
    transfer_both_ways(&client, &accept(&listener), 8);
    let sum = Endpoint::of(&relay).until("/api/v1/throughput", |found| {
        let points = found["points"].as_array().unwrap();
        let down = |p: &Value| p["bytes_down_per_s"].as_f64().unwrap();
        let sum: f64 = points.iter().map(down).sum();
        (sum > 7e6).then_some(sum)
    });
    // A point is an average over a second, which may end late.
    assert!(sum < 1.2 * f64::from(8 << 20), "{sum}");
}
