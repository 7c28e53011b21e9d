// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the running kernel's features and of the caller's rights.

use crate::Error;
use libbpf_rs::{PrintLevel, btf::Btf, set_print};
use rustix::thread::{CapabilitySet, capabilities};
use std::{
    path::Path,
    sync::{Mutex, Once},
};

/// Type information of the kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Action that needs [`check_rights`], for messages.
pub(crate) const CC_LOADING: &str = "a congestion control is loaded and unloaded";

/// Checks whether a congestion control can be loaded; `what` is as for [`requires_root`].
pub(crate) fn check(what: &str) -> Result<(), Error> {
    check_rights(what)?;
    check_btf()
}

/// Checks the caller's capabilities; those in a user namespace are not sufficient.
pub(crate) fn check_rights(what: &str) -> Result<(), Error> {
    let needed = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN;
    let has = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let enough = has.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN);
    match enough || has.contains(needed) {
        true if longhaul_linux::process::is_in_user_namespace() => Err(Error::Denied(format!(
            "{what} by root of the machine, and this is a user namespace: run it outside, with sudo"
        ))),
        true => Ok(()),
        false => Err(requires_root(what)),
    }
}

/// Returns the error for missing rights; `what` ends in a participle: "it is loaded".
pub(crate) fn requires_root(what: &str) -> Error {
    Error::Denied(format!(
        "{what} by root (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN): run it with sudo"
    ))
}

fn check_btf() -> Result<(), Error> {
    if !Path::new(BTF).exists() {
        return Err(Error::Kernel(format!(
            "this kernel does not describe its types: no {BTF}; it needs CONFIG_DEBUG_INFO_BTF"
        )));
    }
    capture_warnings(|| {
        let btf = Btf::from_path(BTF).map_err(|error| failed("read the kernel's types", &error))?;
        match btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>(OPERATIONS) {
            Some(_) => Ok(()),
            None => Err(Error::Kernel(
                "this kernel takes no congestion controls as eBPF (struct_ops): it needs Linux 5.6 \
                 with CONFIG_BPF_JIT"
                    .to_owned(),
            )),
        }
    })
}

/// Type of a kernel that supports congestion controls as programs.
const OPERATIONS: &str = "bpf_struct_ops_tcp_congestion_ops";

/// Latest warnings of libbpf, which prints none.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Most lines that are recorded.
const WARNINGS_MAX: usize = 64;

/// Runs `work`, and records libbpf's warnings instead of printing them.
pub(crate) fn capture_warnings<T>(work: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, record_warning)));
    });
    clear_warnings();
    work()
}

/// Clears the warnings before another attempt, so that those of the last one do not become its reason.
pub(crate) fn clear_warnings() {
    if let Ok(mut warnings) = WARNINGS.lock() {
        warnings.clear();
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "libbpf-rs asks for this type"
)]
fn record_warning(_: PrintLevel, line: String) {
    let Ok(mut warnings) = WARNINGS.lock() else {
        return;
    };
    if warnings.len() < WARNINGS_MAX {
        warnings.push(line.trim().to_owned());
    }
}

/// Converts an error of libbpf: missing rights are distinguished, and the first warning is the reason.
pub(crate) fn failed(step: &'static str, error: &libbpf_rs::Error) -> Error {
    let reason = first_warning().map_or(format!("{error}"), |line| format!("{error} ({line})"));
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Error::Denied(format!(
            "cannot {step}: the kernel does not permit it ({reason}); it takes root of the machine, \
             not of a user namespace, and no lockdown"
        )),
        _ => Error::Failed { step, reason },
    }
}

/// Converts an error of loading programs. The kernel's verifier refuses them with the same number as missing
/// rights (EACCES); other errors are as [`failed`].
pub(crate) fn refused(step: &'static str, error: &libbpf_rs::Error) -> Error {
    use libbpf_rs::ErrorKind::{OutOfMemory, PermissionDenied};
    let verdict = WARNINGS.lock().ok().and_then(|all| verifier_message(&all));
    let reason = match (verdict, error.kind()) {
        (Some(verdict), _) => format!("its verifier refuses {verdict}"),
        (None, PermissionDenied | OutOfMemory) => return failed(step, error),
        (None, _) => first_warning().unwrap_or_else(|| error.to_string()),
    };
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    let since = newer_kernel_hint(&release);
    Error::Kernel(format!(
        "cannot {step}: Linux {release} does not take them{since}: {reason}"
    ))
}

/// First kernel that accepts every program of ours, as in docs/kernels.md.
const FIRST_SUPPORTED: [u32; 2] = [6, 1];

/// Returns the hint for users of older kernels; empty for others.
fn newer_kernel_hint(release: &str) -> String {
    let numbers = release
        .split(['.', '-'])
        .map_while(|number| number.parse::<u32>().ok());
    let [major, minor] = FIRST_SUPPORTED;
    if numbers.take(2).lt(FIRST_SUPPORTED) {
        format!(", Linux {major}.{minor} does")
    } else {
        String::new()
    }
}

/// Returns the first line of libbpf's first warning.
fn first_warning() -> Option<String> {
    let warnings = WARNINGS.lock().ok()?;
    let line = warnings.first()?.lines().next()?;
    Some(line.trim_start_matches("libbpf: ").to_owned())
}

/// Returns "PROGRAM: reason" from the verifier's log: its last line before the statistics. `None` without such a line:
/// the kernel refused the program before it verified it, as under a lockdown.
fn verifier_message(warnings: &[String]) -> Option<String> {
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    const STATISTICS: [&str; 5] = [
        "processed ",
        "verification time ",
        "stack depth ",
        "peak_states ",
        "-- END ",
    ];
    let (head, log) = warnings.iter().find_map(|text| text.split_once(BEGIN))?;
    let program = head.split('\'').nth(1).unwrap_or("a program");
    let is_word =
        |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let reason = log.lines().map(str::trim).rfind(is_word)?;
    Some(format!("{program}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log of libbpf 1.7 on Linux 6.1.
    #[test]
    fn extracts_the_verifiers_last_message() {
        let warnings = [
            "libbpf: prog 'look': BPF program load failed: Permission denied",
            "libbpf: prog 'look': -- BEGIN PROG LOAD LOG --\n0: R1=ctx(off=0,imm=0)\n; bpf_spin_unlock(&flow->lock);\n\
             61: (85) call bpf_spin_unlock#94\nbpf_spin_unlock without taking a lock\n\
             processed 61 insns (limit 1000000) max_states_per_insn 0 total_states 6 peak_states 6 mark_read 3\n\
             -- END PROG LOAD LOG --",
            "libbpf: prog 'look': failed to load: -EACCES",
        ];
        let warnings = warnings.map(str::to_owned);
        assert_eq!(
            verifier_message(&warnings).as_deref(),
            Some("look: bpf_spin_unlock without taking a lock")
        );
        assert_eq!(verifier_message(&warnings[..1]), None);
        let denied =
            "libbpf: prog 'watch': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --".to_owned();
        assert_eq!(
            verifier_message(&[denied]),
            None,
            "refused before it was verified"
        );
    }

    #[test]
    fn hints_at_the_first_supported_kernel() {
        for old in ["5.10.0-32-amd64", "5.15.0", "6.0.19"] {
            assert_eq!(newer_kernel_hint(old), ", Linux 6.1 does", "{old}");
        }
        for new in ["6.1.0-50-amd64", "6.12.117+deb13-amd64", "7.0-rc1"] {
            assert_eq!(newer_kernel_hint(new), "", "{new}");
        }
    }
}
