// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the facts of this host, as the calling process sees it. What can't be read is listed as unknown.

use super::{
    facts::{Facts, Interface, Tun},
    relay_tables,
};
use longhaul_linux::{ethtool, interface_list, programs, routes, sysctl};
use longhaul_units::Bytes;
use rustix::process::{Resource, getrlimit};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    process::Command,
};

/// Settings that the checks read. `--fix` and `--undo` change no other.
pub(super) const SETTINGS: &[&str] = &[
    "fs.file-max",
    "fs.nr_open",
    "fs.pipe-max-size",
    "fs.pipe-user-pages-hard",
    "fs.pipe-user-pages-soft",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "net.core.default_qdisc",
    "net.core.somaxconn",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_reordering",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.all.forwarding",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_fin_wait",
    "user.max_user_namespaces",
];

/// Build options of the kernel that a check reads.
const OPTIONS: [&str; 2] = ["NET_SCH_FQ", "NFT_TPROXY"];

/// Programs that longhaul uses.
const PROGRAMS: [&str; 2] = ["ip", "nft"];

/// Reads the facts of this host, without trials.
pub(super) fn read_all() -> Facts {
    let kernel = kernel_release();
    let files = getrlimit(Resource::Nofile);
    let mut unknown = Unknown::default();
    let interfaces = interfaces(&mut unknown);
    Facts {
        kernel_options: kernel_options(&kernel),
        kernel,
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        sysctl: settings(&interfaces, &mut unknown),
        interfaces,
        routes: unknown.or_default("routes", routes::with_metrics()),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory: Bytes::new(longhaul_linux::memory::machine_bytes()),
        cgroup_memory: longhaul_linux::memory::cgroup_limit().map(Bytes::new),
        page: rustix::param::page_size() as u64,
        files_soft: files.current,
        files_hard: files.maximum,
        clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        timer_slack_ns: number("/proc/self/timerslack_ns"),
        programs: found_programs(),
        tun: tun(),
        input_drops: relay_tables::input_drops().ok(),
        interceptions: relay_tables::interceptions().ok(),
        root: longhaul_linux::process::user() == 0,
        trials: Vec::new(),
        unknown: unknown.0,
    }
}

/// Facts that could not be read, with the reason.
#[derive(Debug, Default)]
struct Unknown(BTreeMap<String, String>);

impl Unknown {
    /// Returns what was read. What could not be read is noted, so that it does not pass for absent.
    fn or_default<T: Default>(&mut self, name: impl Into<String>, read: io::Result<T>) -> T {
        read.unwrap_or_else(|error| {
            self.0.insert(name.into(), error.to_string());
            T::default()
        })
    }
}

fn kernel_release() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

fn settings(interfaces: &[Interface], unknown: &mut Unknown) -> BTreeMap<String, String> {
    let own = interfaces
        .iter()
        .map(|interface| format!("net/ipv4/conf/{}/rp_filter", interface.name));
    SETTINGS
        .iter()
        .map(|name| (*name).to_owned())
        .chain(own)
        .filter_map(|name| {
            let value = unknown.or_default(&name, setting(&name))?;
            Some((name, value))
        })
        .collect()
}

/// Reads a setting; `None` if the kernel or the namespace lacks it.
fn setting(name: &str) -> io::Result<Option<String>> {
    match sysctl::read_here(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

fn interfaces(unknown: &mut Unknown) -> Vec<Interface> {
    let all = unknown.or_default("interfaces", interface_list::list());
    all.into_iter()
        .filter(|interface| interface.up && !interface.loopback)
        .map(|interface| describe(interface, unknown))
        .collect()
}

fn describe(interface: interface_list::Interface, unknown: &mut Unknown) -> Interface {
    let name = interface.name;
    let offloads = unknown.or_default(format!("{name} offloads"), ethtool::offloads(&name));
    Interface {
        kind: interface.kind,
        mtu: interface.mtu,
        transmit_queue: interface.transmit_queue,
        qdiscs: interface.qdiscs,
        disciplines: interface.disciplines,
        offloads: offloads
            .into_iter()
            .map(|(offload, on)| (offload.to_owned(), on))
            .collect(),
        rings: unknown.or_default(format!("{name} rings"), ethtool::rings(&name)),
        // -1 where the driver does not know.
        speed_mbit: number(format!("/sys/class/net/{name}/speed")),
        rps: rps(&name, interface.receive_queues),
        name,
    }
}

/// Reads the masks of the receive queues.
fn rps(name: &str, queues: u32) -> Vec<String> {
    (0..queues)
        .map_while(|n| text(format!("/sys/class/net/{name}/queues/rx-{n}/rps_cpus")))
        .collect()
}

fn text(file: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(file: impl AsRef<Path>) -> Option<u64> {
    text(file)?.parse().ok()
}

/// Reads the build options from /boot, or from /proc/config.gz.
fn kernel_options(release: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/boot/config-{release}")).ok();
    let Some(text) = text.or_else(own_configuration) else {
        return BTreeMap::new();
    };
    OPTIONS
        .iter()
        .map(|option| ((*option).to_owned(), option_in(&text, option).to_owned()))
        .collect()
}

fn own_configuration() -> Option<String> {
    let output = Command::new("gzip")
        .args(["-dc", "/proc/config.gz"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

/// Returns `y`, `m`, or `n` if the option is not set.
fn option_in<'a>(text: &'a str, option: &str) -> &'a str {
    let value = |line: &'a str| {
        let rest = line.strip_prefix("CONFIG_")?.strip_prefix(option)?;
        rest.strip_prefix('=')
    };
    text.lines().find_map(value).unwrap_or("n")
}

fn found_programs() -> BTreeSet<String> {
    let names = PROGRAMS.iter().map(|name| (*name).to_owned());
    names
        .filter(|name| programs::find(name).is_some())
        .collect()
}

fn tun() -> Tun {
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    match opened {
        Ok(_) => Tun::Open,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Tun::Denied,
        Err(_) => Tun::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_build_options() {
        let text =
            "CONFIG_NET_SCH_FQ_CODEL=y\n# CONFIG_NET_SCH_FQ is not set\nCONFIG_NFT_TPROXY=m\n";
        assert_eq!(option_in(text, "NET_SCH_FQ"), "n");
        assert_eq!(option_in(text, "NFT_TPROXY"), "m");
        assert_eq!(option_in(text, "NET_SCH_FQ_CODEL"), "y");
    }

    #[test]
    fn reads_facts_of_this_host() {
        let facts = read_all();
        assert!(facts.version().is_some(), "{}", facts.kernel);
        assert!(facts.numbers::<3>("net.ipv4.tcp_rmem").is_some());
        assert!(facts.memory.get() > 1 << 20 && facts.cpus > 0 && facts.page >= 4096);
    }

    #[test]
    fn unreadable_is_not_absent() {
        let mut unknown = Unknown::default();
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let found: Vec<u8> = unknown.or_default("interfaces", denied());
        assert!(found.is_empty());
        assert_eq!(unknown.0["interfaces"], "permission denied");
        assert_eq!(setting("net.ipv4.no_such").unwrap(), None);
    }

    #[test]
    fn settings_are_sorted_and_unique() {
        assert!(SETTINGS.is_sorted_by(|a, b| a < b));
    }
}
