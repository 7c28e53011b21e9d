// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of flags to settings: they add to those of a file or replace them.

use crate::{
    args::Args,
    config::{
        Config,
        file::{self, File},
        profile::{DOWNSTREAM, UPSTREAM},
        settings::{
            KindName, ListenerSettings, PeerAddress, PeerSettings, RouteSettings, Settings,
            Streams, Transport,
        },
    },
};
use longhaul_command::exit::Refusal;
use longhaul_interception::target::Target;
use longhaul_linux::netfilter::Family;
use std::net::SocketAddr;

impl Args {
    /// Reads the file, if one is named, applies the flags, and checks the result. Returns the
    /// configuration, its settings and the file.
    pub(crate) fn read(&self) -> anyhow::Result<(Config, Settings, Option<File>)> {
        let read = self.config.as_deref().map(file::read).transpose()?;
        let (file, mut settings) = match read {
            Some((file, settings)) => (Some(file), settings),
            None => (None, Settings::default()),
        };
        self.clone().apply(&mut settings)?;
        let config = Config::from_file(&settings, file.as_ref())?;
        Ok((config, settings, file))
    }

    /// Applies the flags to `settings`.
    fn apply(self, settings: &mut Settings) -> anyhow::Result<()> {
        if self.keep_source && self.transparent.is_empty() {
            return Err(for_listeners("keep-source", "--transparent"));
        }
        if self.no_direct_fallback && self.transparent.is_empty() {
            return Err(for_listeners("no-direct-fallback", "--transparent"));
        }
        self.check_targets()?;
        if self.users.is_some() && self.socks5.is_empty() && self.http.is_empty() {
            return Err(for_listeners("users", "--socks5 and --http"));
        }
        settings.listener.extend(self.listeners());
        settings.allow_from.extend(self.allow_from);
        settings.allow_local |= self.allow_local;
        settings.mtu_probing |= self.mtu_probing;
        add_peers(&self.peer, self.peer_pool, self.streams, settings);
        for (name, cc, flag) in [
            (DOWNSTREAM, self.cc_downstream, "--cc-downstream"),
            (UPSTREAM, self.cc_upstream, "--cc-upstream"),
        ] {
            if cc.is_some() {
                let profile = settings.profile.entry(name.to_owned()).or_default();
                profile.congestion_control = cc;
                profile.flags.congestion_control = Some(flag);
            }
        }
        for (name, segments, flag) in [
            (
                DOWNSTREAM,
                self.initial_window_downstream,
                "--initial-window-downstream",
            ),
            (
                UPSTREAM,
                self.initial_window_upstream,
                "--initial-window-upstream",
            ),
        ] {
            if segments.is_some() {
                let profile = settings.profile.entry(name.to_owned()).or_default();
                profile.initial_window = segments;
                profile.flags.initial_window = Some(flag);
            }
        }
        if let Some(mode) = self.mode {
            let upstream = settings.profile.entry(UPSTREAM.to_owned()).or_default();
            upstream.mode = Some(mode);
        }
        settings.limits.override_with(&self.limits);
        settings.counters.override_with(&self.counters);
        settings.admin.override_with(&self.admin);
        Ok(())
    }

    /// Adds the intercepted networks of the listener's family.
    fn with_targets(&self, listener: ListenerSettings) -> ListenerSettings {
        let intercept = targets_of(&self.intercept, listener.address);
        let any = !intercept.is_empty();
        ListenerSettings {
            intercept,
            bypass: if any {
                targets_of(&self.bypass, listener.address)
            } else {
                Vec::new()
            },
            intercept_local: any && self.intercept_local,
            verify_connect: any && self.verify_connect,
            ..listener
        }
    }

    /// Checks that each intercepted network has a listener of its family.
    fn check_targets(&self) -> anyhow::Result<()> {
        for (family, example) in [(Family::Ip, "127.0.0.1:3129"), (Family::Ip6, "[::1]:3129")] {
            let mut targets = self.intercept.iter().filter_map(|t| t.of_family(family));
            let mut listeners = self.transparent.iter();
            let has_listener = listeners.any(|listener| Family::of(listener.ip()) == family);
            if let (Some(target), false) = (targets.next(), has_listener) {
                let problem = format!(
                    "--intercept {target} needs a --transparent listener of the same address family, such as \
                     --transparent {example}"
                );
                return Err(Refusal::option("intercept", problem));
            }
        }
        Ok(())
    }

