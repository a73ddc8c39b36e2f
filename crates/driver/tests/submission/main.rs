//! Single-threaded tests of the submission core, over a scripted device.

mod device;

use std::sync::Arc;

use elinvar_driver::submission::Completed;
use elinvar_driver::{Command, Error, Event, Queue, Submission, Timeline, TimestampSlot, Timing};

use crate::device::*;

#[test]
fn submissions_are_issued_ahead_and_end_in_order() {
    let fixture = ahead();
    fixture.submit_and_run(vec![work(), work()]);
    fixture.submit_and_run(vec![]);
    fixture.submit_and_run(vec![work()]);
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (1, 1), (3, 0)]);
    fixture.executed(3);
    fixture.executed(2);
    assert_eq!(fixture.numbers(), []);
    fixture.executed(1);
    let ended = fixture.ended();
    assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(*ended[0].1.as_ref().unwrap(), Timing { start_ns: 100, end_ns: 250 });
    assert_eq!(*ended[1].1.as_ref().unwrap(), Timing { start_ns: 1000, end_ns: 1000 });
    assert!(fixture.queue.submissions().first().is_none());
}

#[test]
fn what_is_executed_at_once_ends_in_the_turn() {
    let fixture = Fixture::<false>::new(Device { mode: Mode::AtOnce, ..Device::default() });
    let (event, stamp): (Arc<Timeline>, Arc<TimestampSlot>) = Default::default();
    fixture.submit(vec![work(), signal(&event, 1), Command::Timestamp { into: stamp.clone() }, work()]);
    fixture.submit(vec![work()]);
    assert_eq!(fixture.device().scheduled.lock().len(), 1, "one turn for both");
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "ok")]);
    assert_eq!((event.value(), event.time_ns(), stamp.ns()), (1, Some(5), Some(5)));
}

#[test]
fn signals_and_timestamps_follow_what_is_before_them() {
    let fixture = ahead();
    let (event, stamp): (Arc<Timeline>, Arc<TimestampSlot>) = Default::default();
    fixture.submit_and_run(vec![
        work(),
        signal(&event, 1),
        work(),
        Command::Timestamp { into: stamp.clone() },
    ]);
    assert_eq!(event.value(), 0);
    fixture.executed(2);
    assert_eq!((event.value(), stamp.ns()), (0, None));
    fixture.executed(1);
    assert_eq!((event.value(), event.time_ns(), stamp.ns()), (1, Some(150), Some(250)));
    assert_eq!(fixture.numbers(), [(1, "ok")]);
}

#[test]
fn marks_with_fences_take_effect_when_the_device_reaches_them() {
    let (fixture, event) = (ahead(), Arc::<Timeline>::default());
    *fixture.device().marks.lock() = true;
    fixture.submit_and_run(vec![work(), signal(&event, 1)]);
    fixture.executed(1);
    assert_eq!((event.value(), fixture.numbers()), (0, vec![]));
    fixture.executed(2);
    assert_eq!((event.value(), fixture.numbers()), (1, vec![(1, "ok")]));
    let queue = fixture.queue.submissions().clone();
    let reach = move |fence| {
        // Another thread completes both operations and takes a turn before `mark` returns.
        for fence in [fence - 1, fence] {
            let executed = Completed::Executed { start_ns: None, end_ns: 0 };
            assert_eq!(queue.complete(|other| *other == fence, executed), Some(fence));
        }
        queue.turn(&mut Thread);
    };
    *fixture.device().on_mark.lock() = Some(Box::new(reach));
    fixture.submit_and_run(vec![work(), signal(&event, 2)]);
    assert_eq!((event.value(), fixture.numbers()), (2, vec![(2, "ok")]));
    fixture.submit_and_run(vec![signal(&event, 3)]);
    fixture.executed(5);
    assert_eq!((event.value(), fixture.numbers()), (3, vec![(3, "ok")]));
}

