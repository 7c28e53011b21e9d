// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plan of relays as text and JSON: chains by number of relays, the best chain hop by hop, and memory.

use super::{
    super::estimate::format_rate,
    config::Config,
    hops::{HopEstimate, Plan},
};
use longhaul_report::{
    columns::{self, align},
    count::counted,
};
use longhaul_tcpsim::formulas::{
    Formula,
    chain::Chain,
    receive_buffer, relays,
    slow_start::{self, Transfer},
    window_limit,
};
use longhaul_units::{Bytes, Time};
use serde_json::{Value, json};
use std::fmt::Write;

const SOURCES: [Formula; 2] = [relays::KAGOSHIMA, relays::NEC];

/// Returns the report as text.
pub(super) fn text(plan: &Plan, config: &Config) -> String {
    let mut out = lines(&relay_table(plan));
    let _ = writeln!(
        out,
        "\nbest: {}, {} with {}\n",
        chain_text(plan, &plan.best),
        format_rate(plan.best.throughput_bps),
        counted(plan.best.relays() as u64, "relay")
    );
    out += &lines(&hop_table(plan));
    if plan.best.relays() > 0 {
        out += "\n";
        out += &lines(&memory_table(plan, config));
    }
    if let Some(size) = config.size {
        let _ = writeln!(
            out,
            "\n{size} takes {} over this chain, and {} without relays",
            completion(plan, &plan.best, size),
            direct(plan).map_or("–".into(), |direct| completion(plan, direct, size)
                .to_string())
        );
    }
    out += "\n";
    out += &further_relay_text(plan);
    if plan.hops.simulation_skipped {
        out += "too many lossy paths to simulate each: all figures are by formula\n";
    }
    for formula in SOURCES {
        let _ = writeln!(
            out,
            "{}: {}; {}",
            formula.name, formula.equation, formula.source
        );
    }
    out
}

fn lines(table: &[Vec<String>]) -> String {
    columns::join_lines(&align(table))
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Returns a table with a row for each number of relays that gives a gain.
fn relay_table(plan: &Plan) -> Vec<Vec<String>> {
    let mut table = vec![row([
        "relays",
        "chain",
        "slowest hop",
        "throughput",
        "gain",
        "round trips",
    ])];
    for (chain, before) in distinct_chains(plan) {
        let gain = before.map_or("–".into(), |before: &Chain| {
            format!(
                "{:+.0} %",
                (chain.throughput_bps / before.throughput_bps - 1.0) * 100.0
            )
        });
        table.push(vec![
            chain.relays().to_string(),
            chain_text(plan, chain),
            format_rate(chain.bottleneck_bps),
            format_rate(chain.throughput_bps),
            gain,
            Time::from_secs_f64(chain.rtt_s).to_string(),
        ]);
    }
    table
}

/// Returns the chains that differ from the previous one, each with the previous one.
fn distinct_chains<'a>(plan: &'a Plan) -> Vec<(&'a Chain, Option<&'a Chain>)> {
    let mut chains: Vec<&Chain> = plan.by_relays.iter().flatten().collect();
    chains.dedup();
    let before = std::iter::once(None).chain(chains.iter().copied().map(Some));
    chains
        .iter()
        .copied()
        .zip(before.collect::<Vec<_>>())
        .collect()
}

fn chain_text(plan: &Plan, chain: &Chain) -> String {
    let names: Vec<_> = chain
        .sites
        .iter()
        .map(|&site| plan.sites.name(site))
        .collect();
    names.join(" → ")
}

/// Returns the hops of a chain with their estimates.
fn chain_hops<'a>(
    plan: &'a Plan,
    chain: &'a Chain,
) -> impl Iterator<Item = ([usize; 2], &'a HopEstimate)> {
    let pairs = chain.sites.windows(2).map(|two| [two[0], two[1]]);
    pairs.filter_map(|[from, to]| Some(([from, to], plan.hops.all[from][to].as_ref()?)))
}

fn hop_table(plan: &Plan) -> Vec<Vec<String>> {
    let mut table = vec![row([
        "hop",
        "RTT",
        "loss",
        "link",
        "cc",
        "one stream",
        "limited by",
        "streams to fill it",
        "window",
    ])];
    for ([from, to], hop) in chain_hops(plan, &plan.best) {
        let single = hop.single;
        table.push(vec![
            format!("{} → {}", plan.sites.name(from), plan.sites.name(to)),
            hop.path.rtt.to_string(),
            format!("{}%", hop.path.loss * 100.0),
            hop.path.rate.to_string(),
            single.control.to_string(),
            format_rate(single.goodput_bps),
            single.limit.to_string(),
            hop.streams_to_fill.to_string(),
            window(plan, hop).to_string(),
        ]);
    }
    table
}

