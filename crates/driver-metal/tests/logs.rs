//! Log lines of kernels, through `MTLLogState`.
#![cfg(elinvar_apple)]

mod support;

use std::process::Command as Process;
use std::sync::{Arc, Mutex};

use elinvar_driver::{Binding, Device, Error, LogLevel, LogLine, Pipeline, PipelineOptions, Source, Storage};
use support::{devices, dispatch, memory, run, whole, words};

const SOURCE: &str = "#include <metal_logging>
constant metal::os_log own(\"sub\", \"cat\");
kernel void says(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if (i == 3) own.log_error(\"three %u\", x[i]);
    if (i == 1) metal::os_log_default.log_debug(\"one\");
    x[i] += 1;
}";

fn says(device: &dyn Device) -> Arc<dyn Pipeline> {
    let library = device.compile(&Source::named("says.metal", SOURCE)).unwrap();
    library.pipeline("says", &PipelineOptions::default()).unwrap()
}

fn lines(device: &dyn Device) -> Arc<Mutex<Vec<LogLine>>> {
    let seen: Arc<Mutex<Vec<LogLine>>> = Arc::default();
    let to = seen.clone();
    device.log().unwrap().subscribe(Arc::new(move |line: &LogLine| to.lock().unwrap().push(line.clone())));
    seen
}

#[test]
fn lines_have_what_metal_reports() {
    for device in devices() {
        let seen = lines(&*device);
        let log = device.log().unwrap();
        log.set_size(4096).unwrap();
        let says = says(&*device);
        assert!(matches!(log.set_size(8192), Err(Error::InvalidArgument(_))));
        let x = memory(&*device, 16, Storage::Shared);
        let queue = device.queue().unwrap();
        for _ in 0..2 {
            run(&*queue, vec![dispatch(&says, vec![Binding::Memory(whole(&x))], 4, 4)]).unwrap();
        }
        assert_eq!(words(&x), [2, 2, 2, 2]);
        let mut lines = std::mem::take(&mut *seen.lock().unwrap());
        lines.sort_by(|a, b| a.message.cmp(&b.message));
        let line = |message: &str, level, of: (&str, &str)| LogLine {
            kernel: "".into(),
            thread: None,
            level,
            subsystem: of.0.into(),
            category: of.1.into(),
            message: message.into(),
            location: None,
        };
        let one = line("one", LogLevel::Debug, ("", ""));
        let three = |n| line(&format!("three {n}"), LogLevel::Error, ("sub", "cat"));
        assert_eq!(lines, [one.clone(), one, three(0), three(1)]);
        assert_eq!((log.delivered(), log.lost()), (4, 0));
    }
}

/// A smaller buffer than Metal's smallest is refused before Metal is asked.
#[test]
fn a_log_has_a_least_size() {
    let log = devices()[0].log().unwrap().clone();
    assert!(matches!(log.set_size(1000), Err(Error::InvalidArgument(_))));
}

#[test]
fn before_macos_15_there_is_no_log() {
    let mut process = Process::new(std::env::current_exe().unwrap());
    process.env("ELINVAR_APPLE_OS", "14.5").args(["--exact", "--ignored", "an_older_system_has_no_log"]);
    let out = process.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "runs in a process of an older system"]
fn an_older_system_has_no_log() {
    assert!(devices().iter().all(|device| device.log().is_none()));
}