#[test]
fn a_mark_behind_a_wait_is_not_before_it() {
    let fixture = Fixture::<false>::new(Device { mode: Mode::AtOnce, ..Device::default() });
    let (event, stamps): (Arc<Timeline>, [Arc<TimestampSlot>; 2]) = Default::default();
    let stamp = |at: usize| Command::Timestamp { into: stamps[at].clone() };
    fixture.submit_and_run(vec![work(), stamp(0), wait(&event, 1), stamp(1)]);
    event.signal(1, 0);
    fixture.run();
    assert_eq!(stamps.map(|stamp| stamp.ns()), [Some(5), Some(1000)]);
}

#[test]
fn a_wait_blocks_what_is_behind_it_until_the_event_is_there() {
    let fixture = ahead();
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work(), wait(&event, 2), work()]);
    fixture.submit_and_run(vec![work()]);
    fixture.executed(1);
    event.signal(1, 0);
    fixture.run();
    assert_eq!(*fixture.device().begun.lock(), [(1, 0)]);
    event.signal(2, 0);
    fixture.run();
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (1, 2), (2, 0)]);
    fixture.executed(2);
    fixture.executed(3);
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "ok")]);
}

#[test]
fn a_device_that_waits_is_given_what_is_behind() {
    let fixture = ahead();
    *fixture.device().waits.lock() = true;
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![wait(&event, 1), work()]);
    assert_eq!(*fixture.device().begun.lock(), [(1, 1)]);
    fixture.executed(1);
    assert_eq!(fixture.numbers(), [], "the host does not know of the event yet");
    event.signal(1, 0);
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "ok")]);
    let fails: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![wait(&fails, 1), work()]);
    fixture.executed(2);
    fails.fail(&error());
    fixture.run();
    assert_eq!(fixture.numbers(), [(2, "poisoned")]);
    assert!(fixture.queue.acknowledge().is_some(), "it is a failure of the queue all the same");
}

#[test]
fn what_is_behind_a_wait_is_issued_when_the_signal_is_promised_and_ends_when_it_has_come() {
    for fails in [false, true] {
        let fixture = Fixture::<false>::new(Device::default());
        let event = Arc::new(PromisedEvent::new());
        let wait = |value| Command::Wait { event: event.clone(), value };
        fixture.submit_and_run(vec![work(), wait(1), work()]);
        fixture.submit_and_run(vec![work()]);
        fixture.executed(1);
        assert_eq!(*fixture.device().begun.lock(), [(1, 0)], "nothing is promised");
        event.promise(1, Point);
        fixture.run();
        assert_eq!(*fixture.device().begun.lock(), [(1, 0), (1, 2), (2, 0)]);
        fixture.executed(2);
        fixture.executed(3);
        assert!(fixture.ended().is_empty(), "the device is through, and the promise is not kept yet");
        if fails {
            event.fail(&error())
        } else {
            event.signal(1, 7)
        }
        fixture.run();
        let expected = if fails { [(1, "poisoned"), (2, "poisoned")] } else { [(1, "ok"), (2, "ok")] };
        assert_eq!(fixture.numbers(), expected);
    }
}

#[test]
fn a_failed_event_fails_who_waits_for_it() {
    let fixture = ahead();
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![wait(&event, 1), work()]);
    fixture.submit_and_run(vec![work()]);
    event.fail(&error());
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "poisoned"), (2, "poisoned")]);
    assert!(fixture.queue.acknowledge().is_some());
    assert_eq!(*fixture.device().begun.lock(), []);
}

#[test]
fn a_failure_poisons_what_is_behind_until_it_is_acknowledged() {
    let fixture = ahead();
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work(), signal(&event, 1)]);
    fixture.submit_and_run(vec![work()]);
    fixture.complete(1, Completed::Failed(error()));
    assert_eq!(fixture.numbers(), [(1, "failed")]);
    assert!(event.failure().is_some());
    fixture.submit_and_run(vec![work()]);
    assert_eq!(fixture.numbers(), [], "the second is still in flight");
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(2, "poisoned"), (3, "poisoned")], "whatever became of it");
    assert!(matches!(fixture.queue.acknowledge(), Some(Error::Environment(_))));
    assert!(fixture.queue.acknowledge().is_none());
    fixture.submit_and_run(vec![work()]);
    fixture.executed(3);
    assert_eq!(fixture.numbers(), [(4, "ok")]);
}

