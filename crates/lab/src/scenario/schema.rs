// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schema of a scenario, by which editors complete and check it. It comes from the structs of this folder, the options
//! of the commands behind its tables, and the schemas of links and of the relay's configuration.

use super::{RelayProgram, Scenario};
use crate::check::keys;
pub(super) use longhaul_testprograms::schema::{Bytes, Time};
use longhaul_testprograms::{describe, schema};
use schemars::{Schema, transform::transform_subschemas};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

describe!(Value, "Any value.", {});
describe!(Table, "Values by their names.", { "type": "object" });
describe!(BoolOrAll, "A boolean, or a list of booleans that must all be true.", {
    "type": ["boolean", "array"],
    "items": { "type": "boolean" },
});
describe!(Pacing, "A rate of payload such as 800mbit, or true.", { "type": ["boolean", "string"] });
describe!(FigureKind, "Kind of a figure.", { "enum": ["line", "bars", "heatmap", "matrix", "cdf"] });
describe!(
    RelayConfig,
    "Replaced by the schema of the relay's configuration",
    {}
);

/// Text with a parameter, which may stand in place of any value.
const PLACEHOLDER: &str = r"\$\{\w+\}";

/// Adds the definitions of another schema, and returns the rest of it.
fn add_definitions(own: &mut Map<String, Json>, mut other: Schema) -> Schema {
    let definitions = other.remove("$defs");
    let definitions = definitions.as_ref().and_then(Json::as_object);
    for (name, schema) in definitions.into_iter().flatten() {
        let own = own.entry(name).or_insert(schema.clone());
        assert!(own == schema, "two different schemas are named {name}");
    }
    other
}

/// Adds the options of a command to the lab's own keys of a table, as far as they are described. No other key is valid.
fn add_options(table: &mut Json, keys: BTreeSet<String>, described: &Json) {
    let own = table["properties"].as_object_mut().unwrap();
    for key in keys {
        let option = described.get(&key).cloned().unwrap_or(json!({}));
        own.entry(key).or_insert(option);
    }
    table["additionalProperties"] = false.into();
    schema::accept_both_spellings(table.try_into().unwrap());
}

/// Accepts a text with a parameter in place of every value. Only the type says so, where that suffices: editors name the
/// wrong key of a table, but not that of an alternative.
fn accept_placeholders(schema: &mut Schema) {
    transform_subschemas(&mut accept_placeholders, schema);
    let alternatives = schema.remove("oneOf").or(schema.remove("anyOf"));
    if let Some(Json::Array(mut all)) = alternatives {
        all.push(json!({ "type": "string", "pattern": PLACEHOLDER }));
        schema.insert("anyOf".to_owned(), all.into());
    } else if let Some(values) = schema.remove("enum") {
        let all = json!([{ "enum": values }, { "type": "string", "pattern": PLACEHOLDER }]);
        schema.insert("anyOf".to_owned(), all);
    } else {
        accept_placeholder(schema);
    }
}

/// Accepts such a text in place of a value of the schema's types.
fn accept_placeholder(schema: &mut Schema) {
    let mut types = match schema.get("type") {
        Some(Json::Array(types)) => types.clone(),
        Some(one) => vec![one.clone()],
        None => return,
    };
    let text = schema.get("pattern").and_then(Json::as_str);
    let pattern = text.map(|text| format!("{text}|{PLACEHOLDER}"));
    if !types.contains(&json!("string")) {
        types.push("string".into());
        schema.insert("type".to_owned(), types.into());
        schema.insert("pattern".to_owned(), PLACEHOLDER.into());
    } else if let Some(pattern) = pattern {
        schema.insert("pattern".to_owned(), pattern.into());
    }
}

/// Adds the options of links, as their own schema describes them.
fn add_links(own: &mut Map<String, Json>) {
    add_definitions(own, schema::read("link.schema.json"));
    let described = own.remove("LinkOptions").unwrap();
    let keys = keys::link_keys().unwrap();
    add_options(&mut own["Link"], keys, &described["properties"]);
}

/// Adds the options of relays, and the schema of their configuration.
fn add_relays(own: &mut Map<String, Json>) {
    let mut config = add_definitions(own, schema::read("relay.schema.json"));
    for key in ["$schema", "title"] {
        config.remove(key);
    }
    own.insert("RelayConfig".to_owned(), config.to_value());
    // The lab makes the certificates for `tls = true`.
    let certificates = json!({ "anyOf": [own["TlsSettings"], { "type": "boolean" }] });
    own.insert("TlsSettings".to_owned(), certificates);
    let keys = keys::relay_keys(RelayProgram::Longhaul).unwrap();
    add_options(&mut own["Relay"], keys, &Json::Null);
}

#[test]
fn file_in_dist_is_the_schema_of_scenarios() {
    let mut scenario = schemars::schema_for!(Scenario);
    let own = scenario.get_mut("$defs").and_then(Json::as_object_mut);
    let own = own.unwrap();
    add_links(own);
    add_relays(own);
    add_options(&mut own["Decp"], keys::decp_keys().unwrap(), &Json::Null);
    accept_placeholders(&mut scenario);
    schema::assert_written("scenario.schema.json", "Scenario of longhaul lab", scenario);
}
