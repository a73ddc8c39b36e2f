//! [`Ring`]: a member of a communicator over shared memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use elinvar_driver::{Aborter, Collective, CollectiveCall, Error, Member, Result};

use crate::board::Reader;
use crate::exchange::{Exchange, Times};
use crate::memory::Bytes;
use crate::network::Network;
use crate::segment::{MAX_SIZE, Segment};
use crate::wait::Patience;

/// States of a member.
const JOINED: u32 = 1;
const LEFT: u32 = 2;

/// What a member shares with the others of its process, and the segment.
pub(crate) struct Shared {
    pub(crate) segment: Segment,
    /// File of the segment, if it is shared with other processes.
    path: Option<PathBuf>,
    /// Simulated links.
    pub(crate) network: Option<Arc<Network>>,
    /// Ranks in the job.
    pub(crate) job_ranks: Vec<u32>,
    board: Option<Reader>,
    /// What follows when a member has failed, for members in one process.
    successor: Mutex<Option<Arc<Shared>>>,
}

/// A member of a communicator over shared memory.
pub struct Ring {
    shared: Arc<Shared>,
    rank: u32,
    /// Number of collectives of all members that have begun.
    begun: u64,
    /// Memory for reductions.
    block: Vec<u8>,
    times: Times,
    /// The simulated time in seconds, for readers elsewhere; its bits.
    clock: Arc<AtomicU64>,
}

/// The members of a communicator in this process, by rank.
///
/// # Errors
/// `InvalidArgument` for no or more than 1024 members; `OutOfMemory`.
pub fn ring(size: u32) -> Result<Vec<Ring>> {
    ring_on(size, None)
}

/// As [`ring`], with the times of a simulated network ([`Ring::clock`]).
///
/// # Errors
/// As [`ring`].
pub fn ring_on(size: u32, network: Option<Arc<Network>>) -> Result<Vec<Ring>> {
    let shared = Arc::new(Shared {
        segment: Segment::anonymous(size)?,
        path: None,
        network,
        job_ranks: (0..size).collect(),
        board: None,
        successor: Mutex::default(),
    });
    Ok((0..size).map(|rank| Ring::new(shared.clone(), rank)).collect())
}

impl Ring {
    fn new(shared: Arc<Shared>, rank: u32) -> Self {
        let line = shared.segment.line(rank);
        line.pid.store(std::process::id(), Ordering::Relaxed);
        line.state.store(JOINED, Ordering::Release);
        let (times, clock) = (Times::default(), Arc::default());
        Self { shared, rank, begun: 0, block: Vec::new(), times, clock }
    }

    /// The simulated time in seconds at which this member's last collective has ended, as bits of an `f64`; 0 without a simulated network.
    pub fn clock(&self) -> Arc<AtomicU64> {
        self.clock.clone()
    }

    /// Joins a communicator of processes on this machine: all open the same file, which the first one creates and which is removed when all have joined.
    ///
    /// # Errors
    /// `RankFailed` if a rank has ended or has not joined in time; `InvalidArgument` if another process has the rank or states another size;
    /// `Environment` if the file cannot be used; `Unsupported` on systems other than Linux.
    pub fn join(path: &Path, rank: u32, size: u32, timeout: Duration) -> Result<Self> {
        Self::join_as(path, rank, (0..size).collect(), timeout)
    }

    fn join_as(path: &Path, rank: u32, job_ranks: Vec<u32>, timeout: Duration) -> Result<Self> {
        if !cfg!(target_os = "linux") {
            return Err(Error::unsupported(
                "communicators between processes on this system: they need Linux",
            ));
        }
        let size = job_ranks.len() as u32;
        if rank >= size {
            return Err(Error::invalid(format!("rank {rank} of {size} members: ranks begin at 0")));
        }
        let segment = Segment::open(path, size)?;
        segment.take_rank(rank)?;
        let (path, board, successor) = (Some(path.to_owned()), Reader::of_job(), Mutex::default());
        let member =
            Self::new(Arc::new(Shared { segment, path, network: None, job_ranks, board, successor }), rank);
        member.wait_for_all(timeout)?;
        Ok(member)
    }

