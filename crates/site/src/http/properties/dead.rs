// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dead properties (RFC 4918 §4.1), which clients set and the site does not interpret. They are stored in an extended
//! attribute of the file or directory, and so move and copy with it.

use crate::http::{
    export::{attributes, files::Files},
    request::{
        properties::Change,
        xml::{Name, read_elements},
    },
    response::{Outcome, Rejection},
};
use longhaul_store::path::RelPath;
use serde::{Deserialize, Serialize};

const ATTRIBUTE: &[u8] = b"user.longhaul.properties";

/// Size of all properties of a file at most, in bytes of JSON. ext4 stores some 4,000.
const LEN_MAX: usize = 16 << 10;

/// Dead property.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Property {
    #[serde(flatten)]
    pub(super) name: Name,
    /// XML element of the property.
    pub(super) text: String,
}

impl Property {
    /// Returns whether the text is one element of this name. Other programs can write the attribute, too, and invalid
    /// XML would break every listing that contains it.
    fn is_valid(&self) -> bool {
        let text = self.text.as_bytes();
        read_elements(text, &self.name, usize::MAX, |_, _| {}).is_ok() && !text.starts_with(b"<?")
    }
}

/// Returns the dead properties of a file or a directory.
pub(super) fn of(files: &Files, path: Option<&RelPath>) -> Outcome<Vec<Property>> {
    let value = attributes::read(files.open_any(path)?, ATTRIBUTE)?;
    Ok(read(&value.unwrap_or_default()))
}

fn read(value: &[u8]) -> Vec<Property> {
    let mut properties: Vec<Property> = serde_json::from_slice(value).unwrap_or_default();
    properties.retain(Property::is_valid);
    properties
}

/// Makes all changes or none.
pub(super) fn change(files: &Files, path: Option<&RelPath>, changes: &[Change]) -> Outcome<()> {
    let file = files.open_any(path)?;
    let value = attributes::read(&file, ATTRIBUTE)?;
    let mut properties = read(&value.unwrap_or_default());
    for Change { name, text } in changes.iter().cloned() {
        properties.retain(|property| property.name != name);
        properties.extend(text.map(|text| Property { name, text }));
    }
    let value = serde_json::to_vec(&properties);
    let value = value.map_err(|_| Rejection(500, "the properties can't be stored"))?;
    if value.len() > LEN_MAX {
        return Err(Rejection(507, "the properties are longer than 16 KiB"));
    }
    let value = (!properties.is_empty()).then_some(&*value);
    attributes::write(&file, ATTRIBUTE, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_invalid_properties() {
        let property = |text: &str| Property {
            name: Name::new("urn:x", "a"),
            text: text.to_owned(),
        };
        let good = property("<a xmlns='urn:x'>1</a>");
        for bad in [
            "",
            "x",
            "<a xmlns='urn:x'>",
            "<b xmlns='urn:x'/>",
            "<a/>",
            "<a xmlns='urn:x'/><a xmlns='urn:x'/>",
            "<?xml version='1.0'?><a xmlns='urn:x'/>",
            "<!DOCTYPE a><a xmlns='urn:x'/>",
        ] {
            let value = serde_json::to_vec(&[property(bad), good.clone()]).unwrap();
            assert_eq!(read(&value), std::slice::from_ref(&good), "{bad}");
        }
        assert_eq!(read(b"junk"), []);
    }
}
