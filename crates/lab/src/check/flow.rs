// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a flow beyond its syntax.

use crate::{
    network::{Topology, probe},
    scenario::{
        CcSpec, Direction, Flow, Pacing, Program, Scenario,
        config_error::{
            CheckResult, ConfigError, check_each, check_name, check_range, ensure, locate_error,
        },
        control,
        placeholders::{self, Placeholder},
    },
    testbed::programs::command::address,
};
use longhaul_report::registry;
use longhaul_units::Time;

pub(crate) fn check(flow: &Flow, topology: &Topology) -> CheckResult {
    locate_error("name", check_name("flow", &flow.name, 32))?;
    check_keys(flow, topology).map_err(|error| error.with_owner(format!("flow {:?}", flow.name)))
}

fn check_keys(flow: &Flow, topology: &Topology) -> CheckResult {
    check_hosts(flow, topology)?;
    check_relay(flow, topology)?;
    locate_error("streams", check_range("streams", flow.streams, 1, 128))?;
    match flow.program {
        Program::Curl => check_curl(flow),
        Program::Iperf3 => check_size_or_duration(flow, "iperf3 takes either size or duration"),
        Program::Ftp => check_ftp(flow),
        Program::Probe => check_probe(flow),
        Program::Udt => check_udt(flow),
        Program::Command => check_command(flow, topology),
    }?;
    check_probe_keys(flow)?;
    check_command_keys(flow)?;
    locate_error("omit", check_omit(flow))?;
    check_sender(flow)
}

/// Checks that a condition of `key` holds; the error has `problem` and points to the key.
fn check_key<P: Into<ConfigError>>(
    key: &'static str,
    holds: bool,
    problem: impl FnOnce() -> P,
) -> CheckResult {
    locate_error(key, ensure(holds, problem))
}

fn check_size_or_duration(flow: &Flow, problem: &'static str) -> CheckResult {
    ensure(flow.size.is_some() != flow.duration.is_some(), || problem)?;
    let is_positive = flow.size.is_none_or(|size| size.get() > 0);
    check_key("size", is_positive, || "size must be above 0")?;
    let lasts = flow.duration.is_none_or(|duration| duration > Time::ZERO);
    check_key(
        "duration",
        lasts,
        || "duration is 0; give a time such as 10s",
    )
}

/// Checks `omit`: only a flow with a duration has a beginning that can be left out.
fn check_omit(flow: &Flow) -> CheckResult {
    let has_duration =
        matches!(flow.program, Program::Iperf3 | Program::Udt) && flow.duration.is_some();
    ensure(
        has_duration || flow.omit.is_none(),
        || "omit is a key of programs \"iperf3\" and \"udt\", beside duration",
    )
}

fn check_hosts(flow: &Flow, topology: &Topology) -> CheckResult {
    for (key, host) in [("from", &flow.from), ("to", &flow.to)] {
        check_key(key, topology.hosts.contains(host), || {
            format!("no link reaches a host {host:?}")
        })?;
    }
    let has_path = flow.from != flow.to && topology.path(&flow.from, &flow.to).is_some();
    check_key("to", has_path, || {
        format!(
            "no path leads from {:?} to another host {:?}",
            flow.from, flow.to
        )
    })
}

/// Checks `via` and `proxy`: the program supports the key, and a path leads to the relay's host.
fn check_relay(flow: &Flow, topology: &Topology) -> CheckResult {
    let (via, proxy) = (flow.via.as_ref(), flow.proxy.as_ref());
    check_key(
        "via",
        via.is_none() || proxy.is_none(),
        || "via and proxy exclude each other",
    )?;
    check_key(
        "proxy",
        proxy.is_none() || flow.program.carries_a_file(),
        || "proxy is a key of programs \"curl\" and \"ftp\"",
    )?;
    let supports_via = matches!(flow.program, Program::Curl | Program::Iperf3);
    check_key(
        "via",
        via.is_none() || supports_via,
        || "via is a key of programs \"curl\" and \"iperf3\"",
    )?;
    let client = match flow.direction {
        Direction::Upload => &flow.from,
        Direction::Download => &flow.to,
    };
    let Some(relay) = via.or(proxy.map(|proxy| &proxy.at)) else {
        return Ok(());
    };
    check_key(
        if via.is_some() { "via" } else { "proxy" },
        topology.address(client, &relay.host).is_some(),
        || format!("no path leads from {client:?} to a host {:?}", relay.host),
    )
}

