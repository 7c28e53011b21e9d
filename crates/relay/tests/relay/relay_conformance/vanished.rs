// SPDX-License-Identifier: MIT OR Apache-2.0
//! A destination that vanishes in mid-connection: after the leg's user time-out, the client
//! receives a RST.

use crate::{
    relay_conformance::chain::{DestinationKind, accept, testbed},
    relay_conformance::ends::{assert_reset_noticed, transfer_both_ways},
};
use longhaul_testnet::{
    relay_process::{Relay, may_use_namespaces, set_timeouts},
    relay_testbed::{IPV4, Testbed, run_ip},
};
use std::{io::Write, net::SocketAddr};

#[test]
fn resets_client_when_destination_vanishes() {
    if !may_use_namespaces() {
        return;
    }
    let bed = testbed();
    let _relay = relay(&bed);
    let origin = bed.listen(DestinationKind::Origin.address(&IPV4));
    let mut client = bed.connect(listener_address()).unwrap();
    set_timeouts(&client);
    let mut server = accept(&origin);
    transfer_both_ways(&mut client, &mut server);
    run_ip(&bed.server, "link set eth0 down");
    client.write_all(b"anyone?").unwrap();
    assert_reset_noticed(&client);
}

fn listener_address() -> SocketAddr {
    (IPV4.downstream, 8000).into()
}

fn relay(bed: &Testbed) -> Relay {
    let mut profile = tempfile::NamedTempFile::new().unwrap();
    writeln!(profile, "[profile.upstream]\nuser_timeout = '1s'").unwrap();
    let forward = format!(
        "{}={}",
        listener_address(),
        DestinationKind::Origin.address(&IPV4)
    );
    bed.relay(&[
        "--config",
        profile.path().to_str().unwrap(),
        "--forward",
        &forward,
        "--allow-from",
        "10.77.1.0/24",
    ])
}