#[test]
fn a_signal_behind_a_failure_is_not_raised() {
    for mode in [Mode::Ahead, Mode::AtOnce] {
        let fixture = Fixture::<false>::new(Device { mode, ..Device::default() });
        let event: Arc<Timeline> = Arc::default();
        if mode == Mode::AtOnce {
            fixture.device().errors.lock().push(error());
        }
        fixture.submit(vec![work()]);
        fixture.submit(vec![signal(&event, 1), work()]);
        fixture.run();
        if mode == Mode::Ahead {
            fixture.complete(1, Completed::Failed(error()));
            fixture.executed(2);
        }
        assert_eq!(fixture.numbers(), [(1, "failed"), (2, "poisoned")]);
        assert!(event.value() == 0 && event.failure().is_some());
    }
}

#[test]
fn an_earlier_failure_takes_precedence_over_a_later_one_that_is_known_before() {
    let fixture = ahead();
    fixture.submit_and_run(vec![work()]);
    fixture.device().errors.lock().push(Error::invalid("later"));
    fixture.submit_and_run(vec![work()]);
    fixture.submit_and_run(vec![work()]);
    assert_eq!(*fixture.device().begun.lock(), [(1, 0)], "nothing is issued behind a failure");
    assert!(fixture.queue.acknowledge().is_none());
    fixture.complete(1, Completed::Failed(error()));
    let ended = fixture.ended();
    assert!(matches!(&ended[0].1, Err(Error::Environment(_))));
    for (_, result) in &ended[1..] {
        assert!(matches!(result, Err(Error::Poisoned(cause)) if matches!(**cause, Error::Environment(_))));
    }
    assert_eq!(ended.len(), 3);
}

#[test]
fn what_has_not_begun_is_cancelled() {
    let fixture = ahead();
    *fixture.device().room.lock() = Some(1);
    let event: Arc<Timeline> = Arc::default();
    let first = fixture.submit_and_run(vec![work()]);
    let second = fixture.submit_and_run(vec![work()]);
    let third = fixture.submit_and_run(vec![wait(&event, 1), work()]);
    assert!(!fixture.queue.cancel(first) && fixture.queue.cancel(second) && !fixture.queue.cancel(second));
    fixture.run();
    assert_eq!(fixture.numbers(), [(2, "cancelled")], "before the first, which runs");
    fixture.executed(1);
    assert!(fixture.queue.cancel(third), "it has only waited");
    fixture.submit_and_run(vec![work()]);
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (4, 0)], "the wait blocks nobody any more");
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(1, "ok"), (3, "cancelled"), (4, "ok")]);
    assert!(fixture.queue.acknowledge().is_none(), "not a failure");
}

#[test]
fn a_device_may_take_back_what_is_in_flight() {
    let fixture = Fixture::<false>::new(Device { can_cancel: true, ..Device::default() });
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work()]);
    let second = fixture.submit_and_run(vec![work(), signal(&event, 1), work()]);
    fixture.submit_and_run(vec![work()]);
    assert!(fixture.queue.cancel(second));
    fixture.run();
    fixture.complete(2, Completed::Cancelled);
    assert_eq!(fixture.numbers(), [], "one more of its operations is in flight");
    fixture.complete(3, Completed::Cancelled);
    assert_eq!(fixture.numbers(), [(2, "cancelled")]);
    fixture.executed(1);
    fixture.executed(4);
    assert_eq!(fixture.numbers(), [(1, "ok"), (3, "ok")]);
}

