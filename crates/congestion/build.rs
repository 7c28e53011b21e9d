// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles `src/*/*.c` for the host, and with the feature `bpf` each `src/bpf/*.bpf.c` with clang for BPF.

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/math/math.c");
    println!("cargo:rerun-if-changed=src/ack_thin/ack_thin.c");
    println!("cargo:rerun-if-changed=src/watch/ack_counts.c");
    println!("cargo:rerun-if-env-changed=CLANG");
    cc::Build::new()
        .files([
            "src/math/math.c",
            "src/ack_thin/ack_thin.c",
            "src/watch/ack_counts.c",
        ])
        .std("gnu11")
        .warnings_into_errors(true)
        .compile("longhaul_cc");
    #[cfg(feature = "bpf")]
    bpf::compile_programs();
}

#[cfg(feature = "bpf")]
mod bpf {
    use std::{
        env, fs,
        path::{Path, PathBuf},
        process::Command,
    };

    pub(super) fn compile_programs() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let headers = libbpf_headers(&out);
        for program in programs() {
            compile(&program, &headers, &out);
        }
    }

    fn programs() -> Vec<PathBuf> {
        let directory = fs::read_dir("src/bpf").expect("src/bpf can be listed");
        directory
            .map(|entry| entry.expect("src/bpf can be listed").path())
            .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
            .collect()
    }

    /// libbpf's own headers come with the crate that vendors it.
    fn libbpf_headers(out: &Path) -> PathBuf {
        let include = out.join("include");
        fs::create_dir_all(include.join("bpf")).expect("OUT_DIR can be written");
        for (name, text) in libbpf_sys::API_HEADERS {
            fs::write(include.join("bpf").join(name), text).expect("OUT_DIR can be written");
        }
        include
    }

    /// Flags that keep this machine's paths out of the objects' debug information, so that two builds are equal.
    fn prefix_maps() -> [String; 2] {
        let directory = |variable| env::var(variable).expect("cargo sets it");
        [
            format!(
                "-ffile-prefix-map={}=congestion",
                directory("CARGO_MANIFEST_DIR")
            ),
            format!("-ffile-prefix-map={}=out", directory("OUT_DIR")),
        ]
    }

    /// `lh_x.bpf.c` → `OUT_DIR/lh_x.bpf.o`.
    fn compile(source: &Path, headers: &Path, out: &Path) {
        let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
        let object = out
            .join(source.file_stem().expect("it has a name"))
            .with_extension("bpf.o");
        let status = Command::new(&clang)
            .args([
                "-target",
                "bpf",
                "-mcpu=v3",
                "-O2",
                "-g",
                "-ffreestanding",
                "-c",
            ])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args(prefix_maps())
            .arg(format!("-D__TARGET_ARCH_{}", architecture()))
            .arg("-I")
            .arg(headers)
            .arg(source)
            .arg("-o")
            .arg(object)
            .status()
            .unwrap_or_else(|error| {
                panic!(
                    "{} is needed to build the eBPF programs ({error}); scripts/setup installs it",
                    clang.display()
                )
            });
        assert!(
            status.success(),
            "clang could not compile {}",
            source.display()
        );
    }

    /// As libbpf's `bpf_tracing.h` names them.
    fn architecture() -> String {
        match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
            Ok("aarch64") => "arm64".into(),
            Ok("x86_64") | Err(_) => "x86".into(),
            Ok(other) => other.into(),
        }
    }
}