    /// Passes bytes of the root, at most 4096, to all members.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub fn broadcast_bytes(&mut self, root: u32, bytes: Vec<u8>, timeout: Duration) -> Result<Vec<u8>> {
        self.shared.expect_whole()?;
        self.begun += 1;
        self.shared.segment.line(self.rank).begun.store(self.begun, Ordering::Release);
        let what = "exchange of an identity".into();
        let (shared, rank, tag) = (&*self.shared, self.rank, self.begun);
        let (block, times) = (Vec::new(), self.times);
        let mut exchange = Exchange { shared, rank, tag, timeout, by_all: true, what, block, times };
        let mut message = vec![0; 2 + 4096];
        let len = bytes.len().min(4096);
        message[..2].copy_from_slice(&(len as u16).to_ne_bytes());
        message[2..2 + len].copy_from_slice(&bytes[..len]);
        exchange.broadcast(root, &mut message)?;
        let len = usize::from(u16::from_ne_bytes([message[0], message[1]])).min(4096);
        Ok(message[2..2 + len].to_vec())
    }

    fn wait_for_all(&self, timeout: Duration) -> Result<()> {
        let shared = &self.shared;
        let mut patience = Patience::new();
        for rank in 0..self.size() {
            while shared.segment.line(rank).state.load(Ordering::Acquire) == 0 {
                shared.expect_whole()?;
                if !patience.pause() {
                    continue;
                }
                let reason = match shared.end_of(rank) {
                    Some(how) => how,
                    None if patience.is_over(timeout) => format!("it has not joined within {timeout:?}"),
                    None => continue,
                };
                shared.segment.fail(rank, &reason);
            }
        }
        // All have the file open. Any of them may be killed before it removes the file.
        if let Some(path) = &shared.path {
            let _removed = std::fs::remove_file(path);
        }
        Ok(())
    }

    /// Checks a call and publishes that it has begun. Returns whether all members take part.
    pub(crate) fn begin(&mut self, call: &CollectiveCall) -> Result<bool> {
        self.shared.expect_whole()?;
        check(call, self.rank, self.size())?;
        let by_all = !matches!(call.collective, Collective::Send { .. } | Collective::Receive { .. });
        self.begun += u64::from(by_all);
        self.shared.segment.line(self.rank).begun.store(self.begun, Ordering::Release);
        Ok(by_all)
    }

    /// Number of collectives of all members that this one has begun.
    pub(crate) fn number(&self) -> u64 {
        self.begun
    }

    /// Whether all members have begun as many collectives as this one.
    pub(crate) fn have_all_begun(&self) -> bool {
        let begun = |rank: u32| self.shared.segment.line(rank).begun.load(Ordering::Acquire);
        (0..self.size()).all(|rank| begun(rank) >= self.begun)
    }

    /// # Errors
    /// The first failure.
    pub(crate) fn expect_whole(&self) -> Result<()> {
        self.shared.expect_whole()
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Whether this rank may wait on, while another engine moves the data: fails if a member has failed, has ended, or after the timeout. Does not
    /// pause.
    pub(crate) fn check_on_others(
        &self,
        patience: &mut Patience,
        timeout: Duration,
        what: &str,
    ) -> Result<()> {
        let shared = &self.shared;
        shared.expect_whole()?;
        if !patience.is_due() {
            return Ok(());
        }
        let others: Vec<u32> = (0..self.size()).filter(|rank| *rank != self.rank).collect();
        let behind = |rank: &&u32| shared.segment.line(**rank).begun.load(Ordering::Acquire) < self.begun;
        // A member may leave after a call that it has completed.
        if let Some((rank, how)) =
            others.iter().filter(behind).find_map(|rank| Some((*rank, shared.end_of(*rank)?)))
        {
            shared.segment.fail(rank, &how);
        } else if let Some((rank, how)) = others.iter().find_map(|rank| Some((*rank, shared.end_of(*rank)?)))
            && patience.is_over(timeout.min(Duration::from_secs(2)))
        {
            shared.segment.fail(rank, &how);
        } else if patience.is_over(timeout) {
            let (rank, why) = shared.slowest(self.rank, &others, true);
            shared.segment.fail(rank, &format!("{why} within {timeout:?}: {what}"));
        }
        shared.expect_whole()
    }
}

