// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schema of the configuration file, by which editors complete and check it. It comes from the structs of
//! [`super::settings`] and their comments. Values that a text gives are described here.

use super::settings::Settings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::{borrow::Cow, fs, path::Path};

/// Describes a value that is written in its own way.
macro_rules! describe {
    ($name:ident, $schema:tt) => {
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

// A number may have a sign and underscores, and blanks around it and its unit.
describe!(BitRate, {
    "type": "string",
    "pattern": r"^\s*\+?[0-9._]+\s*[kKmMgGtT]?([bB][iI][tT][sS]?(/[sS])?|[bB]ps|[bB]/s)\s*$",
    "description": "A bit rate, such as 10gbit or 12.5MB/s",
});
describe!(Bytes, {
    "oneOf": [
        { "type": "number", "minimum": 0 },
        { "type": "string", "pattern": r"^\s*\+?[0-9._]+\s*([kKmMgGtT]?[iI]?[bB]|[kKmMgGtT]?)\s*$" },
    ],
    "description": "A size in bytes, or with a unit, such as 64KiB or 4.7GB",
});
describe!(Time, {
    "type": "string",
    "pattern": r"^\s*\+?([0-9._]+\s*(ns|us|µs|μs|ms|s|sec|min|m|h|d)|[0._]+)\s*$",
    "description": "A time, such as 26ms, 10s, 2m, 3h or 1d",
});
describe!(Streams, {
    "anyOf": [
        { "const": "auto", "description": "As many as the windows of the hosts make necessary" },
        { "type": "integer", "minimum": 1, "maximum": 16 },
        { "type": "string", "pattern": "^([1-9]|1[0-6])$" },
    ],
});
describe!(Ports, {
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

/// `UPDATE_SCHEMA=1` in the environment writes the file again.
#[test]
fn file_in_dist_is_the_schema_of_the_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/relay.schema.json");
    let mut schema = schemars::schema_for!(Settings);
    schema.insert("title".into(), "Configuration of longhaul relay".into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "dist/relay.schema.json is old: run this test with UPDATE_SCHEMA=1"
    );
}
