//! Files that `elinvar` writes: the old file stays intact until the new one is complete.
#![cfg(target_os = "linux")]

mod common;

use std::process::Command;

use common::{Folder, elinvar, example};

fn path(folder: &Folder, name: &str) -> String {
    folder.file(name).display().to_string()
}

const COUNT: &str = "200000";

fn words<'a>(file: &'a str, grid: &'a str, out: &'a [String]) -> Vec<&'a str> {
    let mut words =
        vec!["run", file, "--kernel", "vector_add", "--grid", grid, "--group", "256", "--device", "cpu"];
    words.extend([
        "--arg",
        "a=f32:200000:ramp",
        "--arg",
        "b=f32:200000:ones",
        "--arg",
        "out=f32:200000:zeros",
    ]);
    words.extend(["--arg", "n=200000u32"]);
    out.iter().for_each(|out| words.extend(["--out", out.as_str()]));
    words
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let folder = Folder::new();
    let (file, out) = (example("vector_add"), path(&folder, "out.npy"));
    let outs = [format!("out={out}")];
    let words = words(&file, COUNT, &outs);
    elinvar(&words).expect(0, &[]);
    let old = std::fs::read(&out).expect("written");
    assert!(old.len() > 800_000);
    // The compiled kernel is cached. Files are limited to 200 KB, and the signal for exceeding the limit is ignored.
    let script = "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\"";
    let ended = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_elinvar")])
        .args(&words)
        .output()
        .expect("sh runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write") && said.contains("out.npy"), "{said}");
    assert!(std::fs::read(&out).expect("there") == old);
    let left =
        std::fs::read_dir(std::path::Path::new(&out).parent().expect("a folder")).expect("there").count();
    assert_eq!(left, 1, "no unfinished file stays");
}

#[test]
fn two_outputs_to_one_file_are_refused() {
    let folder = Folder::new();
    let (file, out) = (example("vector_add"), path(&folder, "out.npy"));
    std::os::unix::fs::symlink("out.npy", path(&folder, "link.npy")).expect("linked");
    let beside = out.replace("out.npy", "./out.npy");
    for other in [&out, &beside, &path(&folder, "link.npy")] {
        let outs = [format!("out={out}"), format!("a={other}")];
        elinvar(&words(&file, COUNT, &outs)).expect(2, &["are the same file"]);
        assert!(!std::path::Path::new(&out).exists());
    }
}
