//! The cache and the limits of the tools, tested from outside: processes that compile with a cache folder of their own and with tools that
//! log each call. The test program is its own child process.

use std::fs::{File, read_to_string, write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use elinvar_driver::{
    Binding, Command, Constant, ConstantKey, Device, Dim3, Dispatch, Driver, Grid, Init, MathMode,
    MemorySlice, PipelineOptions, Result, Scalar, Source, Storage,
};
use elinvar_driver_cpu::CpuDriver;
use elinvar_msl::Toolchain;

const FOLDER: &str = "ELINVAR_TEST_FOLDER";
const DEFINE: &str = "ELINVAR_TEST_DEFINE";
const KERNEL: &str = "ELINVAR_TEST_KERNEL";
const GROUP: &str = "ELINVAR_TEST_GROUP";
const CONSTANT: &str = "ELINVAR_TEST_CONSTANT";
const MATH: &str = "ELINVAR_TEST_MATH";
const CHECKED: &str = "ELINVAR_TEST_CHECKED";
/// Size of the buffer, of which 16 bytes are used.
const BYTES: &str = "ELINVAR_TEST_BYTES";

const SOURCE: &str = "\
#include <metal_stdlib>
#include \"value.h\"
#ifndef ADDED
#define ADDED 0
#endif
constant uint extra [[function_constant(0)]];
constant uint more = is_function_constant_defined(extra) ? extra : 0;
kernel void fill(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = VALUE + ADDED + more + i; }
kernel void fill_more(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = VALUE + 100 + i; }
kernel void scatter(device uint* out, uint i [[thread_position_in_grid]]) {
    ((device uchar*)out)[out[i] + 4 * i] = VALUE + i;
}
";

/// The child process: compiles, runs and prints. Does nothing if this is not a child.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    match result(Path::new(&folder)) {
        Ok(words) => println!("\nresult {words:?}"),
        Err(error) => println!("\nerror {error}"),
    }
}

#[allow(unsafe_code)] // memory at rest
fn result(folder: &Path) -> Result<Vec<u32>> {
    // Never dropped.
    static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| CpuDriver::with_threads(1).devices().unwrap().remove(0));
    // `first` is searched before `second`.
    let [first, second] = ["first", "second"].map(|name| folder.join(name));
    let mut source = Source::named("fill.metal", SOURCE).include_dir(first).include_dir(second);
    if let Ok(value) = std::env::var(DEFINE) {
        source = source.define("ADDED", Some(&value));
    }
    if std::env::var_os(MATH).is_some() {
        source = source.math(MathMode::Safe);
    }
    let mut options = PipelineOptions { checked: std::env::var_os(CHECKED).is_some(), ..Default::default() };
    if let Ok(value) = std::env::var(CONSTANT) {
        let bytes = value.parse::<u32>().unwrap().to_ne_bytes().to_vec();
        options.constants.push(Constant { key: ConstantKey::Index(0), scalar: Scalar::U32, bytes });
    }
    let group = std::env::var(GROUP).map_or(4, |group| group.parse().unwrap());
    let kernel = std::env::var(KERNEL).unwrap_or_else(|_| "fill".into());
    let library = device.compile(&source)?;
    let pipeline = library.pipeline(&kernel, &options)?;
    assert!(pipeline.signature().code.is_some());
    let bytes = std::env::var(BYTES).map_or(16, |bytes| bytes.parse().unwrap());
    let memory = device.allocate(bytes, Storage::Shared, Init::Zeroed)?;
    let bindings = vec![Binding::Memory(MemorySlice { memory: memory.clone(), offset: 0, len: 16 })];
    let (sender, outcome) = channel();
    let dispatch = Dispatch {
        pipeline,
        bindings,
        uses: Vec::new(),
        grid: Grid::Threads(Dim3::from(4)),
        group: Dim3::from(group),
        label: None,
    };
    dispatch.prepare()?;
    let done = elinvar_driver::Done::new(move |result| sender.send(result).unwrap());
    device.queue()?.submit(Arc::new([Command::Dispatch(dispatch)]), done)?;
    outcome.recv().unwrap()?;
    let mut bytes = [0; 16];
    // SAFETY: the only submission has ended.
    unsafe { memory.read(0, &mut bytes) }?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect())
}

