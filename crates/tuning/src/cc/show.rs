// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul cc show`: parameters, state fields and programs of one congestion control.

use super::{
    config::Show,
    load::parameters_json,
    output::{print, table},
};
use anyhow::Result;
use longhaul_congestion::{
    Error,
    loader::{self, Loaded, Program},
    math::{Algorithm, Field, Parameter},
    socket_parameters,
    watch::Watch,
};
use longhaul_report::count::counted;
use serde_json::{Value, json};
use std::time::SystemTime;

/// State of a loaded congestion control in the kernel.
struct State {
    loaded: Loaded,
    parameters: Vec<u32>,
    programs: Vec<Program>,
    /// Not every kernel lets a program walk through connections.
    connections: Result<usize, Error>,
}

/// Runs the command.
pub(super) fn run(config: &Show) -> Result<()> {
    let algorithm = config.algorithm;
    // Without root the loaded state cannot be read; the rest is shown.
    let state = state(config);
    let state = match state {
        Err(error) if longhaul_linux::process::user() == 0 => return Err(error.refusal()),
        other => other.ok().flatten(),
    };
    if config.json {
        print(&format!("{:#}\n", as_json(algorithm, state.as_ref())))
    } else {
        print(&text(algorithm, state.as_ref()))
    }
}

fn state(config: &Show) -> Result<Option<State>, Error> {
    let Some(loaded) = loader::loaded(&config.pins, config.algorithm)? else {
        return Ok(None);
    };
    Ok(Some(State {
        parameters: loaded.parameters()?,
        programs: loaded.programs()?,
        connections: count_connections(&loaded),
        loaded,
    }))
}

fn count_connections(loaded: &Loaded) -> Result<usize, Error> {
    Ok(Watch::new()?.connections(loaded)?.len())
}

fn as_json(algorithm: Algorithm, state: Option<&State>) -> Value {
    let parameter = |(at, p): (usize, Parameter)| {
        json!({ "name": p.name, "unit": p.unit, "description": p.description, "default": p.default,
            "min": p.min, "max": p.max, "socket_option": socket_parameters::option(algorithm, at) })
    };
    let field = |f: Field| json!({ "name": f.name, "unit": f.unit, "description": f.description });
    let loaded = state.map(|state| {
        json!({
            "version": state.loaded.loaded_by(),
            "loaded_at": loaded_at(&state.loaded),
            "layout_matches": state.loaded.has_same_layout(),
            "transient": state.loaded.is_transient(),
            "per_socket": state.loaded.has_socket_option(),
            "pins": state.loaded.directory(),
            "parameters": parameters_json(algorithm, &state.parameters),
            "programs": state.programs,
            "connections": state.connections.as_ref().ok(),
        })
    });
    json!({
        "name": algorithm.system_name(),
        "socket_option_level": socket_parameters::LEVEL,
        "parameters": algorithm.parameters().enumerate().map(parameter).collect::<Vec<_>>(),
        "state_fields": algorithm.fields().map(field).collect::<Vec<_>>(),
        "loaded": loaded,
    })
}

fn loaded_at(loaded: &Loaded) -> Option<String> {
    let loaded_at: SystemTime = loaded.loaded_at()?;
    Some(
        jiff::Timestamp::try_from(loaded_at)
            .ok()?
            .round(jiff::Unit::Second)
            .ok()?
            .to_string(),
    )
}

fn text(algorithm: Algorithm, state: Option<&State>) -> String {
    let sections = [
        heading(algorithm, state),
        parameters_text(algorithm, state),
        fields_text(algorithm),
        state.map_or(String::new(), |state| programs_text(&state.programs)),
    ];
    let sections: Vec<_> = sections
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    sections.join("\n")
}

fn heading(algorithm: Algorithm, state: Option<&State>) -> String {
    let name = algorithm.system_name();
    let Some(state) = state else {
        let what = match longhaul_congestion::choice::registered().contains(&name) {
            false => "not loaded",
            true if longhaul_linux::process::user() == 0 => "in the kernel, but not pinned here",
            true => "loaded; root sees more",
        };
        return format!("{name}: {what}\n");
    };
    let by = state.loaded.loaded_by();
    let layout = if state.loaded.has_same_layout() {
        ""
    } else {
        "; its layout is another's: parameters and state may be wrong here"
    };
    let users = match &state.connections {
        Ok(connections) => counted(*connections as u64, "socket"),
        Err(reason) => format!("an unknown number of sockets ({reason})"),
    };
    format!(
        "{name}: loaded {} by longhaul {by}, used by {users}{layout}\n",
        loaded_at(&state.loaded).unwrap_or_else(|| "at an unknown time".to_owned()),
    )
}

fn parameters_text(algorithm: Algorithm, state: Option<&State>) -> String {
    let heading = [
        "parameter",
        "now",
        "default",
        "range",
        "unit",
        "socket option",
        "",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (at, p) in algorithm.parameters().enumerate() {
        let now = state.and_then(|state| state.parameters.get(at));
        rows.push(vec![
            p.name.to_owned(),
            now.map_or("-".to_owned(), u32::to_string),
            p.default.to_string(),
            format!("{}..{}", p.min, p.max),
            p.unit.to_owned(),
            socket_parameters::option(algorithm, at).to_string(),
            p.description.to_owned(),
        ]);
    }
    match rows.len() {
        1 => String::new(),
        _ => format!("{}{}", table(&rows), socket_option(state)),
    }
}

fn socket_option(state: Option<&State>) -> String {
    let level = socket_parameters::LEVEL;
    if state.is_some_and(|state| state.loaded.has_socket_option()) {
        format!("for one socket: setsockopt(fd, {level}, option, &value, 4) before it connects\n")
    } else {
        String::new()
    }
}

fn fields_text(algorithm: Algorithm) -> String {
    let mut rows = vec![vec!["state".to_owned(), "unit".to_owned(), String::new()]];
    rows.extend(algorithm.fields().map(|field| {
        vec![
            field.name.to_owned(),
            field.unit.to_owned(),
            field.description.to_owned(),
        ]
    }));
    only_with_rows(&rows)
}

fn programs_text(programs: &[Program]) -> String {
    let heading = ["program", "instructions", "verified", "machine code"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(programs.iter().map(|program| {
        let Program {
            name,
            verified,
            instructions,
            machine_code_bytes,
        } = program;
        vec![
            name.clone(),
            instructions.to_string(),
            verified.to_string(),
            format!("{machine_code_bytes} B"),
        ]
    }));
    only_with_rows(&rows)
}

fn only_with_rows(rows: &[Vec<String>]) -> String {
    match rows.len() {
        1 => String::new(),
        _ => table(rows),
    }
}
