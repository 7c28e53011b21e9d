// SPDX-License-Identifier: MIT OR Apache-2.0
//! A destination that falls silent in the middle: after the leg's user time-out the client hears of
//! it as of a RST.

use crate::{
    relay_conformance::ends::{assert_reset_noticed, warm},
    relay_conformance::way::{Goal, accept, testbed},
};
use longhaul_testnet::{
    relay_process::{Relay, may_use_namespaces, patient},
    relay_testbed::{IPV4, Testbed, ip},
};
use std::{io::Write, net::SocketAddr};

#[test]
fn a_destination_that_vanishes_is_a_reset_at_the_client() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed();
    let _relay = relay(&bed);
    let origin = bed.listen(Goal::Origin.address(&IPV4));
    let mut client = bed.connect(door()).unwrap();
    patient(&client);
    let mut server = accept(&origin);
    warm(&mut client, &mut server);
    ip(&bed.server, "link set eth0 down");
    client.write_all(b"anyone?").unwrap();
    assert_reset_noticed(&client);
}

fn door() -> SocketAddr {
    (IPV4.near, 8000).into()
}

fn relay(bed: &Testbed) -> Relay {
    let mut profile = tempfile::NamedTempFile::new().unwrap();
    writeln!(profile, "[profile.far]\nuser_timeout = '1s'").unwrap();
    let forward = format!("{}={}", door(), Goal::Origin.address(&IPV4));
    bed.relay(&[
        "--config",
        profile.path().to_str().unwrap(),
        "--forward",
        &forward,
        "--allow-from",
        "10.77.1.0/24",
    ])
}