/// A temporary folder with sources, tools and a cache.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        ["first", "second", "tmp"]
            .into_iter()
            .for_each(|name| std::fs::create_dir(place.path(name)).unwrap());
        place.header("second", "#define VALUE 10");
        let clang = Toolchain::find().unwrap().path().display().to_string();
        place.tool("clang", &format!("exec {clang} \"$@\""));
        place.tool("ld", "exec $(command -v ld.lld-19 ld.lld ld | head -n 1) \"$@\"");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a header with an old modification time.
    fn header(&self, folder: &str, text: &str) {
        let path = self.path(folder).join("value.h");
        write(&path, format!("{text}\n")).unwrap();
        age(&path, 100);
    }

    /// Writes a tool that logs its calls. A child process writes the file, so that the children of other tests do not inherit a descriptor
    /// that is open for writing, with which executing the file would fail (`ETXTBSY`).
    fn tool(&self, name: &str, script: &str) {
        let log = self.path("calls").display().to_string();
        let text = format!("#!/bin/sh\necho {name} \"$@\" >> {log}\n{script}\n");
        let mut write = Process::new("sh");
        write.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(self.path(name)).arg(text);
        assert!(write.status().unwrap().success());
    }

    fn process(&self) -> Process {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.args(["child", "--exact", "--nocapture"]).env(FOLDER, self.0.path());
        process.env("ELINVAR_CACHE", self.path("cache")).env("TMPDIR", self.path("tmp"));
        process.env("ELINVAR_CLANG", self.path("clang")).env("ELINVAR_LD", self.path("ld"));
        process.stdout(Stdio::piped()).stderr(Stdio::piped());
        process
    }

    /// The output of the child, and the number of processes it has started.
    fn run(&self, variables: &[(&str, &str)]) -> (String, usize) {
        let _none_yet = std::fs::remove_file(self.path("calls"));
        let said = said(self.process().envs(variables.iter().copied()).spawn().unwrap());
        (said, read_to_string(self.path("calls")).unwrap_or_default().lines().count())
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("cache/1")).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
    }
}

