// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schema of the configuration file, by which editors complete and check it. It comes from the structs of
//! [`super::settings`] and their comments. Values that a text gives are described here.

use super::settings::Settings;
pub(super) use longhaul_testprograms::schema::{BitRate, Bytes, Time};
use longhaul_testprograms::{describe, schema};
use schemars::{
    JsonSchema, Schema,
    transform::{RecursiveTransform, Transform as _},
};
use serde_json::Value;

describe!(Streams, "A number of connections, or auto.", {
    "anyOf": [
        { "const": "auto", "description": "As many as the windows of the hosts make necessary" },
        { "type": "integer", "minimum": 1, "maximum": 16 },
        { "type": "string", "pattern": "^([1-9]|1[0-6])$" },
    ],
});
describe!(Ports, "A port, or a range such as 8000-8080.", {
    "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": 65535 },
        { "type": "string", "pattern": r"^[\s+0-9]+(-[\s+0-9]+)?$" },
    ],
});

/// Rate control of a leg over UDT.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the type of another crate")]
pub(super) enum UdtControl {
    /// Native control of UDT.
    Native,
    /// BBR.
    Bbr,
}

/// Schema of the file. A default that a comment names in brackets becomes the key's.
pub(super) fn schema() -> Schema {
    let mut schema = schemars::schema_for!(Settings);
    RecursiveTransform(take_default).transform(&mut schema);
    schema
}

/// Help texts of flags end without a full stop, and what follows is another paragraph.
fn take_default(schema: &mut Schema) {
    let Some(text) = schema.get("description").and_then(Value::as_str) else {
        return;
    };
    let paragraphs = text.split("\n\n").map(|text| text.trim_end_matches('.'));
    let text = paragraphs.collect::<Vec<_>>().join(". ").replace('\n', " ") + ".";
    let has_example = schema.get("examples").is_some();
    let parts = text.split_once(" [default: ");
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(']')?)));
    let described = match parts {
        Some((before, (value, after))) if has_example => {
            format!("{before}. Default: {value}{after}")
        }
        Some((before, (value, after))) => {
            let default = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            schema.insert("default".into(), default);
            format!("{before}{after}")
        }
        None => text,
    };
    schema.insert("description".into(), described.into());
}

#[test]
fn file_in_dist_is_the_schema_of_the_settings() {
    let title = "Configuration of longhaul relay";
    schema::assert_written("relay.schema.json", title, schema());
}
