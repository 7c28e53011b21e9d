// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns flags into the profile of the sockets: units, ranges, and congestion controls by name.

use super::args::{Args, SendBuffer, Switch};
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    ack_thin,
    choice::{self, Choice},
    math::parameters,
    socket_parameters,
    sockets::profile::Profile,
};
use longhaul_linux::ack_pacing;
use longhaul_units::{Bytes, Time};
use std::{ops::RangeInclusive, time::Duration};

/// Maximum pacing rate. It limits nothing, but any value enables pacing (net/core/sock.c, SO_MAX_PACING_RATE).
const PACING_RATE_MAX: u32 = u32::MAX - 1;

/// Settings of the program's sockets.
#[derive(Debug)]
pub(super) struct ProgramConfig {
    pub(super) profile: Profile,
    pub(super) congestion_control: Option<Choice>,
    /// Whether sockets send single segments, without GSO.
    pub(super) disable_gso: bool,
    /// Whether send buffers may grow beyond the kernel's bound.
    pub(super) enlarge_send_buffers: bool,
    /// Thinning of acknowledgements.
    pub(super) acks: Option<ack_thin::Settings>,
    /// Interface for pacing of acknowledgements, and their number a second.
    pub(super) ack_rate: Option<(String, u32)>,
}

impl ProgramConfig {
    pub(super) fn new(args: &Args) -> Result<Self> {
        let requested = args.cc.as_deref().map(CongestionControl::parse);
        let paced = requested.as_ref().is_some_and(|cc| cc.paced);
        let name = requested.and_then(|cc| cc.name);
        let mut profile = settings(args, paced)?;
        let congestion_control = name.map(choose).transpose()?;
        profile.congestion_control = congestion_control.as_ref().map(Choice::system_name);
        profile.parameters = own_parameter_value(args, congestion_control.as_ref())?;
        let gso = args.gso.unwrap_or(match args.inter_packet_gap {
            Some(_) => Switch::Off,
            None => Switch::On,
        });
        Ok(Self {
            profile,
            congestion_control,
            disable_gso: gso == Switch::Off,
            enlarge_send_buffers: args.send_buffer.is_none(),
            acks: acks(args)?,
            ack_rate: ack_rate(args)?,
        })
    }
}

fn acks(args: &Args) -> Result<Option<ack_thin::Settings>> {
    let ratio_max = u64::from(ack_thin::RATIO_MAX);
    let ratio = number(
        "--ack-ratio",
        args.ack_ratio,
        1..=ratio_max,
        "1 to 256 segments",
    )?;
    let hold = args.max_ack_delay.as_nanos();
    within(
        "--max-ack-delay",
        Some((hold, args.max_ack_delay.exact())),
        1_000_000..=100_000_000,
        "1ms to 100ms",
    )?;
    let any = ratio.or(args.ack_rate.map(|_| 1));
    Ok(any.map(|ratio| ack_thin::Settings {
        ratio,
        hold_max: Duration::from_nanos(hold),
        pace: None,
    }))
}

fn ack_rate(args: &Args) -> Result<Option<(String, u32)>> {
    let (rate_min, rate_max) = (*ack_pacing::RATE.start(), *ack_pacing::RATE.end());
    let range = u64::from(rate_min)..=u64::from(rate_max);
    let rate = number("--ack-rate", args.ack_rate, range, "1 to 10000000 a second")?;
    Ok(args.ack_interface.clone().zip(rate))
}

/// Value of `--cc`: `NAME`, `NAME+pace` or `+pace`.
#[derive(Debug, PartialEq, Eq)]
struct CongestionControl<'a> {
    name: Option<&'a str>,
    paced: bool,
}

impl<'a> CongestionControl<'a> {
    fn parse(text: &'a str) -> Self {
        let (name, paced) = match text.strip_suffix("+pace") {
            Some(name) => (name, true),
            None => (text, false),
        };
        // An empty name without +pace stays a name, which is unknown and refused.
        let name = (!name.is_empty() || !paced).then_some(name);
        Self { name, paced }
    }
}

fn choose(name: &str) -> Result<Choice> {
    choice::choose(name).ok_or_else(|| {
        let kernels = longhaul_linux::socket::congestion_controls().unwrap_or_default();
        let ours = longhaul_congestion::math::algorithms()
            .map(longhaul_congestion::math::Algorithm::system_name);
        let mut known: Vec<_> = kernels.into_iter().chain(ours).collect();
        known.sort_unstable();
        known.dedup();
        Refusal::usage(format!(
            "--cc {name}: no such congestion control here; there are: {}",
            known.join(", ")
        ))
    })
}