/// Sets the modification time of a file to this many seconds ago.
fn age(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

fn said(child: std::process::Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.split_once("\nresult ").or_else(|| text.split_once("\nerror "));
    let (_, said) = said.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    said.split("\ntest ").next().unwrap_or_default().to_owned()
}

fn is(said: &str, first: u32) -> bool {
    said.starts_with(&format!("{:?}", [first, first + 1, first + 2, first + 3]))
}

#[test]
fn what_was_compiled_before_starts_no_process() {
    let place = Place::new();
    let (cold, calls) = place.run(&[]);
    assert!(is(&cold, 10) && calls >= 5, "{calls} calls: {cold}");
    let (warm, calls) = place.run(&[]);
    assert!(is(&warm, 10) && calls == 0, "{calls} calls: {warm}");

    let (defined, calls) = place.run(&[(DEFINE, "5")]);
    assert!(is(&defined, 15) && calls > 0, "a macro is part of the key: {defined}");
    let (other_group, calls) = place.run(&[(GROUP, "2")]);
    assert!(is(&other_group, 10) && calls == 2, "machine code and link only, not {calls}: {other_group}");

    let (other, calls) = place.run(&[(KERNEL, "fill_more")]);
    assert!(is(&other, 110) && calls > 2, "{calls} calls: {other}");
    let called = read_to_string(place.path("calls")).unwrap();
    assert!(!called.contains("-Wuninitialized"), "the source is not checked again: {called}");

    let (math, calls) = place.run(&[(MATH, "safe")]);
    assert!(is(&math, 10) && calls >= 5, "the math mode is part of the key: {calls} calls: {math}");
    let (constant, calls) = place.run(&[(CONSTANT, "7")]);
    assert!(is(&constant, 17) && calls > 2, "{calls} calls: {constant}");
    let (constant, calls) = place.run(&[(CONSTANT, "8")]);
    assert!(is(&constant, 18) && calls > 2, "the value is part of the key: {calls} calls: {constant}");
    let (checked, calls) = place.run(&[(CHECKED, "1")]);
    assert!(is(&checked, 10) && calls == 2, "machine code and link only, not {calls}: {checked}");
    age(&place.path("ld"), 500);
    let (linked, calls) = place.run(&[]);
    assert!(
        is(&linked, 10) && calls == 2,
        "another linker: machine code and link only, not {calls}: {linked}"
    );

    // The same script with another modification time counts as another compiler.
    age(&place.path("clang"), 500);
    let (again, calls) = place.run(&[]);
    assert!(is(&again, 10) && calls >= 5, "{calls} calls: {again}");
}

#[test]
fn the_bound_of_buffers_is_part_of_the_key() {
    let place = Place::new();
    let (gib, kernel) = (1_u64 << 30, (KERNEL, "scatter"));
    let run = |bytes: u64| place.run(&[kernel, (BYTES, &bytes.to_string())]);
    let (small, calls) = run(16);
    assert!(is(&small, 10) && calls >= 5, "{calls} calls: {small}");
    let (largest, calls) = run(2 * gib);
    assert!(is(&largest, 10) && calls == 0, "{calls} calls: {largest}");
    let total = elinvar_driver_cpu::caps(1).limits.max_buffer_bytes;
    if total < 4 * gib {
        return eprintln!("skipped: the machine has {total} bytes of memory, buffers above 2 GiB need more");
    }
    let (large, calls) = run(2 * gib + 1);
    assert!(is(&large, 10) && calls == 2, "machine code and link only, not {calls}: {large}");
    let (same, calls) = run(3 * gib);
    assert!(is(&same, 10) && calls == 0, "{calls} calls: {same}");
    assert_eq!(run(16).1, 0);
    // Its code does not depend on the bound.
    let (fill, calls) = place.run(&[]);
    assert!(is(&fill, 10) && calls > 0, "{calls} calls: {fill}");
    let (fill, calls) = place.run(&[(BYTES, &(3 * gib).to_string())]);
    assert!(is(&fill, 10) && calls == 0, "{calls} calls: {fill}");
}

#[test]
fn sources_that_come_to_the_same_share_machine_code() {
    let place = Place::new();
    place.run(&[]);
    place.header("second", "// ten\n#define VALUE (5 + 5)");
    let (same, calls) = place.run(&[]);
    let called = read_to_string(place.path("calls")).unwrap();
    assert!(is(&same, 10) && calls > 0, "{same}");
    assert!(!called.contains("kernel.ll") && !called.contains("ld "), "the front end only: {called}");
    assert_eq!(place.run(&[]).1, 0);
}

#[test]
fn included_files_are_part_of_what_is_compiled() {
    let place = Place::new();
    place.run(&[]);
    place.header("second", "#define VALUE 30");
    let (changed, calls) = place.run(&[]);
    assert!(is(&changed, 30) && calls > 0, "{changed}");
    place.header("second", "#define VALUE 10");
    let (back, calls) = place.run(&[]);
    assert!(is(&back, 10) && calls == 0, "{calls} calls: {back}");
    place.header("first", "#define VALUE 50");
    let (shadowed, calls) = place.run(&[]);
    assert!(is(&shadowed, 50) && calls > 0, "a file that is found before the one that was: {shadowed}");
    std::fs::remove_file(place.path("first/value.h")).unwrap();
    let (gone, _) = place.run(&[]);
    assert!(is(&gone, 10), "{gone}");
}

#[test]
fn processes_that_compile_the_same_at_once_are_all_right() {
    let place = Place::new();
    let children: Vec<_> = (0..3).map(|_| place.process().spawn().unwrap()).collect();
    assert!(children.into_iter().all(|child| is(&said(child), 10)));
    let (warm, calls) = place.run(&[]);
    assert!(is(&warm, 10) && calls == 0, "{calls} calls: {warm}");
}

#[test]
fn damaged_entries_are_built_again() {
    let place = Place::new();
    place.run(&[]);
    let count = place.entries().len();
    for damage in [
        |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2),
        |bytes: &mut Vec<u8>| {
            let middle = bytes.len() * 3 / 4;
            bytes[middle] ^= 0x10;
        },
    ] {
        for entry in place.entries() {
            let mut bytes = std::fs::read(&entry).unwrap();
            damage(&mut bytes);
            write(&entry, bytes).unwrap();
        }
        let (again, calls) = place.run(&[]);
        assert!(is(&again, 10) && calls >= 5, "{calls} calls: {again}");
        assert_eq!(place.entries().len(), count);
        assert_eq!(place.run(&[]).1, 0);
    }
}

