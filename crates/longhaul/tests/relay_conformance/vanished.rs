// SPDX-License-Identifier: MIT OR Apache-2.0
//! A destination that falls silent in the middle: after the leg's user time-out the client hears of
//! it as of a RST.

use crate::{
    ends::{assert_reset_noticed, warm},
    relay_process::{self, Relay, may_use_namespaces},
    testbed::{Testbed, feed},
    way::{ORIGIN, accept},
};
use host::process::inside;
use std::{
    io::Write,
    net::{SocketAddr, TcpListener},
    process::Command,
};

const DOOR: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 1, 2)),
    8000,
);

#[test]
fn a_destination_that_vanishes_is_a_reset_at_the_client() {
    if !may_use_namespaces() {
        return;
    }
    let testbed = Testbed::new();
    let _relay = relay(&testbed);
    let origin = testbed.server.run(|| TcpListener::bind(ORIGIN)).unwrap();
    let dial = || Ok(relay_process::connect(DOOR));
    let mut client = testbed.client.run(dial).unwrap();
    let mut server = accept(&origin);
    warm(&mut client, &mut server);
    feed(
        &testbed.server,
        "ip",
        &["-batch", "-"],
        "link set eth0 down",
    );
    client.write_all(b"anyone?").unwrap();
    assert_reset_noticed(&client);
}

fn relay(testbed: &Testbed) -> Relay {
    let mut profile = tempfile::NamedTempFile::new().unwrap();
    writeln!(profile, "[profile.far]\nuser_timeout = '1s'").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["relay", "--config"]).arg(profile.path());
    let forward = format!("{DOOR}={ORIGIN}");
    command.args(["--forward", &forward, "--allow-from", "10.77.1.0/24"]);
    inside(&mut command, &testbed.relay);
    Relay::spawn(command)
}