#[test]
fn what_is_stopped_ends_in_the_cause_in_its_turn() {
    let fixture = ahead();
    *fixture.device().room.lock() = Some(1);
    let event: Arc<Timeline> = Arc::default();
    let first = fixture.submit_and_run(vec![work()]);
    let second = fixture.submit_and_run(vec![work()]);
    assert!(matches!(fixture.queue.stop(first, error()), Err(Error::Unsupported(_))));
    assert!(fixture.queue.stop(second, error()).unwrap());
    fixture.run();
    assert_eq!(fixture.numbers(), []);
    fixture.executed(1);
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "failed")]);
    assert!(fixture.queue.acknowledge().is_some());
    let third = fixture.submit_and_run(vec![work(), wait(&event, 1), work()]);
    fixture.executed(2);
    assert!(fixture.queue.stop(third, error()).unwrap(), "it waits");
    fixture.run();
    assert_eq!(fixture.numbers(), [(3, "failed")]);
    assert!(!fixture.queue.stop(third, error()).unwrap(), "it has ended");
    event.signal(1, 0);
    fixture.run();
    assert_eq!(fixture.numbers(), []);
}

#[test]
fn a_stop_of_what_runs_is_the_devices() {
    let fixture = Fixture::<false>::new(Device { can_stop: true, ..Device::default() });
    let first = fixture.submit_and_run(vec![work()]);
    assert!(fixture.queue.stop(first, error()).unwrap());
    fixture.executed(1);
    assert_eq!(fixture.numbers(), [(1, "ok")], "it was at its end");
}

#[test]
fn room_and_drains_hold_issue_back() {
    let fixture = ahead();
    *fixture.device().room.lock() = Some(2);
    (0..3).for_each(|_| _ = fixture.submit_and_run(vec![work()]));
    assert_eq!(fixture.device().begun.lock().len(), 2);
    fixture.executed(1);
    assert_eq!(fixture.device().begun.lock().len(), 3);
    *fixture.device().room.lock() = None;
    fixture.executed(2);
    fixture.executed(3);
    *fixture.device().drains.lock() = true;
    fixture.submit_and_run(vec![work(), work()]);
    assert_eq!(fixture.device().begun.lock().len(), 4);
    fixture.executed(4);
    assert_eq!(fixture.device().begun.lock().len(), 5);
    fixture.executed(5);
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "ok"), (3, "ok"), (4, "ok")]);
    *fixture.device().room.lock() = Some(0);
    fixture.submit_and_run(vec![work()]);
    *fixture.device().room.lock() = None;
    fixture.queue.submissions().resume();
    fixture.run();
    assert_eq!(fixture.device().begun.lock().len(), 6);
}

#[test]
fn room_that_the_end_of_a_submission_makes_resumes_issue() {
    let fixture = ahead();
    *fixture.device().room.lock() = Some(1);
    (0..2).for_each(|_| _ = fixture.submit_and_run(vec![work()]));
    *fixture.device().room.lock() = Some(0);
    let queue = fixture.queue.submissions().clone();
    let callback = move |()| {
        // Another thread issues after the last operation was retired and before its submission makes room.
        queue.turn(&mut Thread);
        *queue.backend().room.lock() = None;
    };
    *fixture.device().on_recycle.lock() = Some(Box::new(callback));
    fixture.executed(1);
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (2, 0)]);
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "ok")]);
}

#[test]
fn what_has_not_begun_is_held_back() {
    let fixture = ahead();
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work(), wait(&event, 1), work()]);
    fixture.queue.submissions().hold();
    fixture.submit_and_run(vec![]);
    event.signal(1, 0);
    fixture.run();
    fixture.executed(1);
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(1, "ok")], "what has begun goes on");
    assert!(fixture.queue.submissions().has_ended(1) && !fixture.queue.submissions().has_ended(2));
    fixture.queue.submissions().release();
    fixture.run();
    assert_eq!(fixture.numbers(), [(2, "ok")]);
    assert!(fixture.queue.submissions().has_ended(2));
}

