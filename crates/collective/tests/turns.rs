//! Several communicators of a library in one process: devices that run one collective at a time, which waits there for the other members.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use elinvar_collective::{Ring, Supervised, ring};
use elinvar_driver::{
    Check, Collective, CollectiveCall, CollectiveLibrary, Error, LibraryMember, Member, Point, Reduction,
    Result, Scalar,
};

const MEMBERS: u32 = 4;
const LONG: Duration = Duration::from_secs(60);
const SUM: Collective = Collective::AllReduce { reduction: Reduction::Sum };

/// The devices, of which each runs one collective at a time.
#[derive(Default)]
struct Machine {
    devices: [Mutex<()>; MEMBERS as usize],
    /// Of each collective of a communicator, the members that have come.
    come: Mutex<HashMap<(u8, u64), u32>>,
    ahead: AtomicU32,
}

struct Library {
    machine: Arc<Machine>,
    identity: u8,
}

struct SimMember {
    machine: Arc<Machine>,
    identity: u8,
    rank: u32,
    next: u64,
}

impl CollectiveLibrary for Library {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn unique_id(&self) -> Result<Vec<u8>> {
        Ok(vec![self.identity])
    }

    fn join(&self, _: &[u8], rank: u32, _: u32, _: &mut Check<'_>) -> Result<Box<dyn LibraryMember>> {
        let (machine, identity) = (self.machine.clone(), self.identity);
        Ok(Box::new(SimMember { machine, identity, rank, next: 0 }))
    }
}

impl SimMember {
    fn device<'a>(&self, machine: &'a Machine, check: &mut Check<'_>) -> Result<MutexGuard<'a, ()>> {
        loop {
            match machine.devices[self.rank as usize].try_lock() {
                Ok(device) => return Ok(device),
                Err(TryLockError::WouldBlock) => check()?,
                Err(TryLockError::Poisoned(_)) => return Err(Error::Environment("a panic".into())),
            }
            std::thread::yield_now();
        }
    }
}

impl LibraryMember for SimMember {
    fn run(&mut self, _: &CollectiveCall, check: &mut Check<'_>) -> Result<()> {
        let (machine, of) = (self.machine.clone(), (self.identity, self.next));
        let _device = self.device(&machine, check)?;
        *machine.come.lock().unwrap().entry(of).or_default() += 1;
        while machine.come.lock().unwrap()[&of] < MEMBERS {
            check()?;
            std::thread::yield_now();
        }
        self.next += 1;
        Ok(())
    }

    fn has_queue(&self) -> bool {
        true
    }

    fn enqueue(&mut self, _: &CollectiveCall, _: &Point, _: &Point) -> Result<bool> {
        self.machine.ahead.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn has_first_ended(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn abort(&mut self) {}
}

fn members(machine: &Arc<Machine>, identity: u8) -> Vec<Supervised> {
    let join = |ring: Ring| {
        let library = Library { machine: machine.clone(), identity };
        Supervised::join(ring, Arc::new(library), LONG).unwrap()
    };
    let join = &join;
    std::thread::scope(|scope| {
        let joining: Vec<_> =
            ring(MEMBERS).unwrap().into_iter().map(|ring| scope.spawn(move || join(ring))).collect();
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// One test, in a program of its own, since the communicators of a process are counted.
#[test]
fn communicators_take_turns() {
    let machine = Arc::<Machine>::default();
    let sum = |timeout| CollectiveCall {
        collective: SUM,
        element: Some(Scalar::U8),
        element_size: 1,
        count: 0,
        source: None,
        target: None,
        timeout,
    };
    let mut first = members(&machine, 1);
    assert!(first[0].takes_ahead(&sum(LONG)), "it is alone");
    let mut others: Vec<_> = (2..5).map(|identity| members(&machine, identity)).collect();
    assert!(!first[0].takes_ahead(&sum(LONG)) && !others[0][1].takes_ahead(&sum(LONG)));
    // Each member on a thread of its own, so that devices see the communicators in different orders.
    std::thread::scope(|scope| {
        for member in first.iter_mut().chain(others.iter_mut().flatten()) {
            let call = sum(Duration::from_secs(20));
            scope.spawn(move || (0..300).for_each(|_| member.run(&call).unwrap()));
        }
    });
    // One whose member does not come keeps nobody from running.
    let short = sum(Duration::from_millis(300));
    let (late, rest) = (others.pop().unwrap(), &mut others[0]);
    std::thread::scope(|scope| {
        for mut member in late.into_iter().skip(1) {
            let short = short.clone();
            scope.spawn(move || match member.run(&short) {
                Err(Error::RankFailed { rank: 0, reason }) => {
                    assert!(reason.contains("has not begun") || reason.contains("has left"), "{reason}")
                }
                other => panic!("{other:?}"),
            });
        }
        for member in first.iter_mut().chain(rest) {
            let call = sum(LONG);
            scope.spawn(move || (0..50).for_each(|_| member.run(&call).unwrap()));
        }
    });
    drop(others);
    assert!(first[0].takes_ahead(&sum(LONG)), "it is alone again");
    assert_eq!(machine.ahead.load(Ordering::Relaxed), 0);
}
