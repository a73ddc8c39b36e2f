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

#[test]
fn a_trace_has_the_launches_of_a_run() {
    let folder = Folder::new();
    let file = example("vector_add");
    let (json, perfetto) = (path(&folder, "t.JSON"), path(&folder, "t.pftrace"));
    let mut run = words(&file, COUNT, &[]);
    run.extend(["--repeat", "7", "--trace"]);
    elinvar(&[&run[..], &[&json]].concat()).expect(0, &[]);
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let launches: Vec<_> = events.iter().filter(|event| event["cat"] == "device").collect();
    assert_eq!(launches.len(), 7);
    for launch in launches {
        assert_eq!(
            (&launch["name"], &launch["args"]["threads"]),
            (&"vector_add".into(), &"200000×1×1".into())
        );
        assert!(launch["dur"].as_f64().expect("a time") > 0.0);
    }
    elinvar(&[&run[..], &[&perfetto]].concat()).expect(0, &[]);
    let trace = std::fs::read(&perfetto).expect("written");
    // The tag of `Trace.packet`; each launch is on three tracks, the last with a word before its name.
    assert_eq!(trace[0], 0x0a);
    assert_eq!(trace.windows(10).filter(|bytes| *bytes == b"vector_add").count(), 4 * 7);
}

#[test]
fn a_trace_is_written_if_the_kernel_fails() {
    let folder = Folder::new();
    let (file, trace) = (example("scale"), path(&folder, "t.json"));
    let words =
        ["run", &file, "--kernel", "scale", "--grid", "9", "--device", "cpu", "--checked", "--trace", &trace];
    let args = ["--arg", "in=f32:8:ramp", "--arg", "out=f32:8:zeros", "--arg", "factor=2f32"];
    elinvar(&[&words[..], &args].concat()).expect(1, &["read of element 8"]);
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&trace).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let [launch] = &events.iter().filter(|event| event["cat"] == "device").collect::<Vec<_>>()[..] else {
        panic!("{trace}")
    };
    let error = launch["args"]["error"].as_str().expect("an error");
    assert!(error.contains("read of element 8") && launch["cname"] == "terrible", "{error}");
    // And not in the place of an output.
    let out = path(&folder, "out.npy");
    let words = ["run", &file, "--kernel", "scale", "--grid", "8", "--device", "cpu", "--trace", &out];
    let out = format!("out={out}");
    elinvar(&[&words[..], &args, &["--out", &out]].concat()).expect(2, &["are the same file"]);
}