fn own_parameter_value(args: &Args, chosen: Option<&Choice>) -> Result<Option<[u8; 32]>> {
    match chosen {
        _ if args.param.is_empty() => Ok(None),
        Some(Choice::Ours(algorithm)) => {
            let settings = parameters::settings(*algorithm, &args.param).map_err(Refusal::usage)?;
            Ok(Some(socket_parameters::value(&settings)))
        }
        _ => Err(Refusal::usage(format!(
            "--param {}: only longhaul's congestion controls have parameters; --cc lh_NAME asks for \
             one",
            args.param[0]
        ))),
    }
}

fn settings(args: &Args, paced: bool) -> Result<Profile> {
    let seconds = |time: Time| Duration::from(time).as_secs();
    let milliseconds = |time: Time| Duration::from(time).as_millis() as u32;
    let pace = args.pacing_rate;
    let pace = pace.map(|rate| (rate.bits() / 8, rate.exact()));
    let pace = within(
        "--pacing-rate",
        pace,
        1000..=u64::from(PACING_RATE_MAX),
        "8kbit to 34gbit",
    )?;
    let with_text = |time: Time, value: u64| (value, time.exact());
    let gap = args.inter_packet_gap;
    let gap = gap.map(|gap| with_text(gap, gap.as_nanos()));
    let user_timeout = args.user_timeout;
    let user_timeout = user_timeout.map(|time| with_text(time, seconds(time)));
    let keepalive = args.keepalive.map(|time| with_text(time, seconds(time)));
    within("--user-timeout", user_timeout, 1..=86400, "1s to 24h")?;
    Ok(Profile {
        pacing_bytes_per_s: pace
            .map(|rate| rate as u32)
            .or(paced.then_some(PACING_RATE_MAX)),
        gap_ns: within(
            "--inter-packet-gap",
            gap,
            100..=1_000_000_000,
            "100ns to 1s",
        )?,
        cwnd_cap_bytes: bytes("--cwnd-cap", args.cwnd_cap, 4 << 30, "4KiB to 4GiB")?,
        initial_window: number(
            "--initial-window",
            args.initial_window,
            1..=1024,
            "1 to 1024 segments",
        )?,
        notsent_lowat: buffer("--notsent-lowat", args.notsent_lowat)?,
        keepalive_s: within("--keepalive", keepalive, 1..=32400, "1s to 9h")?
            .map(|seconds| seconds as u32),
        user_timeout_ms: args.user_timeout.map(milliseconds),
        mss: number("--mss", args.mss, 88..=32767, "88 to 32767 bytes")?,
        dscp: number("--dscp", args.dscp.map(u32::from), 0..=63, "0 to 63")?.map(|dscp| dscp as u8),
        send_buffer: buffer("--send-buffer", fixed_send_buffer(args))?,
        receive_buffer: buffer("--receive-buffer", args.receive_buffer)?,
        ..Profile::default()
    })
}

fn fixed_send_buffer(args: &Args) -> Option<Bytes> {
    match args.send_buffer {
        Some(SendBuffer::Fixed(size)) => Some(size),
        Some(SendBuffer::Kernel) | None => None,
    }
}

fn buffer(flag: &str, size: Option<Bytes>) -> Result<Option<u32>> {
    Ok(bytes(flag, size, 1 << 30, "4KiB to 1GiB")?.map(|size| size as u32))
}

fn bytes(flag: &str, size: Option<Bytes>, size_max: u64, want: &str) -> Result<Option<u64>> {
    let size = size.map(|size| (size.get(), size.exact()));
    within(flag, size, 4096..=size_max, want)
}

fn number(
    flag: &str,
    value: Option<u32>,
    range: RangeInclusive<u64>,
    want: &str,
) -> Result<Option<u32>> {
    let value = value.map(|value| (u64::from(value), value.to_string()));
    Ok(within(flag, value, range, want)?.map(|value| value as u32))
}

