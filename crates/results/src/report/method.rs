// SPDX-License-Identifier: MIT OR Apache-2.0
//! Section about the measurement: checks, machine, statistics of the emulator, and settings.

use crate::result::{About, Check, Host, LabResult, LinkStats};
use longhaul_report::{
    count::counted,
    metric::{Metric, format_percent},
    table::{Table, table},
};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(super) fn section(result: &LabResult) -> Markup {
    html! {
        (checks(&result.checks))
        section {
            h2 { "Method" }
            @if let Some(about) = &result.about { (origin(about)) }
            (machine(result))
            (links(&result.links))
            (settings("Kernel settings", &result.host.sysctl))
            (settings("Offloads of the emulated interfaces", &result.host.offloads))
            details {
                summary { "Scenario with all defaults" }
                pre tabindex="0" { (serde_json::to_string_pretty(&result.resolved).unwrap_or_default()) }
            }
        }
    }
}

fn checks(checks: &[Check]) -> Markup {
    html! {
        @if !checks.is_empty() {
            section id="checks" {
                h2 { "Checks" }
                (table("Checks", ["Result", "Check", "Threshold", "Measured"], checks.iter().map(check_row)))
            }
        }
    }
}

fn check_row(check: &Check) -> Markup {
    html! {
        tr {
            td {
                @if check.pass { span.pass { "✓ pass" } }
                @else if check.failed() { span.fail { "✗ fail" } }
                @else { span { "? undecided" } }
            }
            th scope="row" { (check.name) @if let Some(why) = &check.undecided { small { (why) } } }
            td { (check.threshold) }
            td { (check.value_text()) }
        }
    }
}

fn origin(about: &About) -> Markup {
    html! {
        @if let Some(source) = &about.source { p { "Source of the reference values: " (source) "." } }
        @if !about.notes.is_empty() {
            p { @if about.source.is_some() { "Differences from the source:" } @else { "Notes:" } }
            ul { @for note in &about.notes { li { (note) } } }
        }
        @if let Some(command) = &about.command { p { "Command: " code { (without_directory(command)) } } }
    }
}

/// Returns a command without the directory of the program.
fn without_directory(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or(command);
    &command[program.rfind('/').map_or(0, |slash| slash + 1)..]
}

fn machine(result: &LabResult) -> Markup {
    let Host {
        kernel,
        cpus,
        cpu,
        programs,
        ..
    } = &result.host;
    let programs: Vec<String> = programs
        .iter()
        .map(|(name, v)| format!("{name} {v}"))
        .collect();
    html! {
        dl {
            dt { "Machine" }
            dd { (cpus) " CPUs" @if let Some(cpu) = cpu { ", " (cpu) } ", Linux " (kernel) }
            dt { "Software" }
            dd { "longhaul " (result.longhaul) @for program in &programs { ", " (program) } }
            dt { "Started" }
            dd { time datetime=(result.started) { (result.started.strftime("%Y-%m-%d %H:%M UTC")) } }
            dt { "Seed" }
            dd { (result.seed) }
            @if result.retries() > 0 {
                dt { "Retries" }
                dd { (counted(result.retries().into(), "run")) ", because the emulator was late" }
            }
        }
    }
}

fn links(links: &[LinkStats]) -> Markup {
    const COLUMNS: [&str; 7] = [
        "Link",
        "Delivery",
        "Median delay error",
        "99th percentile",
        "Maximum",
        "Packets",
        "Dropped",
    ];
    let table = Table {
        label: "Emulated links",
        caption: "Delay error: actual minus planned departure of each packet.",
        ..Table::default()
    };
    html! {
        @if !links.is_empty() {
            h3 { (table.label) }
            (table.render(COLUMNS, links.iter().map(link_row)))
        }
    }
}

fn link_row(link: &LinkStats) -> Markup {
    let micros = |value: f64| Metric::of("x_us").format(value);
    html! {
        tr {
            th scope="row" { (link.name) }
            td { (link.mode) }
            td { (micros(link.delay_error_us.median)) }
            td { (micros(link.delay_error_us.p99)) }
            td { (micros(link.delay_error_us.max)) }
            td { (link.packets.map_or("–".to_owned(), |n| Metric::of("packets").format(n as f64))) }
            td { (describe_drops(link)) }
        }
    }
}

/// Describes the dropped packets by cause: "1432 queue (0.1 %)".
fn describe_drops(link: &LinkStats) -> String {
    let share = |n: u64| match link.packets {
        Some(all) if all > 0 => format!(" ({})", format_percent(n as f64 / all as f64)),
        _ => String::new(),
    };
    let causes = link.drops.iter().filter(|(_, n)| **n > 0);
    let texts: Vec<String> = causes
        .map(|(cause, n)| format!("{n} {cause}{}", share(*n)))
        .collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}

fn settings(title: &str, values: &BTreeMap<String, String>) -> Markup {
    let row = |(name, value): (&String, &String)| {
        html! { tr { th scope="row" { code { (name) } } td { code { (value) } } } }
    };
    let rows = values.iter().map(row);
    html! {
        @if !values.is_empty() {
            details { summary { (title) } (table(title, ["Name", "Value"], rows)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_directory_of_the_program() {
        assert_eq!(
            without_directory("/usr/bin/longhaul lab run /x/y.toml"),
            "longhaul lab run /x/y.toml"
        );
        assert_eq!(
            without_directory("longhaul lab run a"),
            "longhaul lab run a"
        );
    }
}