/// The data of a report.
fn report_data(page: &str) -> serde_json::Value {
    let page = std::fs::read_to_string(page).expect("written");
    let data = page.split_once(r#"id="data">"#).and_then(|(_, rest)| rest.split_once("</script>"));
    serde_json::from_str(data.expect("data").0).expect("JSON")
}

#[test]
fn top_shows_the_kernels_of_a_program() {
    let folder = Folder::new();
    let file = example("vector_add");
    let mut run = vec![env!("CARGO_BIN_EXE_elinvar")];
    run.extend(words(&file, COUNT, &[]));
    run.extend(["--repeat", "700"]);
    let ended = elinvar(&[&["top", "--interval", "0.1", "--"], &run[..]].concat());
    ended.expect(0, &[]);
    let shown = ended.stdout;
    let last = shown.rsplit("\n\n").find(|frame| frame.contains("in all")).expect("a frame");
    assert!(last.contains("700 in all, 0 failed") && last.contains("  vector_add "), "{shown}");
    // What the program prints comes behind the frames.
    assert!(shown.trim_end().ends_with("exit status: 0") && shown.contains("median of 700"), "{shown}");

    let profile = path(&folder, "profile");
    let program =
        std::process::Command::new(run[0]).args(&run[1..]).env("ELINVAR_PROFILE", &profile).output();
    assert!(program.expect("the program runs").status.success());
    let ended = elinvar(&["top", "--interval", "0.1", "--frames", "2", &profile]);
    ended.expect(0, &[]);
    let shown = ended.stdout;
    assert_eq!(shown.matches("700 in all").count(), 2, "{shown}");
    assert!(shown.contains(" 0 submissions/s"), "nothing is new in the second frame: {shown}");

    std::fs::write(&profile, "other\n").expect("a file");
    elinvar(&["top", "--interval", "0.1", "--frames", "1", &profile])
        .expect(1, &["1 lines", "not those of a profile"]);
    elinvar(&["top", "/no/such/profile"]).expect(1, &["/no/such/profile"]);
    elinvar(&["top"]).expect(2, &["required"]);
    elinvar(&["top", "--interval", "0", &profile]).expect(2, &["between 0.1 and 60"]);
}

/// On a terminal it draws a screen of its own and leaves the last frame.
#[cfg(target_os = "linux")]
#[test]
fn top_draws_on_a_terminal() {
    let folder = Folder::new();
    let log = path(&folder, "log");
    let program = env!("CARGO_BIN_EXE_elinvar");
    let file = example("vector_add");
    let run = words(&file, COUNT, &[]).join(" ");
    let command =
        format!("stty cols 100 rows 24; {program} top --interval 0.1 -- {program} {run} --repeat 5000");
    let done =
        std::process::Command::new("script").args(["-qec", &command, &log]).output().expect("script runs");
    let text = String::from_utf8_lossy(&std::fs::read(&log).expect("the log")).into_owned();
    assert!(done.status.success(), "{text}");
    let (_, after) = text.rsplit_once("\u{1b}[?1049l").unwrap_or_else(|| panic!("no screen: {text:?}"));
    assert!(text.contains("\u{1b}[?1049h") && after.contains("5000 in all"), "{text:?}");
}

#[test]
fn reports_have_the_launches_of_a_run_and_of_a_program() {
    let folder = Folder::new();
    let (file, page) = (example("vector_add"), path(&folder, "report.html"));
    let mut run = words(&file, COUNT, &[]);
    run.extend(["--repeat", "7"]);
    elinvar(&[&run[..], &["--profile", &page]].concat()).expect(0, &[]);
    let kernel = report_data(&page)["kernels"][0].clone();
    assert!(kernel["name"] == "vector_add" && kernel["launches"] == 7 && kernel["measured"] == 7, "{kernel}");

    let program = [&["profile", "--out", &page, "--", env!("CARGO_BIN_EXE_elinvar")], &run[..]].concat();
    elinvar(&program).expect(0, &[]);
    let data = report_data(&page);
    let kernel = &data["kernels"][0];
    assert!(kernel["name"] == "vector_add" && kernel["launches"] == 7, "{kernel}");
    assert!(
        data["devices"][0]["program"] == "elinvar" && data["failures"] == serde_json::json!([]),
        "{data}"
    );
    // One that uses no device.
    let idle = ["profile", "--out", &page, "--", env!("CARGO_BIN_EXE_elinvar"), "--version"];
    elinvar(&idle).expect(3, &["did nothing on a device"]);
}

#[test]
fn a_report_of_a_kernel_that_fails_has_the_error() {
    let folder = Folder::new();
    let (file, page) = (example("scale"), path(&folder, "report.html"));
    let run = ["run", &file, "--kernel", "scale", "--grid", "9", "--device", "cpu", "--checked"];
    let args = ["--arg", "in=f32:8:ramp", "--arg", "out=f32:8:zeros", "--arg", "factor=2f32"];
    let has_error = |page: &str| {
        let failures = report_data(page)["failures"].clone();
        let text = failures[0]["text"].as_str().map(str::to_owned).unwrap_or_default();
        assert!(text.contains("read of element 8"), "{failures}");
        std::fs::remove_file(page).expect("removed");
    };
    elinvar(&[&run[..], &args, &["--profile", &page]].concat()).expect(1, &["read of element 8"]);
    has_error(&page);
    let program = [&["profile", "--out", &page, "--", env!("CARGO_BIN_EXE_elinvar")], &run[..], &args];
    elinvar(&program.concat()).expect(0, &["read of element 8"]);
    has_error(&page);
}

#[test]
fn a_capture_replays_and_shows_what_differs() {
    let folder = Folder::new();
    let (file, one) = (path(&folder, "scale.capture"), path(&folder, "one.capture"));
    let program = env!("CARGO_BIN_EXE_elinvar");
    let scale = example("scale");
    let mut words = vec!["capture", &file, "--", program, "run", &scale, "--kernel", "scale", "--grid", "8"];
    words.extend([
        "--arg",
        "in=f32:8:ramp",
        "--arg",
        "out=f32:8:zeros",
        "--arg",
        "factor=2f32",
        "--device",
        "cpu",
    ]);
    let captured = elinvar(&words);
    captured.expect(0, &[]);
    let said = format!("{file}: 1 launches captured, 0 not; `{program}`: exit status: 0\n");
    assert!(captured.stdout.ends_with(&said), "{}", captured.stdout);
    elinvar(&words).expect(1, &["exists"]);
    let replayed = elinvar(&["replay", &file, "--device", "cpu"]);
    replayed.expect(0, &[]);
    assert!(
        replayed.stdout.ends_with(": 1 equal, 0 wrong, 0 failed when captured, 0 not run, 0 not captured\n")
    );
    let json = elinvar(&["replay", &file, "--device", "cpu", "--json", "--minimize", &one]).json();
    assert_eq!(
        (&json["equal"], &json["launches"][0]["outcome"], &json["minimized"]),
        (&1.into(), &"equal".into(), &serde_json::Value::Null)
    );
    assert!(!std::path::Path::new(&one).exists());
    elinvar(&["replay", &scale]).expect(1, &["it is no capture of this version"]);
    elinvar(&["replay", &file, "--tolerance=-1"]).expect(1, &["a tolerance of -1"]);
    // A program without a device.
    elinvar(&["capture", &path(&folder, "none"), "--", "true"]).expect(3, &["used no device of Elinvar"]);
    elinvar(&["capture", &path(&folder, "none"), "--", "/nonexistent/program"])
        .expect(1, &["/nonexistent/program"]);
}

/// On a terminal, which `script` of util-linux emulates, progress is shown; otherwise nothing.
#[test]
fn progress_is_shown_on_terminals_only() {
    let folder = Folder::new();
    let files: Vec<String> = (0..6)
        .map(|number| {
            let text = format!("kernel void k{number}(device uint* x) {{ x[0] = {number}; }}");
            folder.write(&format!("{number}.metal"), text)
        })
        .collect();
    let words: Vec<&str> = std::iter::once("check").chain(files.iter().map(String::as_str)).collect();
    let silent = elinvar(&words);
    silent.expect(0, &[]);
    assert_eq!(silent.stderr, "");
    let line = format!("stty cols 100 rows 30; {} {}", env!("CARGO_BIN_EXE_elinvar"), words.join(" "));
    let Ok(shown) = Command::new("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output()
    else {
        println!("not run: there is no `script`");
        return;
    };
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("/6 "), "{shown}");
    // The bar is gone at the end.
    assert!(shown.contains("k5") && !shown.trim_end().ends_with("6/6"), "{shown}");
}

#[test]
fn an_interrupt_leaves_no_part_of_a_file() {
    let folder = Folder::new();
    let (file, out) = (example("vector_add"), path(&folder, "out.npy"));
    let outs = [format!("out={out}")];
    // A large result, and an interrupt as soon as its file is there. The program may be faster: then the result is whole.
    let (count, large) =
        ("30000000", ["a=f32:30000000:zeros", "b=f32:30000000:ones", "out=f32:30000000:zeros"]);
    let mut words =
        vec!["run", &file, "--kernel", "vector_add", "--grid", count, "--device", "cpu", "--out", &outs[0]];
    large.iter().for_each(|arg| words.extend(["--arg", arg]));
    words.extend(["--arg", "n=30000000u32"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_elinvar")).args(&words).spawn().expect("it runs");
    let parts = || std::fs::read_dir(folder.path()).expect("a folder").count();
    while parts() == 0 && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_child(&child);
    let _gone = rustix::process::kill_process(id, rustix::process::Signal::INT);
    let code = child.wait().expect("a child").code();
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    match code {
        Some(130) => assert!(names.is_empty() || names == ["out.npy"], "{names:?}"),
        other => assert_eq!((other, names), (Some(0), vec!["out.npy".to_owned()])),
    }
}

#[test]
fn an_interrupt_ends_a_kernel_that_does_not() {
    let folder = Folder::new();
    let file = folder.write("endless.metal", "kernel void endless(device atomic_uint* x) { while (atomic_load_explicit(x, memory_order_relaxed) == 0) {} }");
    let file = {
        let text = std::fs::read_to_string(&file).expect("written");
        folder.write("endless.metal", format!("#include <metal_stdlib>\nusing namespace metal;\n{text}"))
    };
    let words =
        ["run", &file, "--kernel", "endless", "--grid", "1", "--arg", "x=u32:1:zeros", "--device", "cpu"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_elinvar")).args(words).spawn().expect("it runs");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().expect("a child").is_none(), "it has ended by itself");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(child.wait().expect("a child").code(), Some(130));
}