fn check_curl(flow: &Flow) -> CheckResult {
    locate_error("size", check_size(flow, "curl needs a size above 0"))?;
    check_key(
        "duration",
        flow.duration.is_none(),
        || "curl takes a size, not a duration",
    )?;
    check_key(
        "direction",
        flow.direction == Direction::Download,
        || "curl downloads; use iperf3 for uploads",
    )?;
    check_key(
        "streams",
        flow.streams == 1,
        || "curl opens one connection; add flows for more",
    )
}

fn check_size(flow: &Flow, problem: &'static str) -> CheckResult {
    ensure(flow.size.is_some_and(|size| size.get() > 0), || problem)
}

fn check_ftp(flow: &Flow) -> CheckResult {
    let problem = "ftp needs a size above 0, and has no duration and no streams";
    locate_error("size", check_size(flow, problem))?;
    check_key("duration", flow.duration.is_none(), || problem)?;
    check_key("streams", flow.streams == 1, || problem)?;
    let http = flow
        .proxy
        .as_ref()
        .is_some_and(|proxy| proxy.scheme == "http");
    check_key(
        "proxy",
        !http || flow.direction == Direction::Download,
        || "an HTTP proxy does not pass FTP uploads on; a SOCKS proxy does",
    )?;
    check_key(
        "ftp_active",
        !flow.ftp_active || flow.proxy.is_none(),
        || "ftp_active: a server can't connect to a client behind a proxy",
    )
}

fn check_udt(flow: &Flow) -> CheckResult {
    check_size_or_duration(flow, "udt takes either size or duration")?;
    locate_error("streams", check_range("streams", flow.streams, 1, 64))?;
    let is_udt = |control: &CcSpec| control.to_string() == control::UDT;
    check_key(
        "cc",
        flow.cc.as_ref().is_none_or(is_udt),
        || "program \"udt\" has a rate control of its own: set cc = \"udt\", or remove cc",
    )
}

fn check_command(flow: &Flow, topology: &Topology) -> CheckResult {
    let mut words = flow.command.iter().chain(&flow.server);
    let takes_size = flow.output_file.is_some() || words.any(|word| word.contains("{payload}"));
    let is_size = flow.size.map_or(!takes_size, |size| size.get() > 0);
    check_key("size", is_size, || "command needs a size above 0")?;
    let problem = "command runs once, on \"from\", to its end: it has no";
    let forbid = |key, is_absent| check_key(key, is_absent, || format!("{problem} {key}"));
    forbid("duration", flow.duration.is_none())?;
    forbid("streams", flow.streams == 1)?;
    forbid("direction", flow.direction == Direction::Download)?;
    check_key(
        "command",
        !flow.command.is_empty(),
        || "command is missing: the program that runs on \"from\", with its arguments",
    )?;
    let check_words = |host: &str, words: &[String]| {
        check_each(words, |word: &String| check_word(word, host, topology))
    };
    locate_error("command", check_words(&flow.from, &flow.command))?;
    locate_error("server", check_words(&flow.to, &flow.server))?;
    check_key(
        "server_port",
        flow.server.is_empty() || flow.server_port.is_some_and(|port| port > 0),
        || "server_port is missing: the TCP port at which the server listens",
    )?;
    locate_error("figures", check_each(&flow.figures, check_figure))?;
    match &flow.output_file {
        Some(file) => locate_error("output_file", check_word(file, &flow.to, topology)),
        None => Ok(()),
    }
}