/// The folder may be on a disk that several machines share, or the machine may have got another processor.
#[test]
#[cfg(target_arch = "x86_64")]
fn code_for_another_processor_is_not_used() {
    let place = Place::new();
    for target in ["x86-64-v3", "x86-64-v2"] {
        let on = [("ELINVAR_CPU_TARGET", target)];
        let (said, calls) = place.run(&on);
        assert!(is(&said, 10) && calls >= 2, "{target}: {calls} calls: {said}");
        let (again, calls) = place.run(&on);
        assert!(is(&again, 10) && calls == 0, "{target}: {calls} calls: {again}");
    }
}

#[test]
fn without_a_cache_all_is_compiled_each_time() {
    let place = Place::new();
    for _ in 0..2 {
        let (said, calls) = place.run(&[("ELINVAR_CACHE", "off")]);
        assert!(is(&said, 10) && calls >= 5, "{calls} calls: {said}");
    }
    assert!(!place.path("cache").exists() && !place.path("off").exists());
    write(place.path("file"), "").unwrap();
    let file = place.path("file").display().to_string();
    let (said, _) = place.run(&[("ELINVAR_CACHE", &file)]);
    assert!(is(&said, 10), "a cache that cannot be: {said}");
}

/// The child's device is a static, so it is never dropped.
#[test]
fn nothing_is_left_in_the_folder_for_temporary_files() {
    let place = Place::new();
    let left = || std::fs::read_dir(place.path("tmp")).unwrap().count();
    for (variables, first) in
        [(&[][..], 10), (&[], 10), (&[(DEFINE, "1")], 11), (&[("ELINVAR_CACHE", "off")], 10)]
    {
        let (said, _) = place.run(variables);
        assert!(is(&said, first), "{said}");
        assert_eq!(left(), 0, "{variables:?}");
    }
}

/// Headers and precompiled headers are not cache entries, but they are verified as well.
#[test]
fn damaged_headers_are_written_again() {
    let place = Place::new();
    place.run(&[]);
    let mut entries = std::fs::read_dir(place.path("cache/1")).unwrap().map(|entry| entry.unwrap().path());
    let folder = entries.find(|path| path.is_dir()).unwrap();
    let precompiled = || {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == "pch")).collect::<Vec<_>>()
    };
    let [pch] = &precompiled()[..] else { panic!("{:?}", precompiled()) };
    let right = std::fs::read(pch).unwrap();
    let header = folder.join("elinvar_stdlib/types.h");
    let text = read_to_string(&header).unwrap();
    let mut flipped = right.clone();
    flipped[right.len() / 2] ^= 1;
    for (i, damaged) in [&flipped[..], &right[..1000]].into_iter().enumerate() {
        write(pch, damaged).unwrap();
        write(&header, &text[..text.len() / 2]).unwrap();
        let (said, calls) = place.run(&[(DEFINE, ["3", "4"][i])]);
        assert!(is(&said, 13 + i as u32) && calls >= 5, "{calls} calls: {said}");
        assert_eq!(read_to_string(&header).unwrap(), text);
        let [again] = &precompiled()[..] else { panic!("{:?}", precompiled()) };
        assert!(again == pch && std::fs::read(again).unwrap() == right);
    }
}

/// The last path in an error message that is in the folder for temporary files and has this suffix.
fn kept_file(place: &Place, error: &str, suffix: &str) -> PathBuf {
    let tmp = place.path("tmp").display().to_string();
    let words = error.split(|c: char| c.is_whitespace() || c == '\'' || c == '`');
    words
        .filter(|word| word.starts_with(&tmp) && word.ends_with(suffix))
        .map(PathBuf::from)
        .next_back()
        .unwrap()
}