impl Member for Ring {
    fn engine(&self) -> &'static str {
        "ring"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.shared.segment.size()
    }

    #[allow(unsafe_code)] // uses memory of devices
    fn run(&mut self, call: &CollectiveCall) -> Result<()> {
        let by_all = self.begin(call)?;
        let same = is_in_place(call);
        // SAFETY: the caller guarantees that no other work uses the memory.
        let source = unsafe { Bytes::source(call.source.as_ref().filter(|_| !same)) }?;
        // SAFETY: as above; if both are the same memory, only the target refers to it.
        let mut target = unsafe { Bytes::target(call.target.as_ref(), same) }?;
        if !same
            && matches!(call.collective, Collective::AllReduce { .. } | Collective::Broadcast { .. })
            && !source.is_empty()
        {
            target.copy_from_slice(&source);
        }
        let number = if by_all { self.begun } else { 0 };
        let mut exchange = Exchange {
            shared: &self.shared,
            rank: self.rank,
            tag: tag(call, number),
            timeout: call.timeout,
            by_all,
            what: call.to_string(),
            block: std::mem::take(&mut self.block),
            times: self.times,
        };
        let done = exchange.collective(call, &source, &mut target);
        (self.block, self.times) = (exchange.block, exchange.times);
        self.clock.store(self.times.now.to_bits(), Ordering::Relaxed);
        done?;
        // SAFETY: as above.
        unsafe { target.store() }
    }

    fn aborter(&self) -> Arc<dyn Aborter> {
        self.shared.clone()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<Box<dyn Member>> {
        Ok(Box::new(self.shrink_ring(timeout)?))
    }
}

impl Ring {
    /// As [`Member::shrink`].
    pub(crate) fn shrink_ring(&mut self, timeout: Duration) -> Result<Self> {
        let shared = &self.shared;
        let (segment, head) = (&shared.segment, shared.segment.head());
        segment.line(self.rank).votes.store(1, Ordering::Release);
        let failed = segment.failure().map(|(rank, _)| rank);
        let votes = |rank: u32| segment.line(rank).votes.load(Ordering::Acquire) == 1;
        let mut patience = Patience::new();
        while head.vote.load(Ordering::Acquire) != 2 {
            let due = patience.pause();
            let is_out = |rank: u32| failed == Some(rank) || (due && shared.end_of(rank).is_some());
            let settled = (0..self.size()).all(|rank| is_out(rank) || votes(rank));
            if (settled || patience.is_over(timeout))
                && head.vote.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                for rank in (0..self.size()).filter(|rank| failed != Some(*rank) && votes(*rank)) {
                    head.left_over[rank as usize / 64].fetch_or(1 << (rank % 64), Ordering::Relaxed);
                }
                head.vote.store(2, Ordering::Release);
            } else if patience.is_over(timeout.saturating_mul(2)) {
                return Err(Error::Timeout(format!(
                    "shrink: the vote has not ended within {:?}",
                    timeout * 2
                )));
            }
        }
        let is_left =
            |rank: &u32| head.left_over[*rank as usize / 64].load(Ordering::Relaxed) >> (rank % 64) & 1 == 1;
        let left: Vec<u32> = (0..self.size().min(MAX_SIZE)).filter(is_left).collect();
        let Some(rank) = left.iter().position(|rank| *rank == self.rank) else {
            let reason = "the others have gone on without it".into();
            return Err(Error::RankFailed { rank: self.rank, reason });
        };
        let job_ranks: Vec<u32> = left.iter().map(|rank| shared.job_ranks[*rank as usize]).collect();
        let rank = rank as u32;
        if let Some(path) = &shared.path {
            let mut next = path.clone().into_os_string();
            next.push("+");
            return Self::join_as(Path::new(&next), rank, job_ranks, timeout);
        }
        let mut successor = shared.successor.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match &*successor {
            Some(next) => next.clone(),
            None => {
                let segment = Segment::anonymous(left.len() as u32)?;
                let (network, none) = (shared.network.clone(), Mutex::default());
                let next = Shared { segment, path: None, network, job_ranks, board: None, successor: none };
                successor.insert(Arc::new(next)).clone()
            }
        };
        drop(successor);
        let mut next = Self::new(next, rank);
        (next.times, next.clock) = (self.times, self.clock.clone());
        Ok(next)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.segment.line(self.rank).state.store(LEFT, Ordering::Release);
    }
}