#[test]
fn a_lost_device_ends_everything() {
    let fixture = ahead();
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work()]);
    fixture.submit_and_run(vec![work(), wait(&event, 1)]);
    let lost = Error::DeviceLost("a test".into());
    let gone = fixture.queue.submissions().abandon(true, &lost, |_| lost.clone());
    assert_eq!(gone, [1, 2]);
    drop(fixture.queue.submissions().advance());
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "lost"), (2, "lost")]);
    fixture.submit_and_run(vec![work()]);
    assert_eq!(fixture.numbers(), [(3, "poisoned")]);
    assert!(matches!(fixture.queue.acknowledge(), Some(Error::DeviceLost(_))));
    fixture.submit_and_run(vec![work()]);
    fixture.executed(3);
    assert_eq!(fixture.numbers(), [(4, "ok")]);
}

#[test]
fn a_reset_waits_for_what_is_in_flight() {
    let fixture = ahead();
    fixture.submit_and_run(vec![work()]);
    fixture.submit_and_run(vec![work()]);
    let lost = Error::DeviceLost("a test".into());
    assert_eq!(fixture.queue.submissions().abandon(false, &lost, |_| lost.clone()), Vec::<u64>::new());
    drop(fixture.queue.submissions().advance());
    fixture.run();
    assert_eq!(fixture.numbers(), []);
    fixture.executed(1);
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(1, "lost"), (2, "lost")]);
}

#[test]
fn commands_that_are_lost_fail_the_first_and_poison_the_others() {
    let fixture = ahead();
    fixture.submit_and_run(vec![work(), work()]);
    fixture.submit_and_run(vec![work()]);
    fixture.executed(1);
    fixture.queue.submissions().lose_commands(&error());
    drop(fixture.queue.submissions().advance());
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "failed"), (2, "poisoned")]);
}

#[test]
fn a_suspended_queue_tries_again_or_gives_up() {
    let fixture = ahead();
    *fixture.device().suspends.lock() = true;
    let event: Arc<Timeline> = Arc::default();
    fixture.submit_and_run(vec![work(), signal(&event, 1)]);
    fixture.submit_and_run(vec![work()]);
    fixture.complete(1, Completed::Failed(error()));
    fixture.complete(2, Completed::Failed(error().poison()));
    assert_eq!(fixture.numbers(), [], "the failure is being dealt with");
    fixture.submit_and_run(vec![]);
    assert!(fixture.queue.submissions().retry(Submission(1)));
    fixture.run();
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (2, 0), (1, 0), (2, 0)]);
    fixture.executed(3);
    fixture.executed(4);
    assert_eq!(fixture.numbers(), [(1, "ok"), (2, "ok"), (3, "ok")]);
    assert_eq!(event.value(), 1);
    // Executed elsewhere, then failed permanently.
    fixture.submit_and_run(vec![work(), signal(&event, 2)]);
    fixture.complete(5, Completed::Failed(error()));
    let timing = Timing { start_ns: 7, end_ns: 8 };
    assert!(
        !fixture.queue.submissions().complete_first(Submission(5), 1, timing),
        "of an earlier submission"
    );
    assert!(fixture.queue.submissions().complete_first(Submission(4), 1, timing));
    fixture.run();
    assert_eq!(*fixture.ended()[0].1.as_ref().unwrap(), timing);
    assert_eq!((event.value(), event.time_ns()), (2, Some(8)));
    fixture.submit_and_run(vec![work()]);
    fixture.submit_and_run(vec![work()]);
    fixture.complete(6, Completed::Failed(error()));
    fixture.executed(7);
    assert!(fixture.queue.submissions().fail_first(Submission(5), error()));
    fixture.run();
    assert_eq!(fixture.numbers(), [(5, "failed"), (6, "poisoned")]);
}