/// Returns the bytes in flight on a hop at the chain's throughput.
fn window(plan: &Plan, hop: &HopEstimate) -> Bytes {
    Bytes::new(window_limit::window_bytes(
        plan.best.throughput_bps,
        hop.path.rtt_s(),
    ))
}

/// Returns each relay's windows and buffers: twice the incoming and the outgoing window.
fn relay_memory<'a>(plan: &'a Plan, config: &Config) -> Vec<(&'a str, [Bytes; 2], Bytes)> {
    let all: Vec<_> = chain_hops(plan, &plan.best).collect();
    let relays = all.windows(2).map(|two| {
        let windows = [two[0].1, two[1].1].map(|hop| window(plan, hop));
        let one: u64 = windows
            .iter()
            .map(|&w| receive_buffer::buffer_for(w).get())
            .sum();
        let name = plan.sites.name(two[1].0[0]);
        (
            name,
            windows,
            Bytes::new(one.saturating_mul(config.connections)),
        )
    });
    relays.collect()
}

fn memory_table(plan: &Plan, config: &Config) -> Vec<Vec<String>> {
    let memory_heading = format!("memory of {}", counted(config.connections, "connection"));
    let mut table = vec![row(["relay", "window in", "window out", &memory_heading])];
    for (name, [inwards, outwards], all) in relay_memory(plan, config) {
        table.push(vec![
            name.to_owned(),
            inwards.to_string(),
            outwards.to_string(),
            all.to_string(),
        ]);
    }
    table
}

/// Returns a sentence about the gain of one more relay.
fn further_relay_text(plan: &Plan) -> String {
    let next = plan
        .by_relays
        .get(plan.best.relays() + 1)
        .and_then(Option::as_ref);
    match next {
        None => "a further relay was not considered: see --relays\n".to_owned(),
        Some(next) if next.sites == plan.best.sites => {
            "a further relay would give no gain\n".to_owned()
        }
        Some(next) => format!(
            "a further relay would cost more than it gains: {} over {}\n",
            format_rate(next.throughput_bps),
            chain_text(plan, next)
        ),
    }
}

fn direct<'a>(plan: &'a Plan) -> Option<&'a Chain> {
    plan.by_relays.first()?.as_ref()
}

/// Returns the completion time: handshakes and requests of all hops in sequence, then the slowest hop's own time.
fn completion(plan: &Plan, chain: &Chain, size: Bytes) -> Time {
    let transfer = Transfer {
        bytes: size.get(),
        initial_window: 10,
        connected: false,
    };
    let of = |hop: &HopEstimate| {
        let steady = hop.all_streams.goodput_bps.min(chain.throughput_bps);
        slow_start::completion(transfer, &hop.path, steady, hop.single.control)
    };
    let all: Vec<_> = chain_hops(plan, chain).map(|(_, hop)| of(hop)).collect();
    let first = all
        .iter()
        .fold(Time::ZERO, |sum, done| sum + done.first_byte);
    let rest = all
        .iter()
        .map(|done| done.last_byte - done.first_byte)
        .max();
    first + rest.unwrap_or(Time::ZERO)
}

/// Returns the report as JSON.
pub(super) fn json(plan: &Plan, config: &Config) -> Value {
    let chain = |chain: &Chain| {
        let names: Vec<_> = chain
            .sites
            .iter()
            .map(|&site| plan.sites.name(site))
            .collect();
        json!({
            "sites": names,
            "relays": chain.relays(),
            "bottleneck_bps": chain.bottleneck_bps,
            "throughput_bps": chain.throughput_bps,
            "rtt_s": chain.rtt_s,
            "last_byte_s": config.size.map(|size| completion(plan, chain, size).as_secs_f64()),
        })
    };
    let hop = |([from, to], hop): ([usize; 2], &HopEstimate)| {
        json!({
            "from": plan.sites.name(from), "to": plan.sites.name(to),
            "rtt_s": hop.path.rtt_s(), "loss": hop.path.loss, "rate_bps": hop.path.rate.bits(),
            "cc": hop.single.control.name(), "one_stream_bps": hop.single.goodput_bps,
            "method": hop.single.source, "limited_by": hop.single.limit.to_string(),
            "streams_to_fill": hop.streams_to_fill, "window_bytes": window(plan, hop).get(),
        })
    };
    let memory = relay_memory(plan, config);
    json!({
        "best": chain(&plan.best),
        "hops": chain_hops(plan, &plan.best).map(hop).collect::<Vec<_>>(),
        "relays": memory.iter().map(|(name, windows, all)| json!({
            "site": name, "window_in_bytes": windows[0].get(), "window_out_bytes": windows[1].get(),
            "memory_bytes": all.get(),
        })).collect::<Vec<_>>(),
        "chains": distinct_chains(plan).iter().map(|(found, _)| chain(found)).collect::<Vec<_>>(),
        "simulation_skipped": plan.hops.simulation_skipped,
    })
}
