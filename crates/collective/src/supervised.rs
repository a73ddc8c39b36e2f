//! [`Supervised`]: a vendor's library moves the data, and a ring beside it knows who takes part.
//!
//! Libraries report that something has failed, but not who: the ring has each member's state, publishes the first failure, and votes on who is left. A
//! library's communicator cannot be repaired, so that those that are left create a new one.

use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::{
    Aborter, CollectiveCall, CollectiveLibrary, Error, LibraryMember, Member, Result, Scalar,
};

use crate::ring::Ring;
use crate::wait::Patience;

/// A member whose calls a vendor's library runs.
pub struct Supervised {
    ring: Ring,
    library: Arc<dyn CollectiveLibrary>,
    /// `None` after a failure.
    member: Option<Box<dyn LibraryMember>>,
    cannot_reduce: &'static [Scalar],
}

impl Supervised {
    /// Joins a communicator of the library, whose identity passes through the ring. Waits for all members.
    ///
    /// # Errors
    /// `RankFailed` if a member has failed or does not come in time; the library's.
    pub fn join(mut ring: Ring, library: Arc<dyn CollectiveLibrary>, timeout: Duration) -> Result<Self> {
        let own = if ring.rank() == 0 { library.unique_id()? } else { Vec::new() };
        let id = ring.broadcast_bytes(0, own, timeout)?;
        let (rank, size) = (ring.rank(), ring.size());
        let joined = {
            let mut patience = Patience::new();
            library.join(&id, rank, size, &mut || {
                ring.check_on_others(&mut patience, timeout, "the library's start")
            })
        };
        let member = joined.inspect_err(|error| ring.aborter().abort(rank, &error.to_string()))?;
        let cannot_reduce = member.cannot_reduce();
        Ok(Self { ring, library, member: Some(member), cannot_reduce })
    }
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
        self.ring.begin(call)?;
        let Some(member) = &mut self.member else {
            return Err(self
                .ring
                .failure()
                .unwrap_or_else(|| Error::Environment("the communicator has failed".into())));
        };
        let (ring, mut patience) = (&self.ring, Patience::new());
        let what = call.to_string();
        let result = member.run(call, &mut || ring.check_on_others(&mut patience, call.timeout, &what));
        let Err(error) = result else { return Ok(()) };
        self.member = None;
        // The first failure is kept, which is not this one if it is a consequence.
        self.ring.aborter().abort(self.ring.rank(), &error.to_string());
        Err(self.ring.failure().unwrap_or(error))
    }

    fn aborter(&self) -> Arc<dyn Aborter> {
        self.ring.aborter()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<Box<dyn Member>> {
        self.member = None;
        let ring = self.ring.shrink_ring(timeout)?;
        Ok(Box::new(Self::join(ring, self.library.clone(), timeout)?))
    }
}
