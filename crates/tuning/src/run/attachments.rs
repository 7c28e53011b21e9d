// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs and pacing for the sockets of a cgroup while a program runs in it. All of them end with this
//! process, however it ends; connections keep their settings.

use super::{profile::ProgramConfig, send_buffers::SendBuffers};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_congestion::{
    Error, ack_thin,
    choice::Choice,
    loader::{self, Lease},
    math::Algorithm,
    pins::Pins,
    sockets::profile::{self, Attached, Counts, Profile, SocketNotifier},
};
use longhaul_linux::{
    ack_pacing::{self, AckPacing},
    disable_gso::GsoDisabler,
    transient_cgroup::{Processes, TransientCgroup},
};
use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Attachments in the order of their removal: programs first, then the congestion control that they choose.
#[derive(Debug)]
pub(super) struct Attachments {
    profile: Attached,
    acks: Option<ack_thin::AckControl>,
    _ack_pacing: Option<AckPacing>,
    /// Number of sockets that send without GSO.
    sockets_without_gso: Option<Arc<AtomicUsize>>,
    send_buffers: Option<SendBuffers>,
    /// Congestion control of longhaul's, loaded while a process holds it.
    _congestion_control: Option<Lease>,
}

impl Attachments {
    pub(super) fn new(config: &ProgramConfig, cgroup: &TransientCgroup) -> Result<Self> {
        let lease = match &config.congestion_control {
            Some(Choice::Ours(algorithm)) => load_transient(*algorithm, &config.profile)?,
            _ => None,
        };
        let connections = match (&lease, config.profile.parameters) {
            (Some(lease), Some(_)) => Some(lease.loaded().connections().map_err(Error::refusal)?),
            _ => None,
        };
        let profile = profile::attach(
            &config.profile,
            cgroup.as_fd(),
            connections.as_ref(),
            config.disable_gso,
        );
        let profile = profile.map_err(Error::refusal)?;
        let ack_pacing = config.ack_rate.as_ref();
        let ack_pacing = ack_pacing.map(|(device, rate)| start_ack_pacing(device, *rate));
        let ack_pacing = ack_pacing.transpose()?;
        let acks = config.acks.map(|settings| ack_thin::Settings {
            pace: ack_pacing.as_ref().map(pacing_class),
            ..settings
        });
        let acks = acks.map(|settings| ack_thin::attach(cgroup.as_fd(), &settings));
        let sockets_without_gso = if config.disable_gso {
            Some(spawn_socket_watcher(&profile, cgroup)?)
        } else {
            None
        };
        let send_buffers = config
            .enlarge_send_buffers
            .then(|| SendBuffers::new(cgroup));
        Ok(Self {
            profile,
            acks: acks.transpose().map_err(Error::refusal)?,
            _ack_pacing: ack_pacing,
            sockets_without_gso,
            send_buffers: send_buffers.transpose()?,
            _congestion_control: lease,
        })
    }

    pub(super) fn counts(&self) -> Result<Counts> {
        Ok(self.profile.counts()?)
    }

    /// Returns the counts of acknowledgements, if they are thinned or paced.
    pub(super) fn acks(&self) -> Result<Option<ack_thin::Counts>> {
        let counts = self.acks.as_ref().map(ack_thin::AckControl::counts);
        Ok(counts.transpose()?)
    }

    /// Returns the send buffers, if they may be enlarged.
    pub(super) fn send_buffers(&self) -> Option<&SendBuffers> {
        self.send_buffers.as_ref()
    }

    /// Returns the number of sockets that send without GSO, if that was requested.
    pub(super) fn sockets_without_gso(&self) -> Option<usize> {
        let count = self.sockets_without_gso.as_ref();
        count.map(|count| count.load(Ordering::Relaxed))
    }
}

fn start_ack_pacing(device: &str, rate: u32) -> Result<AckPacing> {
    AckPacing::new(device, rate).map_err(|error| match error {
        ack_pacing::Error::NoDevice(_) => Refusal::usage(format!("--ack-interface: {error}")),
        error => Refusal::unsupported(error),
    })
}

fn pacing_class(pacing: &AckPacing) -> ack_thin::Class {
    ack_thin::Class {
        handle: ack_pacing::CLASS,
        device: pacing.index(),
    }
}

/// Loads a congestion control for the duration of the run. A registered one without pins in sight (from another
/// mount namespace) is used instead if the sockets need no parameters of their own.
fn load_transient(algorithm: Algorithm, profile: &Profile) -> Result<Option<Lease>> {
    let defaults = longhaul_congestion::math::parameters::defaults(algorithm);
    match loader::acquire(&Pins::default(), algorithm, &defaults) {
        Err(Error::Taken(..)) if profile.parameters.is_none() => Ok(None),
        outcome => Ok(Some(outcome.map_err(Error::refusal)?)),
    }
}

/// Starts a thread that disables GSO on new sockets; it ends with the process.
fn spawn_socket_watcher(profile: &Attached, cgroup: &TransientCgroup) -> Result<Arc<AtomicUsize>> {
    let notifier = profile.notifier()?;
    let processes = cgroup
        .processes()
        .context("cannot list the program's processes")?;
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    thread::spawn(move || disable_gso_on_new_sockets(&notifier, &processes, &counter));
    Ok(count)
}

/// Maximum time between two scans of the sockets. A notification may arrive during a scan, or be lost
/// when the ring buffer is full: the next scan finds the socket.
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(1);

fn disable_gso_on_new_sockets(
    notifier: &SocketNotifier,
    processes: &Processes,
    count: &AtomicUsize,
) {
    let mut finder = GsoDisabler::default();
    // The thread ends with the cgroup.
    while let Ok(list) = processes.list() {
        count.fetch_add(finder.enforce(&list), Ordering::Relaxed);
        let _ = notifier.wait(SCAN_INTERVAL_MAX);
    }
}