/// A folder with a `clang` that runs `script` when it is given this flag.
fn with_trap(flag: &str, script: &str) -> Place {
    let place = Place::new();
    let clang = Toolchain::find().unwrap().path().display().to_string();
    let body = format!("case \" $* \" in *\" {flag} \"*) {script};; esac\nexec {clang} \"$@\"");
    place.tool("clang", &body);
    place
}

#[test]
fn a_compiler_that_hangs_is_killed_and_can_be_called_again() {
    let traps = [
        ("-E", "sleep 1000", ".metal"),
        ("-disable-llvm-passes", "sleep 1000 & wait", ".metal"),
        ("-gdwarf-4", "sleep 1000 & exit 0", ".metal"),
        ("-c", "exec sleep 1000", "kernel.ll"),
    ];
    // The children only wait, so they run in parallel.
    std::thread::scope(|scope| {
        for (flag, script, input) in traps {
            scope.spawn(move || killed_when_it_hangs(flag, script, input));
        }
    });
}

/// Checks that a compiler that hangs at `flag` is killed, and that the error names the call with the `input` file that was kept.
fn killed_when_it_hangs(flag: &str, script: &str, input: &str) {
    let place = with_trap(flag, script);
    // The whole word, as other flags contain it.
    let flag = format!(" {flag} ");
    let mut seconds = 4;
    let error = loop {
        let time = seconds.to_string();
        let (error, _) = place.run(&[("ELINVAR_COMPILE_TIMEOUT", &time), ("ELINVAR_CACHE", "off")]);
        let limit = format!("was killed after {seconds} seconds");
        assert!(error.contains(&limit) && error.contains("ELINVAR_COMPILE_TIMEOUT sets"), "{flag}: {error}");
        // On a busy machine the steps before the trap may exceed the limit.
        if error.contains(&flag) || seconds > 1000 {
            break error;
        }
        seconds *= 4;
    };
    assert!(error.contains(&flag) && kept_file(&place, &error, input).is_file(), "{flag}: {error}");
}

#[test]
fn a_kernel_that_takes_too_long_to_optimize_is_compiled_without() {
    let place = with_trap("-O3", "while :; do :; done");
    let (said, _) = place.run(&[("ELINVAR_COMPILE_TIMEOUT", "4")]);
    assert_eq!(said, Place::new().run(&[]).0);
    let calls = read_to_string(place.path("calls")).unwrap();
    let levels = ["-O3", "-O0"].map(|level| calls.matches(&format!("clang -c {level} ")).count());
    assert_eq!(levels, [1, 1], "{calls}");
    // The result is kept; with another limit it is made again.
    assert_eq!(place.run(&[("ELINVAR_COMPILE_TIMEOUT", "4")]).1, 0);
    assert_ne!(place.run(&[("ELINVAR_COMPILE_TIMEOUT", "3")]).1, 0);
}

#[test]
fn a_compiler_that_crashes_or_floods_is_reported() {
    for (script, said) in [
        ("kill -SEGV $$", "signal: 11"),
        ("yes >&2", "was killed: it wrote more than 4194304 bytes to standard error"),
    ] {
        let place = with_trap("-disable-llvm-passes", script);
        let (error, _) = place.run(&[]);
        assert!(error.contains(said) && error.contains("to reproduce: "), "{error}");
        let source = read_to_string(kept_file(&place, &error, ".metal")).unwrap();
        assert!(source.contains("fill"), "{source}");
        assert!(place.run(&[]).0.contains(said), "a failure is not kept");
    }
    let (error, _) = Place::new().run(&[("ELINVAR_COMPILE_TIMEOUT", "soon")]);
    assert!(error.contains("ELINVAR_COMPILE_TIMEOUT=`soon`"), "{error}");
}

/// The precompiled header is optional: if the compiler does not create it, or rejects it, the result is the same.
#[test]
fn a_precompiled_header_that_cannot_be_used_is_done_without() {
    for (flag, script) in [("c++-header", "exit 1"), ("-include-pch", "echo 'error: no such file'; exit 1")] {
        let place = with_trap(flag, script);
        let (said, calls) = place.run(&[]);
        assert!(is(&said, 10) && calls >= 5, "{flag}: {calls} calls: {said}");
        assert_eq!(place.run(&[]).1, 0, "{flag}");
    }
}
