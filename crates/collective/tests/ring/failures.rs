//! Members that fail, hang, leave, or make other calls: the others end with an error that names the rank, and go on without it.

use std::time::{Duration, Instant};

use elinvar_collective::{Ring, ring};
use elinvar_driver::{Collective, CollectiveCall, Error, Member, Reduction, Result, Scalar, Storage};

use crate::memory::{bytes, call, slice};

const SUM: Collective = Collective::AllReduce { reduction: Reduction::Sum };

fn sum_of(member: &mut dyn Member, count: usize, timeout: Duration) -> Result<Vec<u8>> {
    let (source, target) = (slice(&vec![1; count], Storage::Shared), slice(&vec![0; count], Storage::Shared));
    let call = CollectiveCall { timeout, ..call(SUM, Scalar::U8, count, Some(source), Some(target)) };
    member.run(&call)?;
    Ok(bytes(&call.target.unwrap()))
}

#[track_caller]
fn expect_failure<T: std::fmt::Debug>(result: Result<T>, rank: u32, text: &str) {
    match result {
        Err(Error::RankFailed { rank: failed, reason }) => {
            assert!(
                failed == rank && reason.contains(text),
                "rank {failed}: {reason}; expected rank {rank}: {text}"
            );
        }
        other => panic!("expected the failure of rank {rank}, got {other:?}"),
    }
}

/// Runs `each` for every member on a thread of its own.
fn all(members: Vec<Ring>, each: impl Fn(Ring) + Sync) {
    let each = &each;
    std::thread::scope(|scope| {
        for member in members {
            scope.spawn(move || each(member));
        }
    });
}

/// Those that are left sum ones.
fn go_on(member: &mut dyn Member, left: u32, number: u32) {
    let mut member = member.shrink(Duration::from_secs(20)).unwrap();
    assert_eq!((member.size(), member.rank()), (left, number));
    for count in [1, 10_007] {
        assert!(sum_of(&mut *member, count, Duration::from_secs(60)).unwrap() == vec![left as u8; count]);
    }
}

#[test]
fn a_member_that_hangs_is_named_and_left_behind() {
    let timeout = Duration::from_millis(300);
    // The first to begin is the first to give up; the others see that, however late they have begun.
    let first = std::sync::OnceLock::new();
    all(ring(4).unwrap(), |mut member| {
        let rank = member.rank();
        assert_eq!(sum_of(&mut member, 5, Duration::from_secs(60)).unwrap(), [4; 5]);
        if rank == 2 {
            std::thread::sleep(Duration::from_millis(1500));
            expect_failure(sum_of(&mut member, 5, timeout), 2, "has not begun");
            // The others have gone on.
            let late = member.shrink(Duration::from_secs(1)).map(|_| ());
            return expect_failure(late, 2, "without it");
        }
        let begun = *first.get_or_init(Instant::now);
        expect_failure(
            sum_of(&mut member, 5, timeout),
            2,
            "has not begun the collective within 300ms: all-reduce of 5 × uchar",
        );
        assert!(begun.elapsed() >= timeout);
        expect_failure(sum_of(&mut member, 5, timeout), 2, "has not begun");
        go_on(&mut member, 3, rank - u32::from(rank > 2));
    });
}

#[test]
fn a_member_that_leaves_is_named() {
    all(ring(3).unwrap(), |mut member| {
        let rank = member.rank();
        if rank == 0 {
            return drop(member);
        }
        expect_failure(sum_of(&mut member, 100_000, Duration::from_secs(60)), 0, "has left the communicator");
        go_on(&mut member, 2, rank - 1);
    });
}

/// What a member has sent before it leaves arrives.
#[test]
fn a_member_that_leaves_in_the_end_is_no_failure() {
    for _ in 0..50 {
        all(ring(4).unwrap(), |mut member| {
            let rank = member.rank();
            let data = slice(&[rank as u8; 999], Storage::Shared);
            let target = (rank == 1).then(|| slice(&[0; 4 * 999], Storage::Shared));
            let call = call(Collective::Gather { root: 1 }, Scalar::U8, 999, Some(data), target);
            member.run(&call).unwrap();
            if let Some(target) = &call.target {
                assert!(bytes(target).iter().enumerate().all(|(i, byte)| *byte as usize == i / 999));
            }
        });
    }
}

/// The error is [`Error::RankFailed`].
#[test]
fn a_member_that_aborts_is_named() {
    all(ring(3).unwrap(), |mut member| {
        let rank = member.rank();
        if rank == 1 {
            std::thread::sleep(Duration::from_millis(50));
            member.aborter().abort(1, "its kernel has faulted");
            member.aborter().abort(0, "later");
        }
        expect_failure(
            sum_of(&mut member, 3, Duration::from_secs(60))
                .and_then(|_| sum_of(&mut member, 3, Duration::from_secs(60))),
            1,
            "its kernel has faulted",
        );
        if rank == 1 {
            return expect_failure(member.shrink(Duration::from_secs(1)).map(|_| ()), 1, "without it");
        }
        go_on(&mut member, 2, rank / 2);
    });
}

#[test]
fn calls_that_do_not_match_are_a_failure() {
    for wrong in [
        call(
            SUM,
            Scalar::I8,
            8,
            Some(slice(&[1; 8], Storage::Shared)),
            Some(slice(&[1; 8], Storage::Shared)),
        ),
        call(
            SUM,
            Scalar::U8,
            9,
            Some(slice(&[1; 9], Storage::Shared)),
            Some(slice(&[1; 9], Storage::Shared)),
        ),
        call(Collective::Barrier, Scalar::U8, 0, None, None),
    ] {
        all(ring(2).unwrap(), |mut member| {
            let result = match member.rank() {
                0 => sum_of(&mut member, 8, Duration::from_secs(60)).map(drop),
                _ => member.run(&wrong),
            };
            match result {
                Err(Error::RankFailed { reason, .. }) => {
                    assert!(reason.contains("does not match"), "{reason}")
                }
                // Whoever has all data ends before the other one finds out.
                Ok(()) => assert_eq!(wrong.collective, Collective::Barrier),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

#[test]
fn invalid_calls_are_refused_and_change_nothing() {
    let mut member = ring(1).unwrap().remove(0);
    let data = || Some(slice(&[1; 8], Storage::Shared));
    for (wrong, text) in [
        (
            call(Collective::Broadcast { root: 1 }, Scalar::U8, 8, data(), data()),
            "rank 1 of a communicator of 1 members",
        ),
        (call(Collective::Send { to: 0 }, Scalar::U8, 8, data(), None), "the member itself"),
        (call(SUM, Scalar::U8, 8, data(), None), "the target has 0 bytes, expected 8"),
        (call(SUM, Scalar::U16, 8, data(), data()), "the source has 8 bytes, expected 16"),
        (CollectiveCall { element: None, ..call(SUM, Scalar::U8, 8, data(), data()) }, "cannot be reduced"),
    ] {
        let error = member.run(&wrong).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(sum_of(&mut member, 3, Duration::from_secs(1)).unwrap(), [1; 3]);
    assert!(ring(0).is_err() && ring(1025).is_err());
}
