//! Captures: content of the document, its groups and labels, and refused captures. The stand-in writes its document as text.
#![cfg(elinvar_apple)]

mod support;

use std::path::Path;
use std::sync::Arc;

use elinvar_driver::{Binding, Capture, Command, Dispatch, Error, Result, Storage};
use support::standin::{Fixture, alone, has_counters};
use support::{memory, run, whole, words};

/// Whether this process may write documents. If not, reruns the test in a process that may.
fn allowed(test: &str) -> bool {
    if std::env::var("METAL_CAPTURE_ENABLED").is_ok_and(|value| value == "1") {
        return true;
    }
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("METAL_CAPTURE_ENABLED", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    let passed = again.status.success() && said.contains("1 passed");
    assert!(passed, "{said}\n{}", String::from_utf8_lossy(&again.stderr));
    false
}

fn begin(fixture: &Fixture, path: &Path) -> Result<Box<dyn Capture>> {
    fixture.device.capture(path)
}

/// The lines of a document after its header.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some("elinvar-gputrace 1"));
    lines.collect()
}

#[test]
fn what_is_done_within_is_in_the_document() {
    let _alone = alone();
    if !allowed("what_is_done_within_is_in_the_document") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fixture) in Fixture::all() {
        let path = folder.path().join(format!("{number}.gputrace"));
        let (queue, other) = (fixture.device.queue().unwrap(), fixture.device.queue().unwrap());
        run(&*queue, vec![fixture.labeled(1, "before")]).unwrap();
        let capture = begin(&fixture, &path).unwrap();
        run(&*queue, vec![fixture.labeled(2, "one"), fixture.add(4), fixture.labeled(8, "two")]).unwrap();
        run(&*other, vec![fixture.copy(), fixture.labeled(16, "three")]).unwrap();
        capture.end().unwrap();
        run(&*queue, vec![fixture.labeled(32, "behind")]).unwrap();
        assert!(words(&fixture.x).iter().all(|word| *word == 63));
        let expected = "\
command buffer submission 2 of elinvar 1
  encoder \n    group one\n    dispatch add_k\n    end
    barrier\n    signpost add_k\n    dispatch add_k
    barrier\n    group two\n    dispatch add_k\n    end
command buffer submission 1 of elinvar 2
  encoder \n    copy 4
  encoder \n    group three\n    dispatch add_k\n    end";
        assert_eq!(lines(&path), expected.lines().collect::<Vec<_>>());
    }
}

/// A fence orders the encoders of a command buffer with timestamps. A timestamp at the end of a command buffer is taken by the host.
#[test]
fn a_timestamp_is_a_pass_between_two_that_do_not_meet() {
    let _alone = alone();
    if !allowed("a_timestamp_is_a_pass_between_two_that_do_not_meet") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (number, fixture) in Fixture::all().filter(|(number, _)| has_counters(*number)) {
        let path = folder.path().join(format!("{number}.gputrace"));
        let (queue, event) = (fixture.device.queue().unwrap(), fixture.device.event().unwrap());
        let signal = Command::Signal { event, value: 9 };
        let capture = begin(&fixture, &path).unwrap();
        let [time, end] = [0, 1].map(|_| Command::Timestamp { into: Arc::default() });
        run(&*queue, vec![fixture.add(1), time, fixture.add(2), end]).unwrap();
        run(&*queue, vec![fixture.add(4), signal, fixture.add(8)]).unwrap();
        capture.end().unwrap();
        let lines = lines(&path);
        // If counters are sampled between blits, the sample is a command of its own.
        let lines: Vec<_> = lines.iter().map(String::as_str).filter(|line| *line != "    sample 0").collect();
        let expected = "\
command buffer submission 1 of elinvar 1
  encoder \n    signpost add_k\n    dispatch add_k\n    update fence
  encoder timestamp\n    wait for fence\n    fill 4\n    update fence
  encoder \n    wait for fence\n    signpost add_k\n    dispatch add_k\n    update fence
command buffer submission 2 of elinvar 1
  encoder \n    signpost add_k\n    dispatch add_k
  signal 1
  encoder \n    signpost add_k\n    dispatch add_k";
        assert_eq!(lines, expected.lines().collect::<Vec<_>>());
        assert!(words(&fixture.x).iter().all(|word| *word == 15));
    }
}

#[test]
fn groups_are_closed_when_a_launch_cannot_be_encoded() {
    let _alone = alone();
    if !allowed("groups_are_closed_when_a_launch_cannot_be_encoded") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let foreign = memory(&*Fixture::new().device, 400, Storage::Shared);
    for (number, fixture) in Fixture::all() {
        let path = folder.path().join(format!("{number}.gputrace"));
        let queue = fixture.device.queue().unwrap();
        let Command::Dispatch(right) = fixture.labeled(1, "right") else { unreachable!("a dispatch") };
        let bindings = vec![Binding::Memory(whole(&foreign)), right.bindings[1].clone()];
        let wrong = Command::Dispatch(Dispatch { bindings, ..right });
        let capture = begin(&fixture, &path).unwrap();
        // The stand-in ends the process if an encoder ends with an open group.
        let error = run(&*queue, vec![fixture.labeled(1, "first"), wrong]).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(queue.acknowledge().is_some());
        run(&*queue, vec![fixture.labeled(2, "next")]).unwrap();
        capture.end().unwrap();
        let expected = [
            "command buffer submission 2 of elinvar 1",
            "  encoder ",
            "    group next",
            "    dispatch add_k",
            "    end",
        ];
        assert_eq!(lines(&path), expected);
        assert!(words(&fixture.x).iter().all(|word| *word == 2));
    }
}

#[test]
fn a_capture_ends_when_it_is_dropped_and_mistakes_are_told() {
    let _alone = alone();
    let fixture = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gputrace");
    if std::env::var_os("METAL_CAPTURE_ENABLED").is_none() {
        let refused = begin(&fixture, &path).err();
        assert!(
            matches!(&refused, Some(Error::Unsupported(text)) if text.contains("METAL_CAPTURE_ENABLED=1") && text.contains("x.gputrace")),
            "{refused:?}"
        );
        assert!(!path.exists());
    }
    if !allowed("a_capture_ends_when_it_is_dropped_and_mistakes_are_told") {
        return;
    }
    let invalid = |path: &Path, part: &str| {
        let refused = begin(&fixture, path).err();
        let told = matches!(&refused, Some(Error::InvalidArgument(text)) if text.contains(part));
        assert!(told, "{refused:?}");
    };
    let capture = begin(&fixture, &path).unwrap();
    invalid(&folder.path().join("y.gputrace"), "another capture of this process has not ended");
    drop(capture);
    assert!(lines(&path).is_empty());
    invalid(&path, "the path already exists");
    let path = folder.path().join("nothing/here.gputrace");
    let error = begin(&fixture, &path).unwrap().end().unwrap_err();
    assert!(matches!(&error, Error::Environment(text) if text.contains("Metal wrote no trace")), "{error}");
    begin(&fixture, &folder.path().join("z.gputrace")).unwrap().end().unwrap();
}
