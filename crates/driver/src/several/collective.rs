//! Collectives: operations in which the members of a communicator take part, each with a device of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Event, MemorySlice, Result, Scalar};

/// How elements of several members become one. Integers wrap; `Min` and `Max` of floating-point numbers ignore NaNs where the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Min, Self::Max];
}

/// A collective operation. Ranks are those of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// The root's `count` elements to all targets.
    Broadcast {
        /// The rank that has a source.
        root: u32,
    },
    /// The reduction of all sources to the root's target.
    Reduce {
        /// The rank that has a target.
        root: u32,
        /// How.
        reduction: Reduction,
    },
    /// The reduction of all sources to all targets.
    AllReduce {
        /// How.
        reduction: Reduction,
    },
    /// The sources of all members, in the order of ranks, to all targets of `size × count` elements.
    AllGather,
    /// Part `rank` of the reduction of all sources of `size × count` elements to each target.
    ReduceScatter {
        /// How.
        reduction: Reduction,
    },
    /// Part `r` of each source to part `rank` of the target of member `r`; both have `size × count` elements.
    AllToAll,
    /// The sources of all members, in the order of ranks, to the root's target of `size × count` elements.
    Gather {
        /// The rank that has a target.
        root: u32,
    },
    /// Part `r` of the root's source of `size × count` elements to the target of member `r`.
    Scatter {
        /// The rank that has a source.
        root: u32,
    },
    /// The source to a member that receives.
    Send {
        /// Its rank.
        to: u32,
    },
    /// The target from a member that sends.
    Receive {
        /// Its rank.
        from: u32,
    },
    /// Ends when all members have begun it.
    Barrier,
}

impl Collective {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::AllReduce { .. } => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Send { .. } => "send",
            Self::Receive { .. } => "receive",
            Self::Barrier => "barrier",
        }
    }

    /// The rank in the operation that the communicator must have, if any.
    pub const fn peer(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root, .. }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(root),
            Self::Send { to } => Some(to),
            Self::Receive { from } => Some(from),
            _ => None,
        }
    }

    /// The reduction, if it has one.
    pub const fn reduction(self) -> Option<Reduction> {
        match self {
            Self::Reduce { reduction, .. }
            | Self::AllReduce { reduction }
            | Self::ReduceScatter { reduction } => Some(reduction),
            _ => None,
        }
    }

    /// Numbers of parts, of `count` elements each, of the source and of the target of a member; 0 for none.
    pub const fn parts(self, rank: u32, size: u32) -> (u32, u32) {
        match self {
            Self::Broadcast { root } => ((rank == root) as u32, 1),
            Self::Reduce { root, .. } => (1, (rank == root) as u32),
            Self::AllReduce { .. } => (1, 1),
            Self::AllGather => (1, size),
            Self::ReduceScatter { .. } => (size, 1),
            Self::AllToAll => (size, size),
            Self::Gather { root } => (1, if rank == root { size } else { 0 }),
            Self::Scatter { root } => (if rank == root { size } else { 0 }, 1),
            Self::Send { .. } => (1, 0),
            Self::Receive { .. } => (0, 1),
            Self::Barrier => (0, 0),
        }
    }
}

/// A call of a collective by one member. Source and target may be the same memory in a broadcast and an all-reduce, and do not overlap otherwise.
#[derive(Clone, Debug)]
pub struct CollectiveCall {
    /// The operation.
    pub collective: Collective,
    /// Type of the elements; `None` for a type that cannot be reduced.
    pub element: Option<Scalar>,
    /// Size of an element in bytes.
    pub element_size: u64,
    /// Number of elements of a part ([`Collective::parts`]).
    pub count: u64,
    /// Where the member's data is.
    pub source: Option<MemorySlice>,
    /// Where the result goes.
    pub target: Option<MemorySlice>,
    /// The call fails if it has made no progress for this long.
    pub timeout: Duration,
}

impl CollectiveCall {
    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        self.count * self.element_size
    }
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, count) = (self.collective.name(), self.count);
        match self.element {
            Some(element) => write!(f, "{name} of {count} × {}", element.msl_name()),
            None => write!(f, "{name} of {count} elements of {} bytes", self.element_size),
        }
    }
}

/// A value of an event.
#[derive(Clone)]
pub struct Point {
    /// The event.
    pub event: Arc<dyn Event>,
    /// The value.
    pub value: u64,
}

impl Point {
    /// Whether the event may still reach the value, and has not.
    pub fn is_pending(&self) -> bool {
        self.event.is_pending(self.value)
    }

    /// # Errors
    /// `Poisoned` if the event cannot reach the value any more.
    pub fn expect_whole(&self) -> Result<()> {
        self.event.failure_below(self.value).map_or(Ok(()), |cause| Err(cause.poison()))
    }
}

