// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schemas of configuration files, by which editors complete and check them. They come from the structs that read the
//! files and from their comments. Values that a text gives are described here.

use schemars::Schema;
use std::{env, fs};

/// Describes a value that is written in its own way.
#[macro_export]
macro_rules! describe {
    ($name:ident, $description:literal, $schema:tt) => {
        #[doc = $description]
        #[derive(Debug)]
        pub struct $name;

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema = schemars::json_schema!($schema);
                schema.insert("description".into(), $description.into());
                schema
            }
        }
    };
}

// A number may have a sign and underscores, and blanks around it and its unit.
describe!(BitRate, "A bit rate, such as 10gbit or 12.5MB/s.", {
    "type": "string",
    "pattern": r"^\s*\+?[0-9._]+\s*[kKmMgGtT]?([bB][iI][tT][sS]?(/[sS])?|[bB]ps|[bB]/s)\s*$",
});
describe!(Bytes, "A size in bytes, or with a unit, such as 64KiB or 4.7GB.", {
    "oneOf": [
        { "type": "number", "minimum": 0 },
        { "type": "string", "pattern": r"^\s*\+?[0-9._]+\s*([kKmMgGtT]?[iI]?[bB]|[kKmMgGtT]?)\s*$" },
    ],
});
describe!(Time, "A time, such as 26ms, 10s, 2m, 3h or 1d.", {
    "type": "string",
    "pattern": r"^\s*\+?([0-9._]+\s*(ns|us|µs|μs|ms|s|sec|min|m|h|d)|[0._]+)\s*$",
});

/// Adds each key of a table with dashes for underscores, and with underscores for dashes.
///
/// # Panics
/// The schema is not of a table.
pub fn accept_both_spellings(table: &mut Schema) {
    let properties = table.get_mut("properties").unwrap();
    let properties = properties.as_object_mut().unwrap();
    for (key, schema) in properties.clone() {
        properties.insert(key.replace('_', "-"), schema.clone());
        properties.insert(key.replace('-', "_"), schema);
    }
}

/// Path of the repository's file `dist/NAME`.
fn path(name: &str) -> String {
    format!("{}/../../dist/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the schema in `dist/NAME`.
///
/// # Panics
/// The file is missing or no schema.
#[must_use]
pub fn read(name: &str) -> Schema {
    serde_json::from_str(&fs::read_to_string(path(name)).unwrap()).unwrap()
}

/// Asserts that `dist/NAME` is the schema, with this title, as [`assert_text`] does.
///
/// # Panics
/// The file is another schema.
pub fn assert_written(name: &str, title: &str, mut schema: Schema) {
    schema.insert("title".into(), title.into());
    assert_text(
        name,
        &(serde_json::to_string_pretty(&schema).unwrap() + "\n"),
    );
}

/// Asserts that `dist/NAME` has this text. `UPDATE_SCHEMA=1` in the environment writes the file again.
///
/// # Panics
/// The file has another text.
pub fn assert_text(name: &str, text: &str) {
    if env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(path(name), text).unwrap();
    }
    let written = fs::read_to_string(path(name)).unwrap_or_default();
    assert!(
        written == text,
        "dist/{name} is old: run this test with UPDATE_SCHEMA=1"
    );
}