fn check_figure(name: &String) -> CheckResult {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '_';
    ensure(!name.is_empty() && name.chars().all(clean), || {
        format!("{name:?}: a metric's name is letters, digits and '_'")
    })?;
    ensure(registry::find(name).is_none(), || {
        format!("{name:?} is a metric that the lab itself measures")
    })
}

/// Checks that the hosts named in a word of a command on `host` exist and can be reached.
fn check_word(word: &str, host: &str, topology: &Topology) -> CheckResult {
    let filled = placeholders::fill(word, |placeholder| match placeholder {
        Placeholder::Address(other) => address(topology, host, other),
        Placeholder::Scratch(other) if !topology.hosts.contains(other) => {
            Err(format!("no link reaches a host {other:?}"))
        }
        _ => Ok(String::new()),
    });
    Ok(filled.map(drop)?)
}

/// Checks the keys that set options of the sender's socket: the program must be able to set them.
fn check_sender(flow: &Flow) -> CheckResult {
    check_sender_keys(flow)?;
    check_key(
        "inter_packet_gap",
        flow.inter_packet_gap.is_none() || flow.pacing.is_none(),
        || "pacing and inter_packet_gap exclude each other",
    )?;
    let gap_ns = flow
        .inter_packet_gap
        .map_or(1_000, longhaul_units::Time::as_nanos);
    check_key(
        "inter_packet_gap",
        (100..=1_000_000_000).contains(&gap_ns),
        || "inter_packet_gap must be 100ns to 1s",
    )?;
    locate_error("pacing", check_pacing(flow))?;
    locate_error("window", check_window(flow))?;
    check_key(
        "ftp_active",
        !flow.ftp_active || flow.program == Program::Ftp,
        || "ftp_active is a key of program \"ftp\"",
    )
}

fn check_sender_keys(flow: &Flow) -> CheckResult {
    let sets_pacing = matches!(flow.program, Program::Curl | Program::Iperf3);
    let sets_cc = sets_pacing || matches!(flow.program, Program::Ftp | Program::Udt);
    check_key(
        "cc",
        flow.cc.is_none() || sets_cc,
        || "cc is a key of programs \"curl\", \"iperf3\", \"ftp\" and \"udt\"",
    )?;
    for (key, given) in [
        ("pacing", flow.pacing.is_some()),
        ("inter_packet_gap", flow.inter_packet_gap.is_some()),
    ] {
        check_key(
            key,
            !given || sets_pacing,
            || "pacing and inter_packet_gap are keys of programs \"curl\" and \"iperf3\"",
        )?;
    }
    Ok(())
}

/// Checks what a simulated flow assumes. On a testbed, kernels decide it.
pub(crate) fn check_model(flow: &Flow, scenario: &Scenario) -> CheckResult {
    let Some(model) = flow.model.as_ref().filter(|_| flow.enabled) else {
        return Ok(());
    };
    ensure(scenario.simulated, || {
        format!("flow {:?}: model is a key of simulated flows", flow.name)
    })?;
    locate_error(
        "ack_ratio",
        check_range("ack_ratio", model.ack_ratio, 1, 1024),
    )?;
    let window = check_range("initial_window", model.initial_window, 1, 1000);
    locate_error("initial_window", window)
}

/// Checks the `cc` of an FTP flow. FTP's programs open their own sockets, so the congestion control
/// is set on the routes of the sending host. All other senders on that host use it too.
pub(crate) fn check_ftp_control(flow: &Flow, scenario: &Scenario) -> CheckResult {
    let ftp = flow.enabled && flow.program == Program::Ftp;
    let Some(control) = flow.cc.as_ref().filter(|_| ftp) else {
        return Ok(());
    };
    let (name, host) = (&flow.name, &flow.from);
    ensure(!control.paced, || {
        format!("flow {name:?}: +pace is for programs \"curl\" and \"iperf3\"")
    })?;
    let problem =
        format!("flow {name:?}: the cc of an FTP flow applies to all flows that {host:?} sends");
    let differs = |other: &&Flow| {
        let sends = other.enabled && other.program.is_tcp() && other.from == *host;
        sends && other.cc.as_ref().and_then(CcSpec::key) != control.key()
    };
    let other = scenario.flows.iter().find(differs);
    other.map_or(Ok(()), |other| {
        let other = &other.name;
        Err(format!(
            "{problem}; give flow {other:?} the same cc, or another host"
        ))
    })?;
    ensure(!scenario.relays_on(host), || {
        format!("{problem}, and a relay sends from that host, too")
    })
}

