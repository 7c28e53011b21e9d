// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials of BPF programs: each is loaded, which runs the kernel's verifier. Programs for a cgroup
//! are attached to a temporary one.

use super::{
    attempt::{ACK_THINNING, Attempt, BPF_RIGHTS, Failure, new_trial},
    sockets::connected_pair,
};
use crate::{
    doctor::facts::Trial,
    run::{self, PREFIX},
};
use longhaul_congestion::{
    ack_thin::{self, AckControl, Settings},
    math::{Algorithm, algorithm, algorithms},
    sockets::profile::{self, Profile, Refused},
    trials,
};
use longhaul_linux::{disable_gso, transient_cgroup::TransientCgroup};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    time::Duration,
};

/// Features, and the functions that try them. Loads of congestion controls are not among them.
const FEATURES: [(&str, Attempt); 7] = [
    ("cc load --replace", || {
        Ok(trials::link(sample_algorithm())?)
    }),
    ("cc load --per-socket", || {
        in_cgroup(|cgroup| {
            Ok(trials::socket_parameters(
                sample_algorithm(),
                cgroup.as_fd(),
            )?)
        })
    }),
    ("cc watch", || Ok(trials::watch()?)),
    ("run --inter-packet-gap", try_disabling_gso),
    (ACK_THINNING, || in_cgroup(try_ack_thinning)),
    ("decp", || Ok(trials::window_caps()?)),
    ("relay --initial-window-upstream", || {
        Ok(trials::initial_window()?)
    }),
];

/// Returns a congestion control for the trials; any would do.
fn sample_algorithm() -> Algorithm {
    algorithm("scalable").expect("it is one of ours")
}

pub(super) fn all() -> Vec<Trial> {
    let denied = trials::permitted().map_err(Failure::from);
    let attempt = |feature: &str, attempt: &dyn Fn() -> Result<(), Failure>| {
        new_trial(feature, BPF_RIGHTS, denied.clone().and_then(|()| attempt()))
    };
    let loads = algorithms().map(|one| {
        attempt(&format!("cc load {}", one.name()), &|| {
            Ok(trials::congestion_control(one)?)
        })
    });
    let mut found: Vec<Trial> = loads.collect();
    found.extend(FEATURES.map(|(feature, try_it)| attempt(feature, &try_it)));
    let refused = denied.clone().and_then(|()| in_cgroup(refused_settings));
    found.push(new_trial("run", BPF_RIGHTS, refused.clone().map(drop)));
    let without = refused.unwrap_or_default();
    found.extend(without.iter().map(|refused| {
        new_trial(
            format!("run --{}", flag_of_setting(refused.setting)),
            BPF_RIGHTS,
            Err(Failure::Fails(refusal_reason(refused))),
        )
    }));
    found
}

fn in_cgroup<T>(work: impl FnOnce(&TransientCgroup) -> Result<T, Failure>) -> Result<T, Failure> {
    let cgroup = TransientCgroup::create(PREFIX).map_err(|error| {
        let is_denied = matches!(
            error.kind(),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
        );
        let reason = format!("{:#}", run::cgroup_refusal(error));
        if is_denied {
            Failure::Untried(reason)
        } else {
            Failure::Fails(reason)
        }
    })?;
    work(&cgroup)
}

fn try_ack_thinning(cgroup: &TransientCgroup) -> Result<(), Failure> {
    let settings = Settings {
        ratio: 2,
        hold_max: Duration::from_millis(1),
        pace: None,
    };
    let control: Result<AckControl, _> = ack_thin::attach(cgroup.as_fd(), &settings);
    Ok(control.map(drop)?)
}

/// Returns the settings of a full profile that the kernel refuses. This process is in the cgroup meanwhile.
fn refused_settings(cgroup: &TransientCgroup) -> Result<Vec<Refused>, Failure> {
    let profile = Profile {
        pacing_bytes_per_s: Some(100_000_000),
        cwnd_cap_bytes: Some(1 << 20),
        initial_window: Some(20),
        notsent_lowat: Some(131_072),
        keepalive_s: Some(40),
        user_timeout_ms: Some(30_000),
        mss: Some(1000),
        dscp: Some(8),
        send_buffer: Some(1 << 20),
        receive_buffer: Some(1 << 20),
        ..Profile::default()
    };
    let attached = profile::attach(&profile, cgroup.as_fd(), None, true)?;
    File::from(cgroup.open_procs()?).write_all(b"0")?;
    drop(connected_pair().map_err(|error| {
        Failure::Untried(format!(
            "no connection over loopback ({error}): ip link set lo up"
        ))
    })?);
    Ok(attached.counts()?.refused)
}

/// Returns the flag of a setting.
fn flag_of_setting(setting: &str) -> String {
    match setting {
        "pacing" => "pacing-rate".to_owned(),
        other => other.replace('_', "-"),
    }
}

fn refusal_reason(refused: &Refused) -> String {
    let error = io::Error::from_raw_os_error(refused.errno as i32);
    format!("the kernel refuses it ({error})")
}

fn try_disabling_gso() -> Result<(), Failure> {
    Ok(disable_gso::check_permission()?)
}
