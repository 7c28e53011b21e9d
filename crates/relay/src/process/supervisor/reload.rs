// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reload at SIGHUP: the new configuration is applied as a whole or not at all. Open connections
//! keep the configuration of their start. Listeners in both configurations keep their sockets.

use crate::{
    config::{Config, listener::ListenerConfig, settings::Transport},
    listeners::{
        listener::Listener,
        sockets::{
            ListenSocket, WorkerSocket, is_supported, open_listener, options_to_open,
            socket_options, with_initial_window,
        },
    },
    relay::Relay,
};
use anyhow::Context as _;
use longhaul_admission::descriptors::DescriptorDemand;
use std::{
    mem::discriminant,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use tokio::sync::mpsc::Sender;
use tracing::{info, warn};

/// Plan for the listeners of a reload.
#[derive(Debug, PartialEq)]
struct Plan {
    /// One step for each listener of the new configuration, in its order.
    steps: Vec<Step>,
    /// Indexes of old listeners to close.
    close: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// Old listener of this index gets the new settings and keeps its sockets.
    Keep(usize),
    /// Old listener of this index gets new sockets: options of the old ones can't be reset.
    Reopen(usize),
    Open,
}

impl Step {
    fn old(self) -> Option<usize> {
        match self {
            Self::Keep(old) | Self::Reopen(old) => Some(old),
            Self::Open => None,
        }
    }
}

fn has_same_sockets(old: &ListenerConfig, new: &ListenerConfig) -> bool {
    socket_options(old) == socket_options(new)
        && old.profile.initial_window == new.profile.initial_window
}

/// Compares the listeners.
///
/// # Errors
///
/// Names a change that needs a restart.
fn plan_listeners(old: &[Arc<ListenerConfig>], new: &[ListenerConfig]) -> Result<Plan, String> {
    let mut steps = Vec::<Step>::new();
    for listener in new {
        let is_free = |n: &usize| !steps.iter().any(|step| step.old() == Some(*n));
        let index = (0..old.len())
            .filter(is_free)
            .find(|n| is_same_listener(&old[*n], listener));
        steps.push(match index {
            Some(n) if has_same_sockets(&old[n], listener) => Step::Keep(n),
            Some(_) if listener.transport == Transport::Udt => return Err(needs_restart(listener)),
            Some(n) => Step::Reopen(n),
            None => Step::Open,
        });
    }
    let is_gone = |n: &usize| !steps.iter().any(|step| step.old() == Some(*n));
    let close = (0..old.len()).filter(is_gone).collect();
    let plan = Plan { steps, close };
    plan.check_interception(old, new)?;
    Ok(plan)
}

/// Returns the error for new UDT options: a UDP port can't be bound a second time beside the first.
fn needs_restart(listener_config: &ListenerConfig) -> String {
    let name = &listener_config.name;
    format!("listener {name}: over UDT, a profile with other options needs a restart")
}

/// Returns whether both settings are for one listener. A listener on port 0 is matched by its name.
fn is_same_listener(a: &ListenerConfig, b: &ListenerConfig) -> bool {
    if a.transport != b.transport {
        return false;
    }
    let named = || a.name == b.name && discriminant(&a.kind) == discriminant(&b.kind);
    a.address == b.address && (a.address.port() != 0 || named())
}

impl Plan {
    /// Refuses changes of interception: its rules and leases last as long as the process.
    fn check_interception(
        &self,
        old: &[Arc<ListenerConfig>],
        new: &[ListenerConfig],
    ) -> Result<(), String> {
        let refused = |listener_config: &ListenerConfig| {
            let name = &listener_config.name;
            Err(format!(
                "listener {name}: a change of what it intercepts, or of keep_source there, needs a restart"
            ))
        };
        for (step, listener_config) in self.steps.iter().zip(new) {
            let before = step.old().and_then(|n| old[n].intercept.as_ref());
            let moved = listener_config.intercept.is_some() && !matches!(step, Step::Keep(_));
            if moved || before != listener_config.intercept.as_ref() {
                return refused(listener_config);
            }
        }
        match self.close.iter().find(|n| old[**n].intercept.is_some()) {
            Some(n) => refused(&old[*n]),
            None => Ok(()),
        }
    }
}

/// Refuses changes of sockets that the service manager passed. If this process closed its handles,
/// clients would wait in a queue that is not served; and another set of sockets can't be bound
/// beside them.
fn check_passed(
    plan: &Plan,
    listeners: &[Arc<Listener>],
    new: &[ListenerConfig],
) -> Result<(), String> {
    let named = |name: &str, what: &str| {
        Err(format!(
            "listener {name}: its socket is the service manager's: {what} needs a restart"
        ))
    };
    for (step, listener_config) in plan.steps.iter().zip(new) {
        if let Step::Reopen(n) = step
            && listeners[*n].is_passed
        {
            return named(&listener_config.name, "a profile with other socket options");
        }
    }
    match plan.close.iter().find(|n| listeners[**n].is_passed) {
        Some(n) => named(&listeners[*n].config().name, "its removal"),
        None => Ok(()),
    }
}

/// Divides the file descriptors again: listeners and pooled connections take permits, or give them
/// back. Permits of open connections are not taken.
fn divide_descriptors(relay: &Relay, config: &Config) -> Result<(), String> {
    let limit = longhaul_linux::descriptors::raise_limit();
    let demand = config.descriptor_demand();
    let room = relay.budget.connections_with(limit, &demand);
    let now = relay.permits_total.load(Relaxed) as usize;
    let missing = now.saturating_sub(room);
    let taken = relay.connection_permits.forget_permits(missing);
    if room == 0 || taken < missing {
        relay.connection_permits.add_permits(taken);
        let DescriptorDemand {
            listeners, pooled, ..
        } = demand;
        return Err(format!(
            "RLIMIT_NOFILE has no room for {listeners} listeners and {pooled} pooled connections \
             (pool) a worker beside the connections that are open"
        ));
    }
    relay
        .connection_permits
        .add_permits(room.saturating_sub(now));
    relay.permits_total.store(room as u32, Relaxed);
    if room != now {
        info!("RLIMIT_NOFILE has room for {room} connections at once now");
    }
    Ok(())
}

/// Listener of the new configuration, with new sockets if it needs any.
type PreparedListener = (Arc<Listener>, ListenerConfig, Option<Vec<ListenSocket>>);

/// Applies a configuration that was read again. After an error, nothing has changed.
pub(crate) fn reload(
    relay: &Relay,
    mut config: Config,
    workers: &[Sender<WorkerSocket>],
) -> anyhow::Result<()> {
    let before = relay.config();
    config.listeners.retain(is_supported);
    let fixed = config.keep_fixed(&before);
    let listeners = relay.listeners.open();
    let old: Vec<_> = listeners.iter().map(|listener| listener.config()).collect();
    let plan = plan_listeners(&old, &config.listeners).map_err(anyhow::Error::msg)?;
    check_passed(&plan, &listeners, &config.listeners).map_err(anyhow::Error::msg)?;
    let prepared = open_sockets(&config, &plan, &listeners)?;
    divide_descriptors(relay, &config).map_err(anyhow::Error::msg)?;
    for key in fixed {
        warn!("a change of {key} needs a restart");
    }
    relay.current.set(config);
    let open = prepared
        .iter()
        .map(|(listener, ..)| listener.clone())
        .collect();
    let closed: Vec<_> = plan.close.iter().map(|n| listeners[*n].clone()).collect();
    for (listener, listener_config, sockets) in prepared {
        apply_listener(&listener, listener_config, sockets, workers)?;
    }
    for listener in &closed {
        listener.new_generation();
    }
    relay.listeners.replace(open, closed);
    Ok(())
}

/// Opens all new sockets: the steps that may fail.
fn open_sockets(
    config: &Config,
    plan: &Plan,
    listeners: &[Arc<Listener>],
) -> anyhow::Result<Vec<PreparedListener>> {
    let steps = plan.steps.iter().zip(&config.listeners);
    let prepared = steps.map(|(step, listener_config)| match *step {
        Step::Keep(n) => Ok((listeners[n].clone(), listener_config.clone(), None)),
        Step::Reopen(n) => {
            let (address, options) = (
                listeners[n].address,
                options_to_open(config, listener_config),
            );
            let sockets =
                longhaul_linux::socket::listen_shared(address, config.limits.workers, &options)
                    .and_then(|sockets| with_initial_window(sockets, listener_config))
                    .with_context(|| format!("listener {}", listener_config.name))?;
            let sockets = sockets.into_iter().map(ListenSocket::Tcp).collect();
            Ok((listeners[n].clone(), listener_config.clone(), Some(sockets)))
        }
        Step::Open => {
            let (listener, sockets) = open_listener(config, listener_config, &[])?;
            Ok((listener, listener_config.clone(), Some(sockets)))
        }
    });
    prepared.collect()
}

fn apply_listener(
    listener: &Arc<Listener>,
    listener_config: ListenerConfig,
    sockets: Option<Vec<ListenSocket>>,
    workers: &[Sender<WorkerSocket>],
) -> anyhow::Result<()> {
    let is_new = listener.never_had_sockets();
    listener.set_config(listener_config);
    if let Some(sockets) = sockets {
        distribute_sockets(listener, sockets, workers)?;
    }
    if is_new {
        info!("listening {} {}", listener.config().kind, listener.address);
    }
    Ok(())
}

/// Gives each worker one socket of the listener, or more if there are more sockets than workers.
/// Earlier sockets of the listener are closed.
pub(crate) fn distribute_sockets(
    listener: &Arc<Listener>,
    sockets: Vec<ListenSocket>,
    workers: &[Sender<WorkerSocket>],
) -> anyhow::Result<()> {
    let generation = listener.new_generation();
    for (worker, socket) in workers.iter().cycle().zip(sockets) {
        let worker_socket = WorkerSocket {
            listener: listener.clone(),
            generation,
            socket,
        };
        worker
            .try_send(worker_socket)
            .context("a worker does not take its listeners")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::listener::tests::{all, listener};

    fn planned(old: &[ListenerConfig], new: &[ListenerConfig]) -> Result<Plan, String> {
        let old: Vec<_> = old.iter().cloned().map(Arc::new).collect();
        plan_listeners(&old, new)
    }

    #[test]
    fn unchanged_listener_keeps_sockets_at_any_position() {
        let (a, b) = (listener("127.0.0.1:1", ""), listener("127.0.0.1:2", ""));
        let b_slower = listener("127.0.0.1:2", "rate = '1mbit'");
        let c = listener("127.0.0.1:3", "");
        let plan = planned(&[a, b], &[c, b_slower]).unwrap();
        assert_eq!(plan.steps, [Step::Open, Step::Keep(1)]);
        assert_eq!(plan.close, [0]);
    }

    #[test]
    fn changed_socket_options_reopen_sockets() {
        let plain = listener("127.0.0.1:1", "");
        let slow = listener("127.0.0.1:1", "profile = 'slow'");
        let plan = planned(std::slice::from_ref(&plain), &[slow]).unwrap();
        assert_eq!(plan.steps, [Step::Reopen(0)]);
        assert_eq!(plan.close, [0; 0]);
    }

    #[test]
    fn matches_listeners_on_free_ports_by_name() {
        let (a, b) = (
            listener("127.0.0.1:0", "name = 'a'"),
            listener("127.0.0.1:0", "name = 'b'"),
        );
        let unnamed = listener("127.0.0.1:0", "");
        let old = [a.clone(), unnamed.clone(), unnamed.clone()];
        let plan = planned(&old, &[unnamed.clone(), b, unnamed, a]).unwrap();
        let [one, open, two, named] = plan.steps[..] else {
            panic!("{plan:?}");
        };
        assert_eq!(
            [one, two, named],
            [Step::Keep(1), Step::Keep(2), Step::Keep(0)]
        );
        assert_eq!(open, Step::Open);
    }

    #[test]
    fn refuses_to_change_interception() {
        let text = "kind = 'transparent'\naddress = '127.0.0.1:1'\n";
        let plain = all(text);
        let web = all(&format!("{text}intercept = ['10.0.0.0/8:80']"));
        let more = all(&format!("{text}intercept = ['10.0.0.0/8:443']"));
        assert!(planned(&web, &web).is_ok());
        for (old, new) in [
            (&plain, &web),
            (&web, &plain),
            (&web, &more),
            (&web, &vec![]),
        ] {
            let problem = planned(old, new).unwrap_err();
            assert!(problem.contains("restart"), "{problem}");
        }
    }
}
