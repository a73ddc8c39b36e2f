//! `elinvar test` on a crate that uses Metal and does not depend on Elinvar: the crate's own tests verify the stand-in.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn elinvar(manifest: &Path, args: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the folder that cargo builds in");
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.args(["test", "--manifest-path"]).arg(manifest).args(args).env("CARGO_TARGET_DIR", target);
    command.output().expect("elinvar runs")
}

/// Number of tests of the crate, counted in its sources.
fn tests_in(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).expect("the crate has tests");
    let sources = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"));
    sources.map(|source| source.matches("#[test]").count()).sum()
}

#[test]
fn a_crate_that_uses_metal_passes_its_tests() {
    let krate = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metal-crate");
    let output = elinvar(&krate.join("Cargo.toml"), &[]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let passed = out.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
    assert_eq!(passed, tests_in(&krate.join("tests")), "{out}\n{err}");
}

/// A crate with a failing and a passing test; returns its manifest.
fn with_a_failing_test(folder: &Path) -> PathBuf {
    std::fs::create_dir(folder.join("src")).unwrap();
    let manifest = folder.join("Cargo.toml");
    std::fs::write(&manifest, "[package]\nname = \"fails\"\nedition = \"2024\"\n[workspace]\n").unwrap();
    let source = "#[test]\nfn is_told_that_it_is_for_macos() {\n    assert!(cfg!(target_os = \"macos\") && cfg!(unix));\n}\n\
                  #[test]\nfn wrong() {\n    panic!(\"no\");\n}\n";
    std::fs::write(folder.join("src/lib.rs"), source).unwrap();
    manifest
}

#[test]
fn a_test_that_fails_gives_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = with_a_failing_test(folder.path());
    let output = elinvar(&manifest, &["--", "--test-threads", "1"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(101), "{out}\n{err}");
    assert!(
        out.contains("is_told_that_it_is_for_macos ... ok") && out.contains("wrong ... FAILED"),
        "{out}\n{err}"
    );
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let krate = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/metal-crate/Cargo.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.args(["test", "--no-run", "--manifest-path"]).arg(krate);
    let library = folder.path().join("none.so");
    let output = command.env("ELINVAR_APPLE_LIBRARY", &library).output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let expected = format!("ELINVAR_APPLE_LIBRARY: there is no file `{}`", library.display());
    assert!(err.contains(&expected), "{err}");
}

#[test]
#[ignore = "builds the stand-in from nothing: minutes; `make installed` does"]
fn an_installed_program_builds_what_it_carries() {
    let folder = tempfile::tempdir().unwrap();
    // Outside of the folder that it was built in, the program does not find the checkout.
    let installed = folder.path().join("elinvar");
    // A child process copies it: a descriptor that is open for writing would be inherited by the children of other tests, and executing the
    // program would fail (`ETXTBSY`).
    let install =
        Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_elinvar")]).arg(&installed).status();
    assert!(install.unwrap().success());
    let manifest = with_a_failing_test(folder.path());
    let mut command = Command::new(installed);
    command.args(["test", "--manifest-path"]).arg(manifest).args(["--", "--test-threads", "1"]);
    command.env("ELINVAR_APPLE_FOLDER", folder.path().join("built")).env_remove("ELINVAR_APPLE_LIBRARY");
    let output = command.env_remove("CARGO_TARGET_DIR").output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(101), "{out}\n{err}");
    assert!(
        out.contains("is_told_that_it_is_for_macos ... ok") && out.contains("wrong ... FAILED"),
        "{out}\n{err}"
    );
    assert!(err.contains("building the stand-in"), "{err}");
}

#[test]
fn cargo_finds_it() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_cargo-elinvar")).args(args).output().unwrap();
    let output = run(&["elinvar", "--version"]);
    assert!(
        output.status.success() && text(&output.stdout).starts_with("elinvar "),
        "{}",
        text(&output.stderr)
    );
    let output = run(&["elinvar", "test", "--manifest-path", "/nowhere/Cargo.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cargo metadata"), "{}", text(&output.stderr));
}
