//! Finding clang, with scripts that play it.
#![cfg(unix)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use elinvar_driver::Source;
use elinvar_msl::{Error, Program, Toolchain};

/// A child writes the file: a descriptor open for writing here would be inherited by the children that other tests
/// start meanwhile, and the script could not be executed before they have closed it (`ETXTBSY`).
fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    let mut write = std::process::Command::new("sh");
    write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(&path).arg(body);
    assert!(write.status().unwrap().success());
    path
}

fn says(version: &str) -> String {
    format!("echo '{version}'")
}

fn refusal(chosen: Option<&OsStr>, path: &OsStr) -> String {
    match Toolchain::find_in(chosen, path) {
        Err(Error::Toolchain(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_newest_that_is_new_enough() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    script(a.path(), "clang", &says("Debian clang version 30.0.1"));
    script(a.path(), "clang-14", &says("Debian clang version 14.0.6"));
    script(a.path(), "clang-19", &says("Debian clang version 19.1.7 (3~deb12u1)"));
    script(b.path(), "clang-21", &says("clang version 21.0.0git"));
    script(b.path(), "clang-cpp-25", &says("clang version 25.0.0"));
    let path = std::env::join_paths([a.path(), b.path()]).unwrap();
    let found = Toolchain::find_in(None, &path).unwrap();
    assert_eq!((found.path(), found.major()), (b.path().join("clang-21").as_path(), 21));
    assert_eq!(found.version(), "clang version 21.0.0git");
    let found = Toolchain::find_in(Some(OsStr::new("clang-19")), &path).unwrap();
    assert_eq!((found.path(), found.major()), (a.path().join("clang-19").as_path(), 19));
}

#[test]
fn a_broken_one_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "clang-20", "exit 3");
    script(folder.path(), "clang", &says("clang version 19.0.0"));
    let found = Toolchain::find_in(None, folder.path().as_os_str()).unwrap();
    assert_eq!(found.path(), folder.path().join("clang"));
}

#[test]
fn none_says_what_was_seen_and_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let why = refusal(None, folder.path().as_os_str());
    assert!(why.starts_with("no clang 19 or newer on PATH\n"), "{why}");
    for part in [
        "apt-get install clang-19",
        "apt.llvm.org",
        "dnf install clang",
        "pacman -S clang",
        "brew install llvm",
    ] {
        assert!(why.contains(part), "{part}");
    }
    let old = script(folder.path(), "clang", &says("clang version 18.1.3"));
    let why = refusal(None, folder.path().as_os_str());
    assert!(why.contains(&format!("`{}` is version 18; 19 or newer is required", old.display())), "{why}");
    // What its name says is too old is not even started.
    let mark = folder.path().join("started");
    script(folder.path(), "clang-18", &format!("touch '{}'", mark.display()));
    refusal(None, folder.path().as_os_str());
    assert!(!mark.exists());
    let apple = script(folder.path(), "apple", &says("Apple clang version 21.0.0 (clang-2100.1.1.1)"));
    let why = refusal(Some(apple.as_os_str()), OsStr::new(""));
    assert!(why.starts_with("ELINVAR_CLANG: `") && why.contains("is Apple's clang"), "{why}");
    let other = script(folder.path(), "gcc", &says("gcc (GCC) 14"));
    assert!(refusal(Some(other.as_os_str()), OsStr::new("")).contains("is not clang"));
    let missing = folder.path().join("missing");
    assert!(refusal(Some(missing.as_os_str()), OsStr::new("")).contains("cannot be run"));
}

#[test]
fn a_clang_that_fails_without_a_word_is_reported_with_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let version = "if [ \"$1\" = --version ]; then echo 'clang version 19.0.0'; exit 0; fi";
    let silent = script(folder.path(), "silent", &format!("{version}\nexit 1"));
    let crashing = script(folder.path(), "crashing", &format!("{version}\nkill -SEGV $$"));
    for (clang, how) in [(silent, "exit status: 1"), (crashing, "signal: 11")] {
        let tool = Toolchain::find_in(Some(clang.as_os_str()), OsStr::new("")).unwrap();
        match Program::compile(&tool, &Source::msl("kernel void f(device int* a) {}")) {
            Err(Error::Clang { command, detail }) => {
                assert!(detail.contains(how) && detail.contains("without output"), "{detail}");
                assert!(
                    command.starts_with(clang.to_str().unwrap()) && command.contains(" -E "),
                    "{command}"
                );
                if let Some((_, kept)) = detail.split_once("kept in ") {
                    std::fs::remove_dir_all(kept).unwrap();
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_clang_that_has_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let clang = script(folder.path(), "clang", &says("clang version 19.0.0"));
    let tool = Toolchain::find_in(Some(clang.as_os_str()), OsStr::new("")).unwrap();
    std::fs::remove_file(&clang).unwrap();
    match Program::compile(&tool, &Source::msl("kernel void f(device int* a) {}")) {
        Err(Error::Io(why)) => {
            assert!(why.starts_with(&format!("cannot run `{}`", clang.display())), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_answer_is_kept() {
    let (a, b) = (Toolchain::find().unwrap(), Toolchain::find().unwrap());
    assert_eq!((a.path(), a.version()), (b.path(), b.version()));
    assert!(a.major() >= 19);
}

/// In a process of its own, whose environment it changes.
#[test]
fn what_was_found_is_looked_for_again_when_the_path_changes() {
    let test = "what_was_found_is_looked_for_again_when_the_path_changes";
    const CHILD: &str = "ELINVAR_TEST_PATH_CHANGES";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args([test, "--exact", "--test-threads=1"]).env(CHILD, "1").env_remove("ELINVAR_CLANG");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let folders = [19, 20].map(|major| {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "clang", &says(&format!("clang version {major}.0.0")));
        folder
    });
    for (folder, major) in folders.iter().zip([19, 20]).chain(folders.iter().zip([19, 20])) {
        // SAFETY: no other thread looks at the environment: one test is run, and its thread is this.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("PATH", folder.path());
        }
        for _ in 0..2 {
            let found = Toolchain::find().unwrap();
            assert_eq!((found.path(), found.major()), (folder.path().join("clang").as_path(), major));
        }
    }
}
