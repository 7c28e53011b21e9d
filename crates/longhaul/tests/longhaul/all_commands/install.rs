// SPDX-License-Identifier: MIT OR Apache-2.0
//! `make install` and `make uninstall`, below a directory of the test's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `make TARGET` with the tests' binary in place of the one that `make build` makes.
fn make(target: &str, destination: &Path) -> String {
    let release = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    let output = Command::new("make")
        .args(["-s", "-o", "build", target])
        .arg(format!("DESTDIR={}", destination.display()))
        .arg(format!("RELEASE={}", release.display()))
        .env_remove("MAKEFLAGS")
        .current_dir(root())
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output_text}{output:?}");
    output_text
}

fn run(binary: &Path, args: &[&str]) -> Output {
    Command::new(binary).args(args).output().unwrap()
}

#[test]
fn installs_and_uninstalls_everything_below_destdir() {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    make("install", directory.path());
    let (binary, config) = (at("usr/local/bin/longhaul"), at("etc/longhaul/relay.toml"));
    let checked = run(
        &binary,
        &[
            "relay",
            "--check-config",
            "--config",
            config.to_str().unwrap(),
        ],
    );
    assert!(checked.status.success(), "{checked:?}");
    let printed = run(&binary, &["relay", "--print-default-config"]).stdout;
    let printed = String::from_utf8(printed).unwrap();
    // The packages' schema is below /usr.
    let printed = printed.replacen("#:schema /usr/", "#:schema /usr/local/", 1);
    assert!(fs::read_to_string(&config).unwrap() == printed);
    for command in ["relay", "site"] {
        let unit = at(&format!(
            "usr/local/lib/systemd/system/longhaul-{command}.service"
        ));
        let unit = fs::read_to_string(unit).unwrap();
        let start = format!("ExecStart=/usr/local/bin/longhaul {command} ");
        assert!(unit.contains(&start), "{unit}");
    }
    for file in [
        "lib/sysusers.d/longhaul.conf",
        "lib/tmpfiles.d/longhaul.conf",
        "share/bash-completion/completions/longhaul",
        "share/doc/longhaul/decisions/striping.md",
        "share/doc/longhaul/start/slow-path.md",
        "share/fish/vendor_completions.d/longhaul.fish",
        "share/longhaul/link.schema.json",
        "share/longhaul/relay.schema.json",
        "share/longhaul/scenario.schema.json",
        "share/man/man1/longhaul-site-token-new.1",
        "share/zsh/site-functions/_longhaul",
    ] {
        assert!(at("usr/local").join(file).exists(), "{file}");
    }
    let page = fs::read_to_string(at("usr/local/share/man/man1/longhaul-relay.1")).unwrap();
    assert!(
        page.contains("/usr/local/share/doc/longhaul/relay.md"),
        "{page}"
    );
    let help = run(&binary, &["relay", "--help"]).stdout;
    let help = String::from_utf8(help).unwrap();
    let (_, named) = help.rsplit_once("Manual: ").unwrap();
    assert!(Path::new(named.trim()).exists(), "{named}");

    let broken = broken_links(&at("usr/local/share/doc/longhaul"));
    assert!(broken.is_empty(), "{broken:?}");

    make("uninstall", directory.path());
    let left: Vec<_> = files_below(directory.path());
    assert!(left.is_empty(), "{left:?}");
}

/// Returns the links of the manual's pages that lead to no file, with the page of each.
fn broken_links(manual: &Path) -> Vec<(PathBuf, String)> {
    let pages = files_below(manual);
    let links = pages
        .iter()
        .filter(|page| page.extension().is_some_and(|extension| extension == "md"))
        .flat_map(|page| {
            let text = fs::read_to_string(page).unwrap();
            local_links(&text)
                .map(|link| (page.clone(), link))
                .collect::<Vec<_>>()
        });
    links
        .filter(|(page, link)| !page.parent().unwrap().join(link).exists())
        .collect()
}

/// Returns the targets of the links to files of the same manual, without the fragment.
fn local_links(text: &str) -> impl Iterator<Item = String> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', '#']).next()?;
        (!target.is_empty() && !target.contains("://")).then(|| target.to_owned())
    })
}

#[test]
fn keeps_existing_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("etc/longhaul/relay.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "# mine\n").unwrap();
    let output_text = make("install", directory.path());
    assert!(output_text.contains("stays as it is"), "{output_text}");
    make("uninstall", directory.path());
    assert_eq!(files_below(directory.path()), std::slice::from_ref(&config));
    assert_eq!(fs::read_to_string(config).unwrap(), "# mine\n");
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