/// One rank of a communicator. Calls are made one after the other, in the same order by all members.
pub trait Member: Send {
    /// Name of the engine: `ring`, `nccl`, `mpi`.
    fn engine(&self) -> &'static str;

    /// The member's rank.
    fn rank(&self) -> u32;

    /// The number of members.
    fn size(&self) -> u32;

    /// Types that cannot be reduced. Empty by default.
    fn cannot_reduce(&self) -> &'static [Scalar] {
        &[]
    }

    /// Runs a collective; blocks until its effects are visible to the host and the device. No other work uses the memory meanwhile.
    ///
    /// # Errors
    /// [`Error::RankFailed`] if a member has failed or does not take part in time; the communicator is then unusable, except for [`Member::shrink`].
    fn run(&mut self, call: &CollectiveCall) -> Result<()>;

    /// Whether the device orders such a collective itself, behind an event and before another, so that [`Member::enqueue`] takes it. `false` by default.
    fn takes_ahead(&self, _call: &CollectiveCall) -> bool {
        false
    }

    /// Passes a collective to the device, which begins it when `ready` is reached, behind those passed before. Does not block. Promises `done` at the end of the
    /// collective, where the driver's events have promises, but does not signal it. No other work uses the memory from `ready` on until
    /// [`Member::has_first_ended`] has told the end. Returns `false` if it cannot be passed yet; the call is then repeated.
    ///
    /// # Errors
    /// As [`Member::run`]; the device uses the memory of no collective any more.
    fn enqueue(&mut self, call: &CollectiveCall, _ready: &Point, _done: &Point) -> Result<bool> {
        Err(Error::unsupported(format!("{call}: the engine `{}` has no queue", self.engine())))
    }

    /// Whether the first collective of the queue has ended, for all members; it is then removed. Does not block.
    ///
    /// # Errors
    /// As [`Member::enqueue`]; all collectives of the queue have failed.
    fn has_first_ended(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Ends the calls of all members with this member's failure. May be called while a call runs.
    fn aborter(&self) -> Arc<dyn Aborter>;

    /// A communicator of the members that call this, without the one that has failed. Ranks keep their order.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn shrink(&mut self, _timeout: Duration) -> Result<Box<dyn Member>> {
        let engine = self.engine();
        Err(Error::unsupported(format!("a communicator of the engine `{engine}` cannot be shrunk")))
    }
}

/// Called again and again while a call waits: its error ends the wait.
pub type Check<'c> = dyn FnMut() -> Result<()> + 'c;

/// A vendor's library of collectives, for one device.
pub trait CollectiveLibrary: Send + Sync {
    /// Lower-case name.
    fn name(&self) -> &'static str;

    /// An identity for a new communicator, which all members must state.
    ///
    /// # Errors
    /// The library's.
    fn unique_id(&self) -> Result<Vec<u8>>;

    /// Joins a communicator with this device. Waits until all members have joined.
    ///
    /// # Errors
    /// The library's; that of `check`.
    fn join(&self, id: &[u8], rank: u32, size: u32, check: &mut Check<'_>) -> Result<Box<dyn LibraryMember>>;
}

/// One rank of a library's communicator.
pub trait LibraryMember: Send {
    /// Types of which the library has no reductions.
    fn cannot_reduce(&self) -> &'static [Scalar] {
        &[]
    }

    /// Runs a collective; as [`Member::run`]. Any error has aborted the communicator: the device no longer uses the memory, and no call may follow.
    ///
    /// # Errors
    /// The library's; that of `check`.
    fn run(&mut self, call: &CollectiveCall, check: &mut Check<'_>) -> Result<()>;

    /// Whether the library has a queue; as [`Member::takes_ahead`]. `false` by default.
    fn has_queue(&self) -> bool {
        false
    }

    /// As [`Member::enqueue`], for `ready` that has not failed.
    ///
    /// # Errors
    /// As [`LibraryMember::run`].
    fn enqueue(&mut self, call: &CollectiveCall, _ready: &Point, _done: &Point) -> Result<bool> {
        Err(Error::unsupported(format!("{call}: the library has no queue")))
    }

    /// Whether the device has executed the first collective of the queue, which is then removed; as [`Member::has_first_ended`].
    ///
    /// # Errors
    /// As [`LibraryMember::run`].
    fn has_first_ended(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Aborts the communicator: the device no longer uses the memory of any call, and no call may follow.
    fn abort(&mut self) {}
}

/// Ends the calls of a communicator.
pub trait Aborter: Send + Sync {
    /// Fails the communicator with the failure of a rank. The first failure is kept.
    fn abort(&self, rank: u32, reason: &str);
}