#[test]
fn what_is_behind_a_suspended_submission_is_cancelled_and_the_submission_stopped() {
    let fixture = ahead();
    *fixture.device().suspends.lock() = true;
    for _ in 0..3 {
        fixture.submit_and_run(vec![work()]);
    }
    let queue = fixture.queue.submissions();
    fixture.complete(1, Completed::Failed(error()));
    assert!(queue.is_suspended() && queue.with_suspended(|_| ()).is_none(), "others are in flight");
    assert!(!queue.retry(Submission(1)) && !queue.cancel(Submission(2)));
    fixture.complete(2, Completed::Poisoned(error().poison()));
    fixture.complete(3, Completed::Poisoned(error().poison()));
    assert!(!queue.cancel(Submission(1)) && queue.cancel(Submission(2)));
    fixture.run();
    assert_eq!(fixture.numbers(), [(2, "cancelled")]);
    let cause = Error::Timeout("a test".into());
    assert!(queue.stop(Submission(1), cause.clone()).unwrap());
    let seen = queue.with_suspended(|first| (first.submission, first.error.to_string(), first.is_stopped));
    assert_eq!(seen, Some((Submission(1), cause.to_string(), true)));
    assert!(!queue.retry(Submission(1)), "it was stopped");
    assert!(queue.fail_first(Submission(1), cause) && !queue.is_suspended());
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "failed"), (3, "poisoned")]);
}

#[test]
fn a_stop_that_the_device_fails_is_withdrawn() {
    let fixture = Fixture::<false>::new(Device { stop_fails: true, ..Device::default() });
    let submission = fixture.submit_and_run(vec![work(), work()]);
    assert!(matches!(fixture.queue.stop(submission, error()), Err(Error::Unsupported(_))));
    fixture.executed(1);
    fixture.executed(2);
    assert_eq!(fixture.numbers(), [(1, "ok")]);
}

#[test]
fn a_layer_is_given_whole_submissions_without_the_signals_at_the_end() {
    let fixture = Fixture::<true>::new(Device::default());
    let (waited, raised): (Arc<Timeline>, Arc<Timeline>) = Default::default();
    let stamp = Command::Timestamp { into: Arc::default() };
    fixture.submit_and_run(vec![wait(&waited, 1), work(), signal(&raised, 1), stamp, signal(&raised, 2)]);
    fixture.submit_and_run(vec![]);
    fixture.submit_and_run(vec![signal(&raised, 3)]);
    *fixture.device().retracts.lock() = true;
    fixture.submit_and_run(vec![wait(&waited, 2), signal(&raised, 4)]);
    assert_eq!(*fixture.device().begun.lock(), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    fixture.executed(1);
    assert_eq!(fixture.numbers(), [(1, "ok")]);
    assert_eq!((raised.value(), raised.time_ns()), (2, Some(150)));
    // A retracted submission is reissued from its first command.
    assert_eq!(fixture.device().begun.lock()[4..], [(4, 0)]);
    fixture.executed(3);
    fixture.executed(2);
    fixture.executed(5);
    assert_eq!(fixture.numbers(), [(2, "ok"), (3, "ok"), (4, "ok")]);
    assert_eq!((raised.value(), raised.time_ns()), (4, Some(550)));
}

#[test]
fn a_layer_on_a_lost_device_ends_everything_in_the_loss() {
    let fixture = Fixture::<true>::new(Device::default());
    *fixture.device().suspends.lock() = true;
    for _ in 0..3 {
        fixture.submit_and_run(vec![work()]);
    }
    let queue = fixture.queue.submissions();
    fixture.complete(1, Completed::Failed(error()));
    fixture.complete(2, Completed::Failed(error()));
    assert!(queue.is_suspended() && !queue.is_decided());
    let lost = Error::DeviceLost("a test".into());
    assert!(queue.abandon(false, &lost, |_| lost.clone()).is_empty());
    assert!(queue.is_decided() && !queue.retry(Submission(1)) && !queue.fail_first(Submission(1), error()));
    drop(queue.advance());
    // The failure is acknowledged before the submissions end.
    assert!(matches!(fixture.queue.acknowledge(), Some(Error::DeviceLost(_))));
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "lost"), (2, "lost")]);
    fixture.executed(3);
    assert_eq!(fixture.numbers(), [(3, "lost")]);
    assert!(fixture.queue.acknowledge().is_none());
}

