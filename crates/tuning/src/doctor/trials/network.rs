// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of features that change a network namespace, in one that ends with its process. For an ordinary user it is
//! in a user namespace, so that the kernel's support is known even if the user lacks rights.

use super::attempt::{ACK_PACING, Attempt, BPF_RIGHTS, Failure, new_trial};
use crate::doctor::facts::Trial;
use longhaul_linux::{
    ack_pacing::AckPacing,
    interface,
    netfilter::{Family, lease, nft, queue::Queue, target::append_queue_rule},
    packet_ring, sandbox,
    socket::{self, Options},
    timestamps::Sender,
    tun::Tun,
};
use std::{
    io::{self, Read, Write},
    time::Duration,
};

/// Features, the rights for their use, and the functions that try them.
const FEATURES: [(&str, &str, Attempt); 6] = [
    ("link", "CAP_NET_ADMIN", try_link),
    ("relay --transparent", "CAP_NET_ADMIN", try_transparent),
    (
        "relay --verify-connect",
        "CAP_NET_ADMIN",
        try_verify_connect,
    ),
    ("tap capture", "CAP_NET_RAW", try_capture),
    ("probe", "CAP_SYS_ADMIN", try_timestamps),
    (ACK_PACING, BPF_RIGHTS, try_ack_pacing),
];

/// Feature that works if the namespaces of the trials can be created.
const LAB_FEATURE: &str = "lab run";

/// Tries all network features. The caller must have one thread.
pub(super) fn all() -> Vec<Trial> {
    run_in_sandbox().unwrap_or_else(|reason| {
        let untried =
            |(feature, needs)| new_trial(feature, needs, Err(Failure::Untried(reason.clone())));
        let features = FEATURES.map(|(feature, needs, _)| (feature, needs));
        [(LAB_FEATURE, "")]
            .into_iter()
            .chain(features)
            .map(untried)
            .collect()
    })
}

/// Tries the features in namespaces; returns an error if there are none.
fn run_in_sandbox() -> Result<Vec<Trial>, String> {
    let (mut reader, writer) = io::pipe().map_err(|error| error.to_string())?;
    let ended = sandbox::run(|setup| {
        let found = setup.map(|()| run_all()).map_err(|error| error.to_string());
        let text = serde_json::to_vec(&found).unwrap_or_default();
        u8::from((&writer).write_all(&text).is_err())
    });
    drop(writer);
    ended.map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    reader
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&text)
        .map_err(|error| format!("the process of the trials ended early: {error}"))?
}

fn run_all() -> Vec<Trial> {
    let tried = FEATURES.map(|(feature, needs, attempt)| new_trial(feature, needs, attempt()));
    [new_trial(LAB_FEATURE, "", Ok(()))]
        .into_iter()
        .chain(tried)
        .collect()
}

fn try_link() -> Result<(), Failure> {
    let created = Tun::create("lh-try", true).map(drop);
    created.map_err(|error| {
        let reason = format!("/dev/net/tun: {error}");
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::Untried(reason),
            _ => Failure::Fails(reason),
        }
    })
}

/// Tries time stamps of packets, and packet trains.
fn try_timestamps() -> Result<(), Failure> {
    let discard = "127.0.0.1:9".parse().expect("an address");
    Ok(Sender::open(discard, Some(1000)).map(drop)?)
}

fn families() -> impl Iterator<Item = (Family, &'static str)> {
    let all = [(Family::Ip, "0.0.0.0:0"), (Family::Ip6, "[::]:0")];
    all.into_iter()
        .take(if interface::is_ipv6_disabled() { 1 } else { 2 })
}

/// Name of the nft tables of the trials.
const TABLE: &str = "longhaul-try";

/// Tries a listener for foreign addresses, and the expressions of the relay's rules.
fn try_transparent() -> Result<(), Failure> {
    for (family, any) in families() {
        let (name, icmp) = match family {
            Family::Ip => ("ip", "icmp"),
            Family::Ip6 => ("ip6", "icmpv6"),
        };
        let lease = lease::rules(1, Duration::from_secs(1));
        let holds = lease::CONDITION;
        nft::load(&format!(
            "table {name} {TABLE} {{\n\
             {lease}\
             chain inbound {{ type filter hook prerouting priority mangle; policy accept;\n\
             meta l4proto {icmp} socket transparent 1 socket wildcard 0 meta mark set 1 accept\n\
             fib daddr type local return\n\
             tcp option @30,16,4 1 return\n\
             {holds} meta l4proto tcp tproxy to :1 meta mark set 1 accept\n}}\n}}\n"
        ))?;
        let options = Options {
            transparent: true,
            ..Options::default()
        };
        socket::listen(any.parse().expect("an address"), 1, &options)?;
    }
    Ok(())
}

/// Tries packet queues for a verdict, by nf_tables' own expression or x_tables' target.
fn try_verify_connect() -> Result<(), Failure> {
    const CHAIN: &str = "prerouting";
    let script = |name: &str, rule: &str| {
        format!(
            "table {name} {TABLE}-queue {{ chain {CHAIN} {{ type filter hook prerouting priority mangle - 5; {rule}\n}}\n}}\n"
        )
    };
    for (family, _) in families() {
        if nft::load(&script(family.name(), "queue num 1 bypass")).is_err() {
            nft::load(&script(family.name(), ""))?;
            append_queue_rule(family, &format!("{TABLE}-queue"), CHAIN, 1).map_err(|error| {
                Failure::Fails(format!("neither nft_queue nor xt_NFQUEUE: {error}"))
            })?;
        }
    }
    Ok(Queue::bind(1, 16, false).map(drop)?)
}

fn try_capture() -> Result<(), Failure> {
    packet_ring::check_permission("lo").map_err(|error| Failure::Fails(error.to_string()))
}

fn try_ack_pacing() -> Result<(), Failure> {
    let paced = AckPacing::new("lo", 1000);
    paced
        .map(drop)
        .map_err(|error| Failure::Fails(error.to_string()))
}
