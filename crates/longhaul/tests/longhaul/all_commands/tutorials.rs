// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of `docs/start`: every command of a page runs, in order, and prints what the page says.
//!
//! A block ```` ```sh ```` has commands. A block ```` ```text ```` right behind it has their output. Numbers may differ,
//! and `…` stands for any text, or, as a line of its own, for any number of lines. A block ```` ```text example ```` is
//! output that depends on the host: it is not compared.

use longhaul_testprograms::{longhaul, skip::require_root_of_the_machine};
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Output},
};

/// Commands of a page, and the output that it shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    commands: String,
    output: Option<String>,
}

/// Returns the steps of a page in Markdown.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Text between blocks, and the content of blocks, in turn.
    for (index, part) in page.split("\n```").enumerate() {
        let Some((kind, content)) = part.split_once('\n').filter(|_| index % 2 == 1) else {
            continue;
        };
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step {
                commands: content.to_owned(),
                output: None,
            }),
            ("text example", Some(_)) => {}
            ("text", Some(step)) if step.output.is_none() => {
                step.output = Some(content.to_owned());
            }
            other => panic!("a block of the page is of another kind: {other:?}"),
        }
    }
    steps
}

/// Replaces each number by `N`, and spaces by one.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for (index, word) in line.split_whitespace().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        let mut last = ' ';
        for c in word.chars() {
            let is_inside = last == 'N' && (c.is_ascii_digit() || c == '.' || c == ',');
            last = if c.is_ascii_digit() || is_inside {
                'N'
            } else {
                c
            };
            if !is_inside {
                text.push(last);
            }
        }
    }
    text
}

/// Returns whether a line is what the page shows.
fn matches_line(shown: &str, line: &str) -> bool {
    let (shown, line) = (without_numbers(shown), without_numbers(line));
    let parts: Vec<_> = shown.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = &parts[..] else {
        return shown == line;
    };
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns whether the output is what the page shows.
fn matches_output(shown: &[&str], output: &[&str]) -> bool {
    match (shown, output) {
        (["…", later @ ..], _) => {
            (0..=output.len()).any(|count| matches_output(later, &output[count..]))
        }
        ([shown, later @ ..], [line, rest @ ..]) => {
            matches_line(shown, line) && matches_output(later, rest)
        }
        _ => shown.is_empty() && output.is_empty(),
    }
}

/// Returns a script that runs the steps in one shell. The file `../N` has the output of step N until it ended; what its
/// programs print later in the background is not compared.
fn script(steps: &[Step]) -> String {
    let mut text = String::from(
        "set -eE\nstep=0\ntrap 'echo \"step $step failed\" >&2; cat ../running >&2' ERR\n\
         mount -t tmpfs tmpfs /run\nip link set lo up\n",
    );
    for (index, step) in steps.iter().enumerate() {
        let _ = writeln!(
            text,
            "step={index}\nrm -f ../running\n{{\n{}\n}} > ../running 2>&1 < /dev/null\ncp ../running ../{index}",
            step.commands
        );
    }
    text
}

/// Runs a script in namespaces of its own, which end with all its processes.
fn run(script: &str, directory: &Path) -> Output {
    let binaries = Path::new(longhaul()).parent().unwrap();
    let path = format!(
        "{}:{}",
        binaries.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("HOME", directory)
        .output()
        .unwrap()
}

/// Runs a page of `docs/start`, compares its output, and checks that nothing is left in its directory, the home included.
fn assert_page_holds(name: &str) {
    if !require_root_of_the_machine() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/start").join(name)).unwrap();
    let steps = steps(&page);
    let directory = tempfile::tempdir().unwrap();
    let work = directory.path().join("work");
    fs::create_dir(&work).unwrap();
    let ran = run(&script(&steps), &work);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {errors}");
    for (index, step) in steps.iter().enumerate() {
        let output = fs::read_to_string(directory.path().join(index.to_string())).unwrap();
        let Some(shown) = &step.output else {
            continue;
        };
        let holds = matches_output(
            &shown.lines().collect::<Vec<_>>(),
            &output.lines().collect::<Vec<_>>(),
        );
        let commands = &step.commands;
        assert!(
            holds,
            "{name}:\n{commands}\nprints\n{output}\nand the page shows\n{shown}"
        );
    }
    let left: Vec<_> = fs::read_dir(&work).unwrap().flatten().collect();
    assert!(left.is_empty(), "{name} leaves {left:?}");
}

#[test]
fn a_slow_path() {
    assert_page_holds("slow-path.md");
}

#[test]
fn a_first_experiment() {
    assert_page_holds("first-experiment.md");
}

#[test]
fn shown_lines_match_with_other_numbers() {
    assert!(matches_line(
        "12.5 Mbit/s in 3 s …",
        "9.75  Mbit/s in 11 s, 4 losses"
    ));
    assert!(matches_line("a … b … c", "a 1 b 2 c"));
    assert!(!matches_line("12.5 Mbit/s", "12.5 Gbit/s"));
    assert!(!matches_line("a … b", "a c"));
    assert!(matches_output(&["a", "…", "b"], &["a", "x", "y", "b"]));
    assert!(matches_output(&["…"], &[]));
    assert!(!matches_output(&["a", "…"], &["b"]));
    assert!(!matches_output(&["a"], &["a", "b"]));
}

#[test]
fn output_belongs_to_the_commands_before_it() {
    let page = "# Title\n\nText.\n\n```sh\na\nb\n```\n\n```text\nc\n```\n\n```sh\nd\n```\n";
    let step = |commands: &str, output: Option<&str>| Step {
        commands: commands.to_owned(),
        output: output.map(str::to_owned),
    };
    assert_eq!(steps(page), [step("a\nb", Some("c")), step("d", None)]);
}
