//! [`Supervised`]: a vendor's library moves the data, and a ring beside it knows who takes part.
//!
//! Libraries report that something has failed, but not who: the ring has each member's state, publishes the first failure, and votes on who is left. A
//! library's communicator cannot be repaired, so that those that are left create a new one.
//!
//! A library with a queue is given collectives ahead of the work before them. A collective has begun when that work has ended, which the member
//! publishes; it has ended when the device has executed it and all members have begun it, since the data of one whose work has failed is wrong. With several
//! communicators in a process nothing is given ahead, and their collectives take turns ([`crate::turns`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{
    Aborter, Collective, CollectiveCall, CollectiveLibrary, Error, LibraryMember, Member, Point, Result,
    Scalar,
};

use crate::ring::{Ring, check};
use crate::turns::{Registration, Turn};
use crate::wait::Patience;

/// A member whose calls a vendor's library runs.
pub struct Supervised {
    ring: Ring,
    library: Arc<dyn CollectiveLibrary>,
    /// `None` after a failure.
    member: Option<Box<dyn LibraryMember>>,
    /// As long as there is the member.
    registration: Option<Registration>,
    cannot_reduce: &'static [Scalar],
    /// Collectives that were passed to the library and have not ended, in order.
    queue: VecDeque<Queued>,
}

/// A collective in the library's queue.
struct Queued {
    call: CollectiveCall,
    ready: Point,
    /// Since its begin.
    patience: Option<Patience>,
    /// Whether the device has executed it.
    is_executed: bool,
}

impl Supervised {
    /// Joins a communicator of the library, whose identity passes through the ring. Waits for all members.
    ///
    /// # Errors
    /// `RankFailed` if a member has failed or does not come in time; the library's.
    pub fn join(mut ring: Ring, library: Arc<dyn CollectiveLibrary>, timeout: Duration) -> Result<Self> {
        let own = if ring.rank() == 0 { library.unique_id()? } else { Vec::new() };
        let id = ring.broadcast_bytes(0, own, timeout)?;
        let (rank, size, registration) = (ring.rank(), ring.size(), Some(Registration::new(id.clone())));
        let joined = {
            let mut patience = Patience::new();
            library.join(&id, rank, size, &mut || {
                ring.check_on_others(&mut patience, timeout, "the library's start")
            })
        };
        let member = joined.inspect_err(|error| ring.aborter().abort(rank, &error.to_string()))?;
        let cannot_reduce = member.cannot_reduce();
        let (member, queue) = (Some(member), VecDeque::new());
        Ok(Self { ring, library, member, registration, cannot_reduce, queue })
    }

    fn member(&mut self) -> Result<&mut Box<dyn LibraryMember>> {
        let ring = &self.ring;
        let gone =
            || ring.failure().unwrap_or_else(|| Error::Environment("the communicator has failed".into()));
        self.member.as_mut().ok_or_else(gone)
    }

    fn is_alone(&self) -> bool {
        self.registration.as_ref().is_none_or(Registration::is_alone)
    }

    /// Waits for the turn of a collective that this member has begun, if the process has other communicators.
    fn turn(&self, call: &CollectiveCall, what: &str) -> Result<Option<Turn>> {
        let Some(registration) = self.registration.as_ref().filter(|one| !one.is_alone()) else {
            return Ok(None);
        };
        let (ring, mut patience) = (&self.ring, Patience::new());
        while !ring.have_all_begun() {
            patience.rest();
            ring.check_on_others(&mut patience, call.timeout, what)?;
        }
        registration.wait(ring.number(), ring).map(Some)
    }

    fn abort(&mut self) {
        if let Some(mut member) = self.member.take() {
            member.abort();
        }
        self.registration = None;
        self.queue.clear();
    }

    /// Ends the library's communicator after an error, which is a failure of this member unless it is a consequence.
    fn failed(&mut self, error: Error) -> Error {
        self.abort();
        // The first failure is kept.
        self.ring.aborter().abort(self.ring.rank(), &error.to_string());
        self.ring.failure().unwrap_or(error)
    }

    /// Looks at the first collective of the queue: whether it has begun and ended, and whether the others take part. Returns whether it has ended.
    fn look(&mut self) -> Result<bool> {
        let Some(first) = self.queue.front_mut() else { return Ok(false) };
        let (ring, call) = (&mut self.ring, &first.call);
        if !first.is_executed
            && let Some(member) = &mut self.member
        {
            first.is_executed = member.has_first_ended()?;
        }
        if first.patience.is_none() {
            // As long as the work before it runs, the library's communicator is left alone, even if another member has failed.
            if first.ready.is_pending() {
                return Ok(false);
            }
            first.ready.expect_whole().map_err(|cause| before(call, &cause))?;
            ring.begin(call)?;
            first.patience = Some(Patience::new());
        }
        if first.is_executed && ring.have_all_begun() {
            ring.expect_whole()?;
            self.queue.pop_front();
            return Ok(true);
        }
        let what = call.to_string();
        if let Some(patience) = &mut first.patience {
            ring.check_on_others(patience, call.timeout, &what)?;
        }
        Ok(false)
    }
}

/// The failure of a member's work before a collective.
fn before(call: &CollectiveCall, cause: &Error) -> Error {
    Error::Environment(format!("work before its {} failed: {cause}", call.collective.name()))
}

impl Member for Supervised {
    fn engine(&self) -> &'static str {
        self.library.name()
    }

    fn rank(&self) -> u32 {
        self.ring.rank()
    }

    fn size(&self) -> u32 {
        self.ring.size()
    }

    fn cannot_reduce(&self) -> &'static [Scalar] {
        self.cannot_reduce
    }

    fn run(&mut self, call: &CollectiveCall) -> Result<()> {
        let by_all = self.ring.begin(call)?;
        self.member()?;
        let what = call.to_string();
        let turn = if by_all { self.turn(call, &what) } else { Ok(None) };
        let _turn = turn.map_err(|error| self.failed(error))?;
        let (ring, mut patience) = (&self.ring, Patience::new());
        let Some(member) = &mut self.member else { return Ok(()) };
        let result = member.run(call, &mut || ring.check_on_others(&mut patience, call.timeout, &what));
        result.map_err(|error| self.failed(error))
    }

    /// Not sends and receives, of which a member does not know whether the others have begun them.
    fn takes_ahead(&self, call: &CollectiveCall) -> bool {
        let by_all = !matches!(call.collective, Collective::Send { .. } | Collective::Receive { .. });
        by_all && self.is_alone() && self.member.as_ref().is_some_and(|member| member.has_queue())
    }

    fn enqueue(&mut self, call: &CollectiveCall, ready: &Point, done: &Point) -> Result<bool> {
        check(call, self.ring.rank(), self.ring.size())?;
        let member = self.member()?;
        match member.enqueue(call, ready, done) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error) => return Err(self.failed(error)),
        }
        let (call, ready) = (call.clone(), ready.clone());
        self.queue.push_back(Queued { call, ready, patience: None, is_executed: false });
        Ok(true)
    }

    fn has_first_ended(&mut self) -> Result<bool> {
        self.look().map_err(|error| self.failed(error))
    }

    fn aborter(&self) -> Arc<dyn Aborter> {
        self.ring.aborter()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<Box<dyn Member>> {
        self.abort();
        let ring = self.ring.shrink_ring(timeout)?;
        Ok(Box::new(Self::join(ring, self.library.clone(), timeout)?))
    }
}