/// Checks a call of a rank, so that the algorithms can rely on its sizes.
pub(crate) fn check(call: &CollectiveCall, rank: u32, size: u32) -> Result<()> {
    let collective = call.collective;
    if let Some(peer) = collective.peer().filter(|peer| *peer >= size) {
        return Err(Error::invalid(format!("{call}: rank {peer} of a communicator of {size} members")));
    }
    if let Collective::Send { to: peer } | Collective::Receive { from: peer } = collective
        && peer == rank
    {
        return Err(Error::invalid(format!("{call}: rank {peer} is the member itself")));
    }
    let parts = collective.parts(rank, size);
    for (name, slice, parts) in [("source", &call.source, parts.0), ("target", &call.target, parts.1)] {
        let (expected, given) =
            (call.part_bytes() * u64::from(parts), slice.as_ref().map_or(0, |slice| slice.len));
        if expected != given {
            return Err(Error::invalid(format!("{call}: the {name} has {given} bytes, expected {expected}")));
        }
    }
    match call.element {
        None if collective.reduction().is_some() => {
            Err(Error::unsupported(format!("{call}: elements of this type cannot be reduced")))
        }
        Some(element) if element.size() != call.element_size => {
            Err(Error::invalid(format!("{call}: elements of {} bytes", call.element_size)))
        }
        _ => Ok(()),
    }
}
/// Whether source and target are the same memory.
pub(crate) fn is_in_place(call: &CollectiveCall) -> bool {
    match (&call.source, &call.target) {
        (Some(source), Some(target)) => {
            source.offset == target.offset && Arc::ptr_eq(&source.memory, &target.memory)
        }
        _ => false,
    }
}

/// A word that differs for calls that do not match.
fn tag(call: &CollectiveCall, number: u64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    let kind = match call.collective {
        // Both sides of a transfer.
        Collective::Send { .. } | Collective::Receive { .. } => Collective::Send { to: 0 },
        other => other,
    };
    (kind, call.element.map(elinvar_driver::Scalar::msl_name), call.element_size, call.count, number)
        .hash(&mut hasher);
    hasher.finish()
}

impl Shared {
    /// # Errors
    /// The first failure.
    pub(crate) fn expect_whole(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.segment.failure().map(|(rank, reason)| Error::RankFailed { rank, reason })
    }

    /// How a rank has ended; `None` while it takes part or may still join.
    pub(crate) fn end_of(&self, rank: u32) -> Option<String> {
        let job_rank = self.job_ranks.get(rank as usize).copied().unwrap_or(rank);
        if let Some(how) = self.board.as_ref().and_then(|board| board.how(job_rank)) {
            return Some(format!("its process {how}"));
        }
        let line = self.segment.line(rank);
        match line.state.load(Ordering::Acquire) {
            LEFT => Some("it has left the communicator".into()),
            JOINED if self.segment.has_ended(rank) => {
                Some(format!("its process {} has ended", line.pid.load(Ordering::Relaxed)))
            }
            _ => None,
        }
    }

    /// The rank for which the others wait, and why.
    pub(crate) fn slowest(&self, own: u32, waits: &[u32], by_all: bool) -> (u32, &'static str) {
        let begun = |rank: u32| self.segment.line(rank).begun.load(Ordering::Acquire);
        let others = || (0..self.segment.size()).filter(|rank| *rank != own);
        if by_all
            && let Some(last) = others().min_by_key(|rank| begun(*rank))
            && begun(last) < begun(own)
        {
            return (last, "it has not begun the collective");
        }
        let moved = |rank: &u32| self.segment.line(*rank).moved.load(Ordering::Relaxed);
        let waited = waits.iter().copied().min_by_key(moved).unwrap_or(own);
        (waited, "it has made no progress")
    }
}

impl Aborter for Shared {
    fn abort(&self, rank: u32, reason: &str) {
        self.segment.fail(rank, reason);
    }
}