    fn listeners(&self) -> Vec<ListenerSettings> {
        let all = |kind, addresses: &[SocketAddr]| {
            let listener = |address: &SocketAddr| listener(kind, *address);
            addresses.iter().map(listener).collect::<Vec<_>>()
        };
        let convert: Vec<SocketAddr> = self.convert.iter().map(|peer| peer.0).collect();
        let forward = self.forward.iter().map(|forward| ListenerSettings {
            destination: Some(forward.destination.clone()),
            ..listener(KindName::Forward, forward.listen)
        });
        let transparent = all(KindName::Transparent, &self.transparent);
        let mut listeners = all(KindName::Socks5, &self.socks5);
        listeners.extend(all(KindName::Http, &self.http));
        for listener in &mut listeners {
            listener.users.clone_from(&self.users);
        }
        listeners.extend(forward);
        listeners.extend(transparent.into_iter().map(|listener| ListenerSettings {
            keep_source: self.keep_source,
            direct_fallback: self.no_direct_fallback.then_some(false),
            ..self.with_targets(listener)
        }));
        for listener in &mut listeners {
            listener.send_proxy = self.send_proxy;
        }
        listeners.extend(all(KindName::Convert, &convert));
        for listener in &mut listeners {
            listener.accept_proxy = self.accept_proxy;
        }
        listeners
    }
}

/// Returns the refusal of an option without the listeners that it is for.
fn for_listeners(option: &str, listeners: &str) -> anyhow::Error {
    Refusal::option(option, format!("--{option} is for {listeners} listeners"))
}

fn targets_of(all: &[Target], listener: SocketAddr) -> Vec<Target> {
    let of_family = |target: &Target| target.of_family(Family::of(listener.ip()));
    all.iter().filter_map(of_family).collect()
}

fn listener(kind: KindName, address: SocketAddr) -> ListenerSettings {
    ListenerSettings {
        kind,
        address,
        name: None,
        destination: None,
        keep_source: false,
        direct_fallback: None,
        intercept: Vec::new(),
        bypass: Vec::new(),
        intercept_local: false,
        verify_connect: false,
        allow_from: Vec::new(),
        deny_from: Vec::new(),
        users: None,
        accept_proxy: false,
        send_proxy: None,
        profile: None,
        rate: None,
        rate_per_client: None,
        idle_timeout: None,
        transport: Transport::Tcp,
        tls: None,
    }
}

/// Adds the peers as a chain for requests that match no rule of the file. Only the first peer gets
/// a pool and streams: this relay connects to no other.
fn add_peers(
    peers: &[PeerAddress],
    pool: Option<u16>,
    streams: Option<Streams>,
    settings: &mut Settings,
) {
    if peers.is_empty() {
        return;
    }
    let mut via = Vec::new();
    for peer in peers {
        let name = peer.0.to_string();
        via.push(name.clone());
        settings.peer.entry(name).or_insert(PeerSettings {
            address: peer.clone(),
            profile: None,
            pool: pool.filter(|_| via.len() == 1),
            pool_age: None,
            streams: streams.filter(|_| via.len() == 1),
            transport: Transport::Tcp,
            tls: None,
        });
    }
    settings.route.push(RouteSettings {
        via,
        ..RouteSettings::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use longhaul_protocol::convert;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn refusal(line: &str) -> String {
        let words = std::iter::once("relay").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().args;
        args.read().map(drop).unwrap_err().to_string()
    }

    #[test]
    fn rejects_bad_flags_before_opening_sockets() {
        for (line, word) in [
            ("", "no listener"),
            ("--socks5 0.0.0.0:1080", "--allow-from"),
            ("--convert 192.0.2.1", "--allow-from"),
            ("--http [::]:3128", "--allow-from"),
            ("--socks5 127.0.0.1:0 --keep-source", "--transparent"),
            ("--socks5 127.0.0.1:0 --no-direct-fallback", "--transparent"),
            (
                "--transparent 127.0.0.1:1 --intercept 10.0.0.0/8,[2001:db8::/32]:80",
                "--transparent [::1]:3129",
            ),
            (
                "--transparent [::1]:1 --intercept 10.0.0.0/8",
                "127.0.0.1:3129",
            ),
            (
                "--transparent 0.0.0.0:1 --keep-source --peer 192.0.2.1",
                "--peer",
            ),
            ("--socks5 127.0.0.1:0 --interval 0s", "--interval"),
            ("--socks5 127.0.0.1:0 --pipe-size 1B", "--pipe-size"),
            (
                "--socks5 127.0.0.1:0 --admin 0.0.0.0:9100",
                "ssh -L 9100:127.0.0.1:9100",
            ),
            ("--socks5 127.0.0.1:0 --admin [::]:9100", "loopback"),
        ] {
            assert!(refusal(line).contains(word), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn accepts_repeated_listeners() {
        let line = "relay --socks5 127.0.0.1:0 --socks5 [::1]:0 --forward 127.0.0.1:0=host:80 \
                    --convert 10.0.0.1 --allow-from 10.0.0.0/8 --peer 10.0.0.2 --peer 10.0.0.3:9";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        let (config, ..) = args.read().unwrap();
        assert_eq!(config.listeners.len(), 4);
        assert_eq!(config.listeners[3].address.port(), convert::PORT);
        let target = config.policy.rules[0].target.as_ref().unwrap();
        let ports: Vec<u16> = target.chains[0]
            .iter()
            .map(|p| p.destination.port())
            .collect();
        assert_eq!(ports, [convert::PORT, 9]);
    }
}