fn check_pacing(flow: &Flow) -> CheckResult {
    let Some(Pacing::Rate(rate)) = flow.pacing else {
        return Ok(());
    };
    ensure((8_000..=34_000_000_000).contains(&rate.bits()), || {
        format!("pacing is {rate}, but must be 8kbit to 34gbit")
    })
}

fn check_window(flow: &Flow) -> CheckResult {
    ensure(
        flow.window.is_none() || flow.program == Program::Iperf3,
        || "window is a key of program \"iperf3\"; for others, set net.ipv4.tcp_rmem of the receiving host",
    )?;
    let window = flow.window.map_or(4096, longhaul_units::Bytes::get);
    ensure(
        (2048..=1 << 30).contains(&window),
        || "window must be 2KiB to 1GiB",
    )
}

fn check_probe(flow: &Flow) -> CheckResult {
    let problem = "probe sends one stream of packets: it has no size and no streams";
    check_key("size", flow.size.is_none(), || problem)?;
    check_key(
        "direction",
        flow.direction == Direction::Download,
        || "probe sends its packets from \"from\" to \"to\": it has no direction",
    )?;
    check_key("streams", flow.streams == 1, || problem)?;
    Ok(probe::timing(flow).map(drop)?)
}

/// Checks that a probe's packets fit the path's MTU. They are not fragmented.
pub(crate) fn check_mtu(flow: &Flow, scenario: &Scenario, topology: &Topology) -> CheckResult {
    let (Program::Probe, Some(length)) = (flow.program, flow.packet_size) else {
        return Ok(());
    };
    let mtu = topology.mtu(&scenario.links, &flow.from, &flow.to);
    ensure(mtu.is_none_or(|mtu| u32::from(length) <= mtu), || {
        let (name, mtu) = (&flow.name, mtu.unwrap_or_default());
        format!("flow {name:?}: packets of {length} bytes don't fit the path's MTU of {mtu}")
    })
}

fn check_probe_keys(flow: &Flow) -> CheckResult {
    let keys = [
        ("count", flow.count.is_some()),
        ("interval", flow.interval.is_some()),
        ("packet_size", flow.packet_size.is_some()),
        ("gso_segments", flow.gso_segments != 1),
    ];
    let problem = "count, interval, packet_size and gso_segments are keys of program \"probe\"";
    check_keys_of(Program::Probe, flow, keys, problem)
}

fn check_command_keys(flow: &Flow) -> CheckResult {
    let keys = [
        ("command", !flow.command.is_empty()),
        ("server", !flow.server.is_empty()),
        ("server_port", flow.server_port.is_some()),
        ("output_file", flow.output_file.is_some()),
        ("figures", !flow.figures.is_empty()),
    ];
    let problem =
        "command, server, server_port, output_file and figures are keys of program \"command\"";
    check_keys_of(Program::Command, flow, keys, problem)
}

/// Checks that a flow of any other program than `program` has none of `keys`. Each key says whether the
/// flow has it.
fn check_keys_of(
    program: Program,
    flow: &Flow,
    keys: impl IntoIterator<Item = (&'static str, bool)>,
    problem: &'static str,
) -> CheckResult {
    let mut given = keys.into_iter().filter(|(_, given)| *given);
    match given.next().filter(|_| flow.program != program) {
        None => Ok(()),
        Some((key, _)) => locate_error(key, Err(problem)),
    }
}
