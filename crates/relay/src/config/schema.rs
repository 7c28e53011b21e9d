// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schema of the configuration file, by which editors complete and check it. It comes from the structs of
//! [`super::settings`] and their comments. Values that a text gives are described here.

use super::settings::Settings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::{borrow::Cow, fs, path::Path};

/// Describes a type that a text with a unit gives.
macro_rules! quantity {
    ($name:ident, $pattern:literal, $description:literal) => {
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $description })
            }
        }
    };
}

quantity!(
    BitRate,
    "^[0-9.]+ *[A-Za-z/]+$",
    "A bit rate, such as 10gbit or 12.5MB/s"
);
quantity!(
    Bytes,
    "^[0-9.]+ *[A-Za-z]*$",
    "A size, such as 64KiB or 4.7GB"
);
quantity!(
    Time,
    "^[0-9.]+ *[a-zµ]+$",
    "A time, such as 26ms, 10s or 2m"
);

/// Number of parallel connections.
pub(super) struct Streams;

impl JsonSchema for Streams {
    fn schema_name() -> Cow<'static, str> {
        "Streams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [
            { "const": "auto", "description": "As many as the windows of the hosts make necessary" },
            { "type": "integer", "minimum": 1, "maximum": longhaul_protocol::convert::STRIPES_MAX },
        ] })
    }
}

/// A port or a range of ports.
pub(super) struct Ports;

impl JsonSchema for Ports {
    fn schema_name() -> Cow<'static, str> {
        "Ports".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [
            { "type": "integer", "minimum": 1, "maximum": 65535 },
            { "type": "string", "pattern": "^[0-9]+(-[0-9]+)?$" },
        ] })
    }
}

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
