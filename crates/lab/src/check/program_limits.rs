// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the programs. Beyond them, a program rounds the value, refuses it when the testbed is
//! built, or never ends.

use crate::{
    experiment::ExperimentPlan,
    network::probe,
    scenario::{
        Flow, Program, Scenario,
        config_error::{CheckResult, check_each, ensure, locate_error},
    },
};
use anyhow::Result;
use longhaul_units::Time;

/// iperf3: `MAX_TIME`, `MAX_OMIT_TIME` and `MAX_TCP_BUFFER` of iperf.h.
const IPERF3_TIME_MAX: Time = Time::from_secs(86_400);
const IPERF3_OMIT_MAX: Time = Time::from_secs(600);
const IPERF3_WINDOW_MAX: u64 = 512 << 20;
/// Limits of `longhaul udt bench --time`.
const UDT_TIME_MIN: Time = Time::from_millis(100);
const UDT_TIME_MAX: Time = Time::from_secs(3600);

/// Refuses flows that their programs cannot run, and flows that last longer than a run may take.
pub(crate) fn check(experiment: &ExperimentPlan) -> Result<()> {
    for cell in &experiment.cells {
        for scenario in [&cell.scenario, &cell.quick_scenario] {
            let flows = locate_error(
                "flows",
                check_each(&scenario.flows, |flow| check_flow(flow, scenario)),
            );
            flows.map_err(|error| experiment.file.refuse(&error.in_cell(&cell.name())))?;
        }
    }
    Ok(())
}

fn check_flow(flow: &Flow, scenario: &Scenario) -> CheckResult {
    if !flow.enabled {
        return Ok(());
    }
    if scenario.simulated {
        return check_timeout(flow, scenario.timeout)
            .map_err(|error| error.with_owner(format!("flow {:?}", flow.name)));
    }
    let possible = match flow.program {
        Program::Iperf3 => check_iperf3(flow),
        Program::Udt => check_udt(flow),
        _ => Ok(()),
    };
    possible
        .and_then(|()| check_timeout(flow, scenario.timeout))
        .map_err(|error| error.with_owner(format!("flow {:?}", flow.name)))
}

fn check_iperf3(flow: &Flow) -> CheckResult {
    locate_error(
        "duration",
        check_seconds("duration", flow.duration, IPERF3_TIME_MAX),
    )?;
    locate_error("omit", check_seconds("omit", flow.omit, IPERF3_OMIT_MAX))?;
    let window = flow.window.map_or(0, longhaul_units::Bytes::get);
    let window = ensure(
        window <= IPERF3_WINDOW_MAX,
        || "iperf3 takes a window of 512MiB at most",
    );
    locate_error("window", window)
}

/// Checks a time for iperf3, which takes whole seconds.
fn check_seconds(key: &str, time: Option<Time>, max: Time) -> CheckResult {
    let time = time.unwrap_or_default();
    let whole = time
        .as_nanos()
        .is_multiple_of(Time::from_secs(1).as_nanos());
    ensure(whole && time <= max, || {
        format!(
            "{key} is {time}, but iperf3 takes whole seconds, {} at most",
            max.as_secs_f64()
        )
    })
}

fn check_udt(flow: &Flow) -> CheckResult {
    let Some(duration) = flow.duration else {
        return Ok(());
    };
    let all = duration + flow.omit.unwrap_or_default();
    let possible = ensure(duration >= UDT_TIME_MIN && all <= UDT_TIME_MAX, || {
        format!("duration and omit are {all}, but udt takes {UDT_TIME_MIN} to {UDT_TIME_MAX}")
    });
    locate_error("duration", possible)
}

/// Refuses a flow that lasts longer than the scenario's timeout: each of its runs would fail.
fn check_timeout(flow: &Flow, limit: Time) -> CheckResult {
    let duration = match (flow.program, flow.duration) {
        (Program::Probe, _) => probe::duration(flow)?,
        (_, Some(duration)) => duration + flow.omit.unwrap_or_default(),
        (_, None) => Time::ZERO,
    };
    let key = if flow.count.is_some() {
        "count"
    } else {
        "duration"
    };
    let ends = ensure(duration < limit, || {
        format!("it lasts {duration}, but timeout, the longest that a flow may take, is {limit}")
    });
    locate_error(key, ends)
}
