// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sites on two hosts with a third between them: reachable ports, and third-party copies whose data does not pass
//! through the calling host.

use crate::site_process::{Client, Home, SiteProcess, listing, make_tree, succeed};
use longhaul_linux::{netns::Netns, process::inside};
use longhaul_testnet::relay_process::may_use_namespaces;
use longhaul_testnet::relay_testbed::{BOTH, IPV4, Testbed, run_with_input};
use std::{net::SocketAddr, path::Path, process::Command};

fn site(home: &Home, netns: &Netns, arguments: &[&str]) -> SiteProcess {
    let mut command = home.command(arguments);
    inside(&mut command, netns);
    SiteProcess::spawn(command)
}

fn copy(client: &Client, netns: &Netns, arguments: &[&str]) -> serde_json::Value {
    let mut command: Command = client.command(arguments);
    inside(&mut command, netns);
    succeed(command)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Drops all packets of the router's own sockets except to the sites' port, and all forwarded ones except to the data
/// port.
fn drop_other_packets(router: &Netns) {
    let rules = "table inet only {
        chain output {
            type filter hook output priority 0;
            tcp dport 7311 accept
            tcp sport 7311 accept
            meta l4proto tcp drop
        }
        chain forward {
            type filter hook forward priority 0;
            tcp dport 7400 accept
            tcp sport 7400 accept
            meta l4proto tcp drop
        }
    }";
    run_with_input(router, "nft", &["-f", "-"], rules);
}

#[test]
fn copies_between_sites_from_a_third_host() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("third");
    drop_other_packets(&bed.router);
    let (near, far) = (Home::new(), Home::new());
    let tokens = [near.token(&["new", "me"]), far.token(&["new", "me"])];
    make_tree(&near.data().join("tree"));
    for family in BOTH {
        let listen = |ip| SocketAddr::new(ip, 7311).to_string();
        let a = site(&near, &bed.client, &["--listen", &listen(family.client)]);
        let ports = ["--ports", "7400"];
        let b = site(
            &far,
            &bed.server,
            &[&["--listen", &listen(family.server)][..], &ports].concat(),
        );
        let client = Client::with_tokens(&[(&a, &tokens[0]), (&b, &tokens[1])]);
        let name = format!("/{}", if family.server.is_ipv4() { "v4" } else { "v6" });
        let done = copy(&client, &bed.router, &[&a.at("/tree/"), &b.at(&name)]);
        assert_eq!(done["failed"], 0);
        assert_eq!(
            listing(&far.data().join(&name[1..])),
            listing(&near.data().join("tree"))
        );
    }
}

/// Data arrives at the site's ports, whatever the client requests.
#[test]
fn copies_through_a_firewall_with_two_open_ports() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("ports");
    let rules = "table inet only {
        chain forward {
            type filter hook forward priority 0;
            tcp dport { 7311, 7400 } accept
            tcp sport { 7311, 7400 } accept
            meta l4proto tcp drop
        }
    }";
    run_with_input(&bed.router, "nft", &["-f", "-"], rules);
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    // On all addresses of both families.
    let mut site = site(
        &home,
        &bed.server,
        &["--listen", "[::]:7311", "--ports", "7400"],
    );
    let folder = tempfile::tempdir().unwrap();
    make_tree(&folder.path().join("from"));
    for family in BOTH {
        site.address = SocketAddr::new(family.server, 7311);
        let client = Client::with_tokens(&[(&site, &token)]);
        let (there, back) = (
            format!("/{}", family.server.is_ipv4()),
            family.server.is_ipv4().to_string(),
        );
        let back = folder.path().join(back);
        copy(
            &client,
            &bed.client,
            &[
                "--ports",
                "9000",
                &format!("{}/", text(&folder.path().join("from"))),
                &site.at(&there),
            ],
        );
        copy(
            &client,
            &bed.client,
            &[&site.at(&format!("{there}/")), text(&back)],
        );
        assert_eq!(listing(&back), listing(&folder.path().join("from")));
    }
}

/// By default, only clients on its own host reach a site.
#[test]
fn listens_on_loopback_by_default() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("loop");
    longhaul_testnet::relay_testbed::run_ip(&bed.server, "link set lo up");
    let home = Home::new();
    let site = site(&home, &bed.server, &[]);
    assert!(site.address.ip().is_loopback());
    let refused = bed.connect((IPV4.server, site.address.port()).into());
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}
