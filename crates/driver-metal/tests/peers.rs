//! Copies between the memories of two devices, on the queues of both: all pairs of the system's devices and, with the stand-ins for Apple's
//! libraries, two cards of a peer group and a device outside of it.
#![cfg(any(target_vendor = "apple", elinvar_apple))]

mod support;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elinvar_driver::{Command, Error, Memory, Reach, Storage};
#[cfg(elinvar_apple)]
use objc2_metal::MTLCommandBufferError;
#[cfg(elinvar_apple)]
use support::standin::{ALLOCATION, EXECUTION, inject_on, live};
use support::{devices, memory, read, run, slice, write};

const MODES: [Storage; 3] = [Storage::Private, Storage::Shared, Storage::Managed];
const LEN: u64 = 40_000;

/// Reruns the tests of this file with two cards of a peer group.
#[cfg(elinvar_apple)]
#[test]
fn again_with_two_cards() {
    if std::env::var("ELINVAR_APPLE_PROFILE").is_ok_and(|profile| profile == CARDS) {
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.env("ELINVAR_APPLE_PROFILE", CARDS).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[cfg(elinvar_apple)]
const CARDS: &str = "discrete,discrete,apple9";

/// Injected faults and object counts are those of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All ordered pairs of devices, by index.
fn pairs() -> Vec<(usize, usize)> {
    let count = devices().len();
    let with = |a: usize| (0..count).filter(move |b| *b != a).map(move |b| (a, b));
    (0..count).flat_map(with).collect()
}

fn data(seed: usize) -> Vec<u8> {
    (0..LEN as usize).map(|i| (i * 7 + i / 251 + seed) as u8).collect()
}

#[cfg(elinvar_apple)]
#[test]
fn peers_reach_each_other_and_others_by_the_host() {
    let _alone = alone();
    let all = devices();
    if std::env::var("ELINVAR_APPLE_PROFILE").is_ok_and(|profile| profile == CARDS) {
        let (peer, staged) = (Some(Reach::Peer), Some(Reach::Staged));
        let found: Vec<_> = all.iter().map(|one| [0, 1, 2].map(|other| one.reaches(&*all[other]))).collect();
        assert_eq!(found, [[peer, peer, staged], [peer, peer, staged], [staged, staged, peer]]);
    }
    for (one, other) in pairs() {
        let (one, other) = (&all[one], &all[other]);
        let (there, back) = (one.reaches(&**other), other.reaches(&**one));
        assert!(there.is_some() && there == back);
    }
}

/// Copies at all alignments and between all storage modes preserve the bytes around the destination.
#[test]
fn bytes_arrive_by_queues_of_both() {
    let ranges =
        [(0, 0, LEN), (4, 16, 20_000), (3, 8, 1000), (8, 5, 1001), (1, 2, 30_003), (9, 9, 1), (7, 0, 0)];
    let all = devices();
    let _alone = alone();
    for (one, other) in pairs() {
        let (one, other) = (&all[one], &all[other]);
        let queues = [one.queue().unwrap(), other.queue().unwrap()];
        for (round, (from, to)) in MODES.iter().flat_map(|from| MODES.map(|to| (*from, to))).enumerate() {
            let (source, target) = (memory(&**one, LEN, from), memory(&**other, LEN, to));
            let (data, mut expected) = (data(round), data(round + 100));
            write(&source, 0, &data);
            write(&target, 0, &expected);
            for (begin, at, len) in ranges {
                for queue in &queues {
                    let copy =
                        Command::Copy { source: slice(&source, begin, len), target: slice(&target, at, len) };
                    run(&**queue, vec![copy]).unwrap();
                    let bytes = &data[begin as usize..(begin + len) as usize];
                    expected[at as usize..(at + len) as usize].copy_from_slice(bytes);
                    assert!(read(&target) == expected, "{from:?} {begin} to {to:?} {at}: {len} bytes");
                }
            }
            assert!(read(&source) == data);
        }
    }
}

/// A copy releases its views and its memory between the devices.
#[cfg(elinvar_apple)]
#[test]
fn nothing_is_left_of_a_copy() {
    let _alone = alone();
    let all = devices();
    for (one, other) in pairs() {
        for storage in [Storage::Private, Storage::Shared] {
            let (a, b) = (memory(&*all[one], LEN, storage), memory(&*all[other], LEN, storage));
            let copy = |at| Command::Copy { source: slice(&a, at, 999), target: slice(&b, 0, 999) };
            let queue = all[one].queue().unwrap();
            run(&*queue, vec![copy(0)]).unwrap();
            let before = live();
            for at in 0..20 {
                run(&*queue, vec![copy(at), copy(2 * at)]).unwrap();
            }
            assert_eq!(live(), before);
        }
    }
}

/// Round trips within one submission, between other commands: all commands take effect in order.
#[test]
fn they_take_their_turn() {
    let _alone = alone();
    let all = devices();
    for (one, other) in pairs() {
        let ours: [Arc<dyn Memory>; 2] = std::array::from_fn(|_| memory(&*all[one], LEN, Storage::Private));
        let theirs = memory(&*all[other], LEN, Storage::Private);
        let fill = |memory: &Arc<dyn Memory>, at, len, byte| Command::Fill {
            target: slice(memory, at, len),
            pattern: vec![byte],
        };
        let copy = |from: &Arc<dyn Memory>, to: &Arc<dyn Memory>, at, len| Command::Copy {
            source: slice(from, at, len),
            target: slice(to, at, len),
        };
        let queue = all[one].queue().unwrap();
        for round in 0..5_u8 {
            let commands = vec![
                fill(&ours[0], 0, LEN, 1 + round),
                copy(&ours[0], &theirs, 0, LEN),
                fill(&ours[0], 0, LEN, 100),
                copy(&theirs, &ours[1], 0, 1000),
                copy(&theirs, &ours[1], 1003, 777),
                fill(&ours[1], 500, 20, 200),
                copy(&ours[1], &theirs, 400, 400),
            ];
            let timing = run(&*queue, commands).unwrap();
            assert!(timing.end_ns >= timing.start_ns);
            let expected = |at: usize| match at {
                500..520 => 200,
                _ => 1 + round,
            };
            assert!((400..800).all(|at| read(&theirs)[at] == expected(at)));
            let got = read(&ours[1]);
            assert!((0..1000).chain(1003..1780).all(|at| got[at] == expected(at)), "round {round}");
            assert!(read(&ours[0]).iter().all(|byte| *byte == 100));
        }
    }
}

#[test]
fn what_a_queue_has_nothing_to_do_with_is_refused() {
    let _alone = alone();
    let all = devices();
    let [one, two, three] = &all[..] else { return };
    let (a, b) = (memory(&**one, 16, Storage::Private), memory(&**two, 16, Storage::Private));
    let queue = three.queue().unwrap();
    let refused = run(&*queue, vec![Command::Copy { source: slice(&a, 0, 16), target: slice(&b, 0, 16) }]);
    let Err(Error::InvalidArgument(text)) = refused else { panic!("{refused:?}") };
    assert!(text.starts_with("neither side of the copy belongs to Metal device `"), "{text}");
    let queue = one.queue().unwrap();
    let refused = run(&*queue, vec![Command::Copy { source: slice(&a, 0, 16), target: slice(&b, 0, 12) }]);
    let Err(Error::InvalidArgument(text)) = refused else { panic!("{refused:?}") };
    assert_eq!(text, "copy of 16 bytes to 12 bytes");
}

/// Failure of one half fails the submission with an error that names the device, and does not affect the next submission.
#[cfg(elinvar_apple)]
#[test]
fn either_half_may_fail() {
    let _alone = alone();
    let all = devices();
    for (one, other) in pairs() {
        let (a, b) = (memory(&*all[one], LEN, Storage::Shared), memory(&*all[other], LEN, Storage::Private));
        let (first, second) = (data(1), data(2));
        let queue = all[one].queue().unwrap();
        let copy = |at| Command::Copy { source: slice(&a, 0, 99), target: slice(&b, at, 99) };
        let sites = [(one, EXECUTION), (other, EXECUTION), (one, ALLOCATION)];
        for (failing, site) in sites {
            write(&a, 0, &first);
            inject_on(failing, site, 1, MTLCommandBufferError::Internal, -1);
            let failed = run(&*queue, vec![copy(0)]);
            match &failed {
                Err(Error::OutOfMemory { requested, .. }) if site == ALLOCATION => {
                    assert!(*requested >= 99);
                }
                Err(Error::Environment(text)) if site == EXECUTION => {
                    assert!(text.contains(&all[failing].caps().name), "{text}");
                }
                other => panic!("{other:?}"),
            }
            assert!(queue.acknowledge().is_some());
            write(&a, 0, &second);
            run(&*queue, vec![copy(100)]).unwrap();
            assert!(read(&b)[100..199] == second[..99]);
        }
    }
}