#[test]
fn a_panic_of_the_backend_is_an_error_of_the_submission() {
    let fixture = Fixture::<false>::new(Device { mode: Mode::AtOnce, ..Device::default() });
    *fixture.device().room.lock() = None;
    fixture.submit(vec![work()]);
    fixture.submit(vec![work()]);
    // An error returned by `begin` fails the submission.
    fixture.device().errors.lock().push(error());
    fixture.run();
    assert_eq!(fixture.numbers(), [(1, "failed"), (2, "poisoned")]);
}

/// The contract holds for random sequences of submissions, completions, failures, cancellations, stops and events.
#[test]
fn random_histories_keep_the_contract() {
    for seed in 0..4000_u64 {
        history(seed);
    }
}

fn history(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mode = if random(3) == 0 { Mode::AtOnce } else { Mode::Ahead };
    let fixture = Fixture::<false>::new(Device {
        mode,
        can_stop: random(2) == 0,
        can_cancel: random(2) == 0,
        ..Device::default()
    });
    *fixture.device().room.lock() = (random(2) == 0).then(|| 1 + random(3) as usize);
    let events: Vec<Arc<Timeline>> = (0..4).map(|_| Arc::default()).collect();
    let mut submitted = 0;
    for _ in 0..60 {
        match random(10) {
            0..=3 => {
                let mut commands = Vec::new();
                for _ in 0..random(4) {
                    let event = &events[random(4) as usize];
                    commands.push(match random(6) {
                        0 => wait(event, 1 + random(3)),
                        1 => signal(event, 1 + random(3)),
                        _ => work(),
                    });
                }
                submitted = fixture.submit(commands).0;
            }
            4 if submitted > 0 => _ = fixture.queue.cancel(Submission(1 + random(submitted))),
            5 if submitted > 0 => _ = fixture.queue.stop(Submission(1 + random(submitted)), error()),
            6 => events[random(4) as usize].signal(1 + random(3), 0),
            7 => fixture.device().errors.lock().push(error()),
            8 => drop(fixture.queue.acknowledge()),
            _ => {}
        }
        if random(2) == 0 {
            fixture.run();
        }
        let first = fixture.queue.submissions().with_fences(|fences| fences.next().copied());
        if let Some(first) = first.filter(|_| random(2) == 0) {
            match random(8) {
                0 => fixture.complete(first, Completed::Failed(error())),
                _ => fixture.executed(first),
            }
        }
    }
    // Raise all events and complete everything in flight, so that everything ends.
    events.iter().for_each(|event| event.signal(9, 0));
    fixture.run();
    while let Some(first) = fixture.queue.submissions().with_fences(|fences| fences.next().copied()) {
        fixture.executed(first);
    }
    let ended = fixture.ended();
    let mut all: Vec<u64> = ended.iter().map(|(id, _)| *id).collect();
    let in_order: Vec<u64> = ended
        .iter()
        .filter(|(_, result)| !matches!(result, Err(Error::Cancelled)))
        .map(|(id, _)| *id)
        .collect();
    assert!(in_order.is_sorted(), "seed {seed}: {in_order:?}");
    all.sort_unstable();
    assert_eq!(all, (1..=submitted).collect::<Vec<_>>(), "seed {seed}: each ends once");
    let begun = fixture.device().begun.lock().clone();
    assert!(begun.is_sorted(), "seed {seed}: commands are begun in order, each once: {begun:?}");
    assert!(begun.windows(2).all(|two| two[0] != two[1]), "seed {seed}: {begun:?}");
    assert!(fixture.queue.submissions().first().is_none());
}
