// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schema of the configuration file, by which editors complete and check it. It comes from the structs of
//! [`super::settings`] and their comments. Values that a text gives are described here.

use super::settings::Settings;
pub(super) use longhaul_testprograms::schema::{BitRate, Bytes, Time};
use longhaul_testprograms::{describe, schema};
use schemars::JsonSchema;

describe!(Streams, "A number of connections, or auto", {
    "anyOf": [
        { "const": "auto", "description": "As many as the windows of the hosts make necessary" },
        { "type": "integer", "minimum": 1, "maximum": 16 },
        { "type": "string", "pattern": "^([1-9]|1[0-6])$" },
    ],
});
describe!(Ports, "A port, or a range such as 8000-8080", {
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

#[test]
fn file_in_dist_is_the_schema_of_the_settings() {
    let schema = schemars::schema_for!(Settings);
    schema::assert_written(
        "relay.schema.json",
        "Configuration of longhaul relay",
        schema,
    );
}