/// Checks a value with its text, which the message repeats.
fn within(
    flag: &str,
    value: Option<(u64, String)>,
    range: RangeInclusive<u64>,
    want: &str,
) -> Result<Option<u64>> {
    match value {
        Some((value, text)) if !range.contains(&value) => {
            Err(Refusal::usage(format!("{flag} {text}: want {want}")))
        }
        value => Ok(value.map(|(value, _)| value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches};

    fn args(flags: &[&str]) -> Args {
        let command = Args::augment_args(clap::Command::new("run").no_binary_name(true));
        let flags = [flags, &["--", "true"]].concat();
        let matches = command.try_get_matches_from(flags).unwrap();
        Args::from_arg_matches(&matches).unwrap()
    }

    fn wanted(flags: &[&str]) -> Result<ProgramConfig, String> {
        ProgramConfig::new(&args(flags)).map_err(|error| error.to_string())
    }

    #[test]
    fn parses_pace_suffix() {
        let parse = |text| {
            let CongestionControl { name, paced } = CongestionControl::parse(text);
            (name, paced)
        };
        assert_eq!(parse("reno"), (Some("reno"), false));
        assert_eq!(parse("lh_bic+pace"), (Some("lh_bic"), true));
        assert_eq!(parse("+pace"), (None, true));
        assert_eq!(parse(""), (Some(""), false));
    }

    #[test]
    fn converts_quantities_to_kernel_units() {
        let all = wanted(&[
            "--pacing-rate",
            "900mbit",
            "--cwnd-cap",
            "8MB",
            "--keepalive",
            "40s",
            "--user-timeout",
            "1500ms",
            "--dscp",
            "8",
            "--cc",
            "reno+pace",
        ])
        .unwrap();
        let profile = all.profile;
        assert_eq!(profile.pacing_bytes_per_s, Some(112_500_000));
        assert_eq!(profile.cwnd_cap_bytes, Some(8_000_000));
        assert_eq!(
            (profile.keepalive_s, profile.user_timeout_ms),
            (Some(40), Some(1500))
        );
        assert_eq!(profile.congestion_control.as_deref(), Some("reno"));
        assert!(!all.disable_gso);
    }

    #[test]
    fn gap_disables_gso_by_default() {
        let gap = wanted(&["--inter-packet-gap", "13us"]).unwrap();
        assert_eq!((gap.profile.gap_ns, gap.disable_gso), (Some(13_000), true));
        assert!(
            !wanted(&["--inter-packet-gap", "13us", "--gso", "on"])
                .unwrap()
                .disable_gso
        );
        assert!(
            wanted(&["--pacing-rate", "1gbit", "--gso", "off"])
                .unwrap()
                .disable_gso
        );
    }

    #[test]
    fn pace_suffix_alone_sets_an_unlimited_rate() {
        assert_eq!(
            wanted(&["--cc", "+pace"])
                .unwrap()
                .profile
                .pacing_bytes_per_s,
            Some(PACING_RATE_MAX)
        );
        assert_eq!(
            wanted(&["--cc", "reno"])
                .unwrap()
                .profile
                .pacing_bytes_per_s,
            None
        );
    }

    #[test]
    fn checks_both_bounds_of_each_range() {
        for (flag, good, bad) in [
            ("--pacing-rate", ["8kbit", "34gbit"], ["7999bit", "35gbit"]),
            ("--inter-packet-gap", ["100ns", "1s"], ["99ns", "1001ms"]),
            ("--cwnd-cap", ["4KiB", "4GiB"], ["4095B", "5GiB"]),
            ("--initial-window", ["1", "1024"], ["0", "1025"]),
            ("--notsent-lowat", ["4KiB", "1GiB"], ["4095B", "2GiB"]),
            ("--keepalive", ["1s", "9h"], ["999ms", "10h"]),
            ("--user-timeout", ["1s", "24h"], ["999ms", "25h"]),
            ("--ack-ratio", ["1", "256"], ["0", "257"]),
            ("--mss", ["88", "32767"], ["87", "32768"]),
            ("--dscp", ["0", "63"], ["64", "255"]),
            ("--send-buffer", ["4KiB", "1GiB"], ["4095B", "2GiB"]),
            ("--receive-buffer", ["4KiB", "1GiB"], ["4095B", "2GiB"]),
        ] {
            for value in good {
                assert!(wanted(&[flag, value]).is_ok(), "{flag} {value}");
            }
            for value in bad {
                let message = wanted(&[flag, value]).unwrap_err();
                assert!(
                    message.starts_with(&format!("{flag} ")) && message.contains(": want "),
                    "{value}: {message}"
                );
            }
        }
    }

    #[test]
    fn send_buffers_grow_unless_a_size_is_named() {
        assert!(wanted(&[]).unwrap().enlarge_send_buffers);
        for (value, size) in [("kernel", None), ("1MiB", Some(1 << 20))] {
            let config = wanted(&["--send-buffer", value]).unwrap();
            assert!(!config.enlarge_send_buffers);
            assert_eq!(config.profile.send_buffer, size);
        }
    }

    #[test]
    fn accepts_parameters_only_for_own_algorithms() {
        let message = wanted(&["--cc", "reno", "--param", "ai=50"]).unwrap_err();
        assert!(message.contains("lh_NAME"), "{message}");
        let message = wanted(&["--cc", "lh_scalable", "--param", "x=50"]).unwrap_err();
        assert!(message.contains("ai, md_shift"), "{message}");
        let ours = wanted(&["--cc", "lh_scalable", "--param", "ai=50"]).unwrap();
        assert_eq!(ours.profile.parameters.unwrap()[..5], [1, 0, 0, 0, 50]);
        let message = wanted(&["--cc", "nobody"]).unwrap_err();
        assert!(
            message.contains("cubic") && message.contains("lh_scalable"),
            "{message}"
        );
    }
}
