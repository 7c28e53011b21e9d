// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference configuration, which explains every key and shows the defaults. It is a valid file, ready to install. A test
//! writes it from the comments of [`super::settings`] and [`super::options`].

/// Text of the reference configuration. Keys with a default are commented out.
pub(crate) const TEXT: &str = include_str!("relay.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        authority,
        config::{
            Config,
            certificates::TlsSettings,
            options::{AdminSettings, CounterSettings, LimitSettings},
            schema,
            settings::{ListenerSettings, PeerSettings, ProfileSettings, RouteSettings, Settings},
        },
    };
    use longhaul_testprograms::schema::assert_text;
    use serde::de::DeserializeOwned;
    use serde_json::Value;
    use std::{collections::BTreeSet, fmt::Write as _};

    const TITLE: &str = "\
#:schema /usr/share/longhaul/relay.schema.json
# Configuration of longhaul relay: every key, as `longhaul relay --print-default-config` prints it.
#
# Unchanged, this file is a SOCKS5 proxy for this machine, and everything else is at its default.
# A line `#key = value` shows the default: removing the # changes nothing until the value is changed. A line
# that ends with `# example` has no default value; the text says what applies without the key. A key with
# `# required` must be present in its table. Tables may be repeated: [[…]] as they are, [peer.…] and
# [profile.…] under other names.
#
# Relative paths are relative to the directory of this file.
#
# Quantities have units: \"10gbit\" (bit/s), \"1MiB\", \"4.7GB\", \"26ms\", \"2m\". Check the file with
# `longhaul relay --config FILE --check-config`; SIGHUP makes a running relay read it again.
# The page relay.md of the manual explains it.
";

    /// A table of the file.
    struct Table {
        /// Comment before the table.
        text: String,
        /// Line that begins it; empty for the keys before all tables.
        header: &'static str,
        keys: Vec<Key>,
    }

    struct Key {
        text: String,
        /// `key = value`.
        setting: String,
        role: Role,
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Role {
        Default,
        Example,
        Required,
    }

    /// Tables of the file in its order.
    struct Tables {
        schema: Value,
        tables: Vec<Table>,
    }

    impl Tables {
        /// Adds the keys of `T` for which `is_shown`. Those with `values` are required.
        fn add<T: DeserializeOwned>(
            &mut self,
            text: &str,
            header: &'static str,
            values: &[(&str, &str)],
            is_shown: impl Fn(&str, &str) -> bool,
        ) {
            let definition = definition::<T>(&self.schema);
            let keys = keys::<T>().into_iter().filter_map(|key| {
                let property = &definition["properties"][&key];
                let described = property["description"].as_str().unwrap_or_default();
                let value = values.iter().find(|(name, _)| *name == key);
                is_shown(&key, described).then(|| {
                    assert!(!described.is_empty(), "{header} {key} has no comment");
                    Key::new(&key, property, value.map(|(_, value)| *value))
                })
            });
            let (text, keys) = (text.to_owned(), keys.collect());
            self.tables.push(Table { text, header, keys });
        }

        /// Comment of a key of `T`, for the table that is its value.
        fn comment<T: DeserializeOwned>(&self, key: &str) -> String {
            let property = &definition::<T>(&self.schema)["properties"][key];
            comment(property["description"].as_str().unwrap())
        }
    }

    /// Definition of a type in the schema, which is that of `Settings`.
    fn definition<T>(schema: &Value) -> &Value {
        match std::any::type_name::<T>().rsplit("::").next().unwrap() {
            "Settings" => schema,
            name => schema["$defs"]
                .get(name)
                .unwrap_or_else(|| panic!("no {name}")),
        }
    }

    /// Keys that serde accepts, in the order of the struct.
    fn keys<T: DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("no_such_key = 1").err().unwrap();
        let (_, expected) = error.message().split_once("expected").unwrap();
        let quoted = expected.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    }

    impl Key {
        fn new(key: &str, property: &Value, required: Option<&str>) -> Self {
            let default = property.get("default").filter(|value| !value.is_null());
            let (value, role) = match (required, default, property["examples"].get(0)) {
                (Some(value), ..) => (format!("{value:?}"), Role::Required),
                (_, _, Some(example)) => (example.to_string(), Role::Example),
                (_, Some(default), _) => (default.to_string(), Role::Default),
                _ if property["type"] == "array" => ("[]".to_owned(), Role::Default),
                _ => panic!("{key} has neither a default nor an example: {property}"),
            };
            Self {
                text: comment(property["description"].as_str().unwrap()),
                setting: format!("{key} = {value}"),
                role,
            }
        }

        fn line(&self, is_active: bool) -> String {
            let (mark, note) = match self.role {
                Role::Required if is_active => ("", "# required"),
                Role::Required => ("#", "# required"),
                Role::Example => ("#", "# example"),
                Role::Default => ("#", ""),
            };
            let line = format!("{:<40}{note}", format!("{mark}{} ", self.setting));
            line.trim_end().to_owned() + "\n"
        }
    }

    /// A text as lines of a comment. The listener's kind, which the table shows, is left out, and the default, which the
    /// line shows.
    fn comment(text: &str) -> String {
        let kinds = [
            "forward: ",
            "transparent: ",
            "convert: ",
            "Peers: ",
            "Listeners: ",
        ];
        let text = match kinds.iter().find_map(|kind| text.strip_prefix(kind)) {
            Some(text) => text[..1].to_uppercase() + &text[1..],
            None => text.to_owned(),
        };
        let mut lines = vec![String::from("#")];
        for word in text.split_whitespace() {
            if lines.last().unwrap().chars().count() + word.chars().count() > 110 {
                lines.push(String::from("#"));
            }
            write!(lines.last_mut().unwrap(), " {word}").unwrap();
        }
        lines.join("\n") + "\n"
    }

    fn section(title: &str) -> String {
        let line = format!("# ── {title} ");
        format!("{line}{}\n", "─".repeat(100 - line.chars().count()))
    }

    fn tables() -> Vec<Table> {
        let schema = serde_json::to_value(schema::schema()).unwrap();
        let mut all = Tables {
            schema,
            tables: Vec::new(),
        };
        let (values, tables) = (
            ["allow_from", "allow_local", "mtu_probing"],
            [
                "listener", "peer", "route", "profile", "limits", "counters", "admin",
            ],
        );
        assert_eq!(keys::<Settings>(), [&values[..], &tables[..]].concat());
        all.add::<Settings>("", "", &[], |key, _| values.contains(&key));
        add_listeners(&mut all);
        add_peers(&mut all);
        let text = section("Routes") + &all.comment::<Settings>("route");
        all.add::<RouteSettings>(&text, "[[route]]", &[], |_, _| true);
        let text = section("Profiles") + &all.comment::<Settings>("profile");
        all.add::<ProfileSettings>(&text, "[profile.upstream]", &[], |_, _| true);
        all.add::<LimitSettings>(&section("Limits"), "[limits]", &[], |_, _| true);
        all.add::<CounterSettings>(&section("Counters"), "[counters]", &[], |_, _| true);
        all.add::<AdminSettings>(&section("Admin endpoint"), "[admin]", &[], |_, _| true);
        all.tables
    }

    /// Adds a table for each kind of listener that has keys of its own. Their comments begin with the kind.
    fn add_listeners(all: &mut Tables) {
        let text = section("Listeners")
            + "# This first listener shows the keys that every kind of listener has.\n"
            + &all.comment::<Settings>("listener");
        let kinds = ["forward", "transparent", "convert"];
        let of_kind = |kind: &str, text: &str| text.starts_with(&format!("{kind}: "));
        let values = [("kind", "socks5"), ("address", "127.0.0.1:1080")];
        all.add::<ListenerSettings>(&text, "[[listener]]", &values, |_, text| {
            !kinds.iter().any(|kind| of_kind(kind, text))
        });
        for (kind, port, text) in [
            (
                "forward",
                8080,
                "# A fixed destination, for clients that know nothing of relays.\n",
            ),
            (
                "transparent",
                3129,
                "# Connections that the kernel diverts. Needs CAP_NET_ADMIN.\n",
            ),
            (
                "convert",
                5124,
                "# Other relays as clients. Put it at the remote end of the long path.\n",
            ),
        ] {
            let address = format!("127.0.0.1:{port}");
            let values = [
                ("kind", kind),
                ("address", &address),
                ("destination", "www.example.org:80"),
            ];
            all.add::<ListenerSettings>(text, "[[listener]]", &values, |key, text| {
                ["kind", "address"].contains(&key) || (of_kind(kind, text) && key != "tls")
            });
        }
        let text = all.comment::<ListenerSettings>("tls");
        add_tls(all, &text, "[listener.tls]", "tokyo", "Peers: ");
    }

    fn add_peers(all: &mut Tables) {
        let text = section("Peers") + &all.comment::<Settings>("peer");
        let values = [("address", "192.0.2.9")];
        all.add::<PeerSettings>(&text, "[peer.tokyo]", &values, |key, _| key != "tls");
        let text = all.comment::<PeerSettings>("tls");
        add_tls(all, &text, "[peer.tokyo.tls]", "here", "Listeners: ");
    }

    fn add_tls(all: &mut Tables, text: &str, header: &'static str, name: &str, other: &str) {
        let file = |name: &str| format!("/etc/longhaul/{name}.pem");
        let (certificate, key) = (file(name), file(&format!("{name}-key")));
        let values = [
            ("ca", &file("ca")),
            ("certificate", &certificate),
            ("key", &key),
        ];
        let values = values.map(|(key, value)| (key, value.as_str()));
        all.add::<TlsSettings>(text, header, &values, |_, text| !text.starts_with(other));
    }

    #[test]
    fn file_explains_every_key_by_the_comments_of_the_settings() {
        let mut text = TITLE.to_owned();
        let mut explained = BTreeSet::new();
        for (n, table) in tables().into_iter().enumerate() {
            let is_active = n == 1;
            let mark = if is_active || n == 0 { "" } else { "#" };
            write!(text, "\n{}{mark}{}\n", table.text, table.header).unwrap();
            for key in table.keys {
                let line = key.line(is_active);
                // Tables of one kind share keys.
                if explained.insert(key.text.clone()) {
                    text.push_str(&key.text);
                }
                text.push_str(&line);
            }
        }
        assert_text("relay.toml", &text.replace("\n\n\n", "\n\n"));
    }

    /// Valid file that contains table `chosen` with the line `more`.
    fn valid_file(tables: &[Table], chosen: usize, more: &str) -> String {
        let path = |table: &Table| table.header.trim_matches(['[', ']']).to_owned();
        let parent = |n: &usize| path(&tables[chosen]).starts_with(&(path(&tables[*n]) + "."));
        let parent = (0..chosen).rfind(parent);
        let is_there = |n: &usize| [0, 1, chosen].contains(n) || Some(*n) == parent;
        let text = |n: usize| {
            let required = tables[n]
                .keys
                .iter()
                .filter(|key| key.role == Role::Required);
            let lines: String = required.map(|key| format!("{}\n", key.setting)).collect();
            let more = if n == chosen { more } else { "" };
            format!("{}\n{lines}{more}\n", tables[n].header)
        };
        (0..tables.len()).filter(is_there).map(text).collect()
    }

    fn checked(text: &str) -> Config {
        let settings = toml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        Config::new(&settings).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// Checks each line of this role in a file of its own, with certificates.
    fn for_each(role: Role, check: impl Fn(Config, Settings, &str)) {
        let directory = tempfile::tempdir().unwrap();
        let names = ["here", "tokyo"].map(str::to_owned);
        authority::make(directory.path(), &names).unwrap();
        let path = directory.path().to_str().unwrap();
        let tables = tables();
        for (n, table) in tables.iter().enumerate() {
            let file = |more| valid_file(&tables, n, more).replace("/etc/longhaul", path);
            for key in table.keys.iter().filter(|key| key.role == role) {
                let with = toml::from_str(&file(&key.setting));
                let with = with.unwrap_or_else(|e| panic!("{}: {e}", key.setting));
                check(checked(&file("")), with, &key.setting);
            }
        }
    }

    #[test]
    fn shows_true_defaults() {
        for_each(Role::Default, |without, with, line| {
            let with = Config::new(&with).unwrap();
            assert!(format!("{without:#?}") == format!("{with:#?}"), "{line}");
        });
    }

    #[test]
    fn parses_every_example() {
        for_each(Role::Example, |_, _, _| {});
    }

    #[test]
    fn help_of_other_flags_has_the_same_defaults() {
        use clap::Args as _;
        let command = crate::Args::augment_args(clap::Command::new("relay"));
        let schema = serde_json::to_value(schema::schema()).unwrap();
        for (id, key) in [("peer_pool", "pool"), ("streams", "streams")] {
            let mut arguments = command.get_arguments();
            let help = arguments.find(|arg| arg.get_id() == id).unwrap().get_help();
            let default = &definition::<PeerSettings>(&schema)["properties"][key]["default"];
            let want = format!("[default: {}]", default.to_string().trim_matches('"'));
            assert!(help.unwrap().to_string().contains(&want), "{id}: {want}");
        }
    }

    #[test]
    fn unchanged_file_serves_only_this_host() {
        let config = checked(TEXT);
        let [listener] = &config.listeners[..] else {
            panic!("{:?}", config.listeners);
        };
        assert!(listener.address.ip().is_loopback() && listener.allow_from.is_empty());
        assert!(config.peers.is_empty() && config.policy.rules.is_empty());
    }
}
