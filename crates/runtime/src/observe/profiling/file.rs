//! `ELINVAR_PROFILE=FILE`: the [`ProfileLine`]s of all devices of a program, appended to a file.
//!
//! A thread writes what has ended, every 100 ms, and the process does when it exits. A program that is killed leaves what was written. Several
//! processes may append to one file: each batch is one write to a file that is opened for appending.

use std::fs::File;
use std::io::Write as _;
use std::sync::Once;
use std::time::Duration;

use elinvar_driver::PerProcess;
use elinvar_driver::sync::Mutex;

use super::ProfileLine;
use crate::{Device, TraceDetail};

/// Time between writes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Events of a device that are kept until they are written.
const EVENTS: usize = 1 << 19;

struct ProfileFile {
    file: File,
    devices: Vec<Device>,
}

static PROFILE: PerProcess<Option<Mutex<ProfileFile>>> = PerProcess::new(|| {
    let path = std::env::var_os("ELINVAR_PROFILE").filter(|path| !path.is_empty())?;
    let file = File::options().append(true).create(true).open(&path);
    let report = |error: &std::io::Error| {
        tracing::error!("nothing is profiled: cannot open `{}`: {error}", path.display())
    };
    let file = file.inspect_err(report).ok()?;
    Some(Mutex::new(ProfileFile { file, devices: Vec::new() }))
});

/// Profiles a device if the variable is set.
pub(crate) fn add(device: &Device) {
    let Some(profile) = PROFILE.get() else { return };
    device.trace().start_with(EVENTS, TraceDetail::Arguments);
    profile.lock().devices.push(device.clone());
    static STARTED: PerProcess<Once> = PerProcess::new(Once::new);
    STARTED.get().call_once(|| {
        at_exit();
        let run = || {
            loop {
                std::thread::sleep(INTERVAL);
                write();
            }
        };
        let _thread = std::thread::Builder::new().name("elinvar-profile".into()).spawn(run);
    });
}

extern "C" fn write() {
    let Some(profile) = PROFILE.get() else { return };
    let profile = &mut *profile.lock();
    let mut text = String::new();
    for (at, device) in profile.devices.iter().enumerate() {
        let timeline = device.trace().take_ended();
        if timeline.submissions.is_empty() && timeline.decisions.is_empty() {
            continue;
        }
        for line in ProfileLine::of(at, &timeline, &device.metrics()) {
            text.extend(serde_json::to_string(&line));
            text.push('\n');
        }
    }
    if !text.is_empty()
        && let Err(error) = profile.file.write_all(text.as_bytes())
    {
        tracing::error!("the profile has a gap: {error}");
    }
}

/// Has the rest written when the process exits.
#[cfg(unix)]
#[allow(unsafe_code)] // calls the C library
fn at_exit() {
    // SAFETY: `write` is a function of this program, which does not unwind.
    let _is_kept = unsafe { libc::atexit(write) };
}

#[cfg(not(unix))]
fn at_exit() {}
