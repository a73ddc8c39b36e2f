//! Usage records: who uses an allocation (pending work, host access, map guards).
//!
//! A [`Storage`] is an allocation with its usage record. Pending work holds it, so its memory returns to the device's pool when
//! the last handle is gone and the device has finished with it. Host access waits for conflicting pending work, and holds the
//! record's lock while bytes are copied, so that no launch begins meanwhile. A map guard outlives the lock and is counted
//! instead; conflicting work is rejected. Work is entered into the records of all allocations that it uses at once, with all
//! their locks held, in order of address.
//!
//! Usage is recorded for whole allocations, not for ranges. It does not order streams.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use elinvar_driver::sync::{Mutex, MutexGuard};
use elinvar_driver::{Error, Pipeline, PrimitiveKind, Result, Storage as StorageMode};
use smallvec::SmallVec;

use crate::Device;
use crate::memory::operands::{counts_place, place, used_place};
use crate::memory::pool::Block;
use crate::sync::completion::Outcome;

/// Kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    /// Reads content that was written in full by work that this work waits for; it fails if that work fails.
    ReadAnew,
    Write,
}

/// An allocation.
pub(crate) struct Storage {
    pub(crate) device: Device,
    pub(crate) block: Block,
    record: Mutex<UsageRecord>,
}

/// The usage record of an allocation.
#[derive(Default)]
pub(crate) struct UsageRecord {
    streams: Vec<StreamUses>,
    /// Number of uses so far.
    entered: u64,
    /// If the work that should have written the content failed: the number of that use, and the cause.
    failed: Option<(u64, Error)>,
    /// Number of the last use that has written the whole allocation.
    covered: u64,
    maps: u32,
    mapped_mut: bool,
    /// An empty list of uses, for the next stream.
    spare: VecDeque<Use>,
}

/// Uses by one stream that may be pending, in submission order.
struct StreamUses {
    stream: u64,
    uses: VecDeque<Use>,
}

struct Use {
    number: u64,
    outcome: Arc<Outcome>,
    writes: bool,
    covers: bool,
}

impl Storage {
    pub(crate) fn new(device: Device, block: Block) -> Self {
        Self { device, block, record: Mutex::default() }
    }

    /// Waits until no pending work conflicts, and blocks new work while the guard exists.
    ///
    /// # Errors
    /// `InvalidArgument` if a map guard conflicts; the message begins with `operation`.
    pub(crate) fn host(&self, access: Access, operation: &str) -> Result<MutexGuard<'_, UsageRecord>> {
        self.device.expect_here(operation)?;
        self.expect_memory(&operation)?;
        loop {
            let mut record = self.record.lock();
            // After a device loss, work that nobody waits for may still use the memory.
            self.expect_content()?;
            record.refuse_mapped(access, &operation)?;
            let Some(pending) = record.settle_for(access) else {
                return Ok(record);
            };
            drop(record);
            let _ended = pending.wait(operation)?;
        }
    }

    /// Rejects a transient of a graph, which has memory only in runs of the graph.
    fn expect_memory(&self, who: &dyn fmt::Display) -> Result<()> {
        if self.block.is_placeholder() {
            return Err(Error::invalid(format!(
                "{who}: the buffer is a transient of a graph; only the graph's nodes can use it"
            )));
        }
        Ok(())
    }

    /// Whether only the device has the content, so that a reset loses it.
    pub(crate) fn is_own(&self) -> bool {
        self.block.memory.storage() != StorageMode::Shared
    }

    /// Rejects access to content that is or may be lost. To be called after a read, with the record's lock held: a reset that began
    /// during the read cannot have ended, since it takes that lock to record the loss.
    pub(crate) fn expect_content(&self) -> Result<()> {
        let state = self.device.state().read();
        if self.is_own() { state.check_content() } else { state.check_available() }
    }

    /// Records that the content is lost, with the results of all work that has ended.
    pub(crate) fn lose(&self, cause: &Error) {
        let mut record = self.record.lock();
        record.settle();
        record.lose(cause);
    }

    /// Ends a map; `lost` is the error if the writes could not be made visible to the device.
    pub(crate) fn unmap(&self, access: Access, lost: Option<Error>) {
        if !self.device.is_here() {
            return;
        }
        let mut record = self.record.lock();
        let entered = record.entered;
        record.failed = lost.map(|cause| (entered, cause)).or(record.failed.take());
        match access {
            Access::Read | Access::ReadAnew => record.maps -= 1,
            Access::Write => record.mapped_mut = false,
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // In a forked child the pool's lock may be held by a thread of the parent.
        if !self.device.is_here() {
            return;
        }
        self.device.pool().give_back(self.block.clone());
    }
}

impl UsageRecord {
    /// Whether a map guard exists.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped_mut || self.maps > 0
    }

    /// Begins a map. The record was obtained from [`Storage::host`] for the same access.
    pub(crate) fn map(&mut self, access: Access) {
        match access {
            Access::Read | Access::ReadAnew => self.maps += 1,
            Access::Write => self.mapped_mut = true,
        }
    }

    /// Rejects content that failed work should have written.
    pub(crate) fn expect_written(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |(_, cause)| Err(cause.poison()))
    }

    /// Records that the whole allocation has been written.
    pub(crate) fn written_in_full(&mut self) {
        self.failed = None;
    }

    /// Whether pending work writes the whole allocation: work behind it reads its results, or fails with it.
    fn is_rewritten(&self) -> bool {
        let failed = self.failed.as_ref().map_or(0, |(failed, _)| *failed);
        let rewrites =
            |u: &Use| u.writes && u.covers && u.number > failed && !matches!(u.outcome.get(), Some(Err(_)));
        self.streams.iter().any(|uses| uses.uses.iter().any(rewrites))
    }

    /// Removes work that has ended, and records its failure.
    fn settle(&mut self) {
        for uses in &mut self.streams {
            while let Some(result) = uses.uses.front().and_then(|u| u.outcome.get()) {
                match (result, &uses.uses[0]) {
                    (_, Use { writes: false, .. }) | (Err(Error::Cancelled), _) => {}
                    // Work of different streams ends in any order: the failed use may be later or earlier.
                    (Ok(_), Use { covers: true, number, .. }) => {
                        self.covered = self.covered.max(*number);
                        self.failed.take_if(|(failed, _)| *failed < *number);
                    }
                    (Ok(_), _) => {}
                    (Err(_), Use { number, .. }) if *number < self.covered => {}
                    (Err(error), Use { number, .. }) => {
                        let later = self.failed.as_ref().map_or(0, |(failed, _)| *failed).max(*number);
                        self.failed = Some((later, error.clone()));
                    }
                }
                uses.uses.pop_front();
            }
        }
        let spare = &mut self.spare;
        self.streams.retain_mut(|uses| {
            let is_empty = uses.uses.is_empty();
            if is_empty && uses.uses.capacity() > spare.capacity() {
                *spare = std::mem::take(&mut uses.uses);
            }
            !is_empty
        });
    }

    /// Pending work that conflicts with a host access; if there is none, work that has ended is removed.
    fn settle_for(&mut self, access: Access) -> Option<Arc<Outcome>> {
        // Before the removal: work that ends after it would be neither pending nor removed.
        let pending = self.pending(access);
        self.settle();
        pending
    }

    /// Pending work that conflicts with a host access: the last of a stream, to need few waits.
    fn pending(&self, access: Access) -> Option<Arc<Outcome>> {
        let conflicts = |u: &&Use| (u.writes || access == Access::Write) && u.outcome.get().is_none();
        let last = self.streams.iter().find_map(|uses| uses.uses.iter().rev().find(conflicts));
        last.map(|u| u.outcome.clone())
    }

    fn lose(&mut self, cause: &Error) {
        let mut last = self.entered;
        for entry in self.streams.iter_mut().flat_map(|uses| &mut uses.uses) {
            match entry.outcome.get() {
                None => last = last.min(entry.number - 1),
                Some(_) => entry.covers = false,
            }
        }
        self.failed = Some((last, cause.clone()));
    }

    fn refuse_mapped(&self, access: Access, who: &dyn fmt::Display) -> Result<()> {
        if self.mapped_mut {
            return Err(Error::invalid(format!(
                "{who}: the buffer is mapped for writing; drop the map first"
            )));
        }
        if self.maps > 0 && access == Access::Write {
            return Err(Error::invalid(format!(
                "{who}: the buffer is mapped for reading and would be written; drop the map first"
            )));
        }
        Ok(())
    }

    fn enter(&mut self, stream: u64, outcome: Arc<Outcome>, writes: bool, covers: bool) {
        self.entered += 1;
        let entry = Use { number: self.entered, outcome, writes, covers };
        match self.streams.iter_mut().find(|uses| uses.stream == stream) {
            Some(uses) => uses.uses.push_back(entry),
            None => {
                let mut uses = std::mem::take(&mut self.spare);
                uses.push_back(entry);
                self.streams.push(StreamUses { stream, uses });
            }
        }
    }
}

/// The operand for which work uses memory, for error messages.
#[derive(Clone)]
pub(crate) enum Who {
    Argument(Arc<dyn Pipeline>, usize),
    Use(Arc<dyn Pipeline>, usize),
    /// Threadgroup counts of an indirect launch.
    Counts(Arc<dyn Pipeline>),
    Operation(&'static str),
    Operand(PrimitiveKind, &'static str),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(pipeline, index) => f.write_str(&place(pipeline.signature(), *index)),
            Self::Use(pipeline, number) => f.write_str(&used_place(pipeline.signature(), *number)),
            Self::Counts(pipeline) => f.write_str(&counts_place(&pipeline.signature().name)),
            Self::Operation(name) => f.write_str(name),
            Self::Operand(kind, name) => write!(f, "{}: `{name}`", kind.name()),
        }
    }
}

/// A use of an allocation by work that is about to be submitted.
#[derive(Clone)]
pub(crate) struct Usage {
    pub(crate) storage: Arc<Storage>,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// Whether the range is the whole allocation.
    pub(crate) covers: bool,
}

/// Number of uses of a submission that are stored without an allocation.
const INLINE: usize = 8;
/// Uses of a submission.
pub(crate) type Usages = SmallVec<[Usage; INLINE]>;
/// Allocations of a submission.
pub(crate) type Storages = SmallVec<[Arc<Storage>; INLINE]>;

/// Checks all uses, submits the work and enters it into all usage records, atomically.
///
/// If the work reads content that failed work should have written, `submit` is not called and the
/// outcome is `Poisoned`. `submit` receives the allocations that the work must hold until it has ended.
///
/// # Errors
/// `InvalidArgument` if a map guard conflicts; errors of `submit`. Nothing is entered in that case.
pub(crate) fn commit<S>(
    mut usages: Usages,
    stream: u64,
    submit: impl FnOnce(Storages) -> Result<(Arc<Outcome>, S)>,
) -> Result<(Arc<Outcome>, Option<S>)> {
    // A stable sort keeps the uses of one allocation in command order.
    usages.sort_by_key(|usage| Arc::as_ptr(&usage.storage));
    let mut locked: SmallVec<[(&[Usage], MutexGuard<'_, UsageRecord>); INLINE]> = usages
        .chunk_by(|a, b| Arc::ptr_eq(&a.storage, &b.storage))
        .map(|group| (group, group[0].storage.record.lock()))
        .collect();
    let mut poison = None;
    for (group, record) in &mut locked {
        record.settle();
        for usage in *group {
            usage.storage.expect_memory(&usage.who)?;
            record.refuse_mapped(usage.access, &usage.who)?;
        }
        let is_bad = !record.is_rewritten() && reads_before_it_covers(group);
        if let Some((_, cause)) = record.failed.as_ref().filter(|_| is_bad) {
            poison.get_or_insert_with(|| cause.poison());
        }
    }
    let (outcome, submitted) = match poison {
        Some(cause) => (Outcome::failed(cause), None),
        None => submit(locked.iter().map(|(group, _)| group[0].storage.clone()).collect())
            .map(|(outcome, submitted)| (outcome, Some(submitted)))?,
    };
    for (group, record) in &mut locked {
        let writes = group.iter().any(|u| u.access == Access::Write);
        let covers = group.iter().any(|u| u.access == Access::Write && u.covers);
        record.enter(stream, outcome.clone(), writes, covers);
    }
    Ok((outcome, submitted))
}

/// Whether the work reads previous content. A use that may write counts as a write only: an output
/// must be usable after the work that should have written it has failed.
fn reads_before_it_covers(group: &[Usage]) -> bool {
    let before = group.iter().take_while(|u| !(u.access == Access::Write && u.covers));
    before.into_iter().any(|u| u.access == Access::Read)
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Timing;

    use super::*;
    use crate::sync::completion::Promise;

    fn write(record: &mut UsageRecord, stream: u64, covers: bool) -> Promise {
        let (promise, outcome) = Promise::new();
        record.enter(stream, outcome, true, covers);
        promise
    }

    #[test]
    fn what_is_covered_first_is_not_read() {
        use elinvar_driver::Driver as _;
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let buffer = crate::Device::new(device).buffer::<u8>(1).unwrap();
        let of = |access, covers| Usage {
            storage: buffer.span.storage.clone(),
            who: Who::Operation("a test"),
            access,
            covers,
        };
        let (reads, writes, covers) =
            (of(Access::Read, false), of(Access::Write, false), of(Access::Write, true));
        for (group, reads_before) in [
            (vec![&reads], true),
            (vec![&writes], false),
            (vec![&covers], false),
            (vec![&covers, &reads], false),
            (vec![&writes, &reads], true),
            (vec![&reads, &covers], true),
        ] {
            let group: Vec<Usage> = group.into_iter().cloned().collect();
            let kinds: Vec<_> = group.iter().map(|usage| (usage.access, usage.covers)).collect();
            assert_eq!(reads_before_it_covers(&group), reads_before, "{kinds:?}");
        }
    }

    #[test]
    fn work_that_has_ended_is_forgotten() {
        let mut record = UsageRecord::default();
        for stream in 0..3 {
            write(&mut record, stream, true).resolve(Ok(Timing::default()));
        }
        let running = write(&mut record, 1, true);
        assert!(record.settle_for(Access::Read).is_some());
        assert_eq!(record.streams.len(), 1);
        running.resolve(Ok(Timing::default()));
        assert!(record.settle_for(Access::Write).is_none() && record.streams.is_empty());
    }

    #[test]
    fn a_failure_stays_until_all_is_written() {
        let mut record = UsageRecord::default();
        write(&mut record, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
        write(&mut record, 0, false).resolve(Ok(Timing::default()));
        write(&mut record, 0, true).resolve(Err(Error::Cancelled));
        record.settle();
        assert!(matches!(record.expect_written(), Err(Error::Poisoned(_))));
        write(&mut record, 0, true).resolve(Ok(Timing::default()));
        record.settle();
        assert!(record.expect_written().is_ok());
    }

    #[test]
    fn a_failure_is_not_undone_by_what_came_before_it() {
        let mut record = UsageRecord::default();
        let first = write(&mut record, 0, true);
        write(&mut record, 1, false).resolve(Err(Error::DeviceLost("gone".into())));
        record.settle();
        first.resolve(Ok(Timing::default()));
        record.settle();
        assert!(record.expect_written().is_err() && record.streams.is_empty());
        write(&mut record, 1, true).resolve(Ok(Timing::default()));
        record.settle();
        assert!(record.expect_written().is_ok());
    }

    #[test]
    fn a_failure_that_is_learned_of_behind_what_came_after_it_is_over() {
        let mut record = UsageRecord::default();
        // So that the other stream's end is seen first.
        let partly = write(&mut record, 0, false);
        let failing = write(&mut record, 1, true);
        let anew = write(&mut record, 0, true);
        for promise in [partly, anew] {
            promise.resolve(Ok(Timing::default()));
        }
        failing.resolve(Err(Error::DeviceLost("gone".into())));
        record.settle();
        assert!(record.expect_written().is_ok() && record.streams.is_empty());
        write(&mut record, 1, true).resolve(Err(Error::DeviceLost("gone".into())));
        record.settle();
        assert!(record.expect_written().is_err());
    }

    #[test]
    fn content_that_is_being_written_anew_is_not_bad() {
        let mut record = UsageRecord::default();
        write(&mut record, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
        record.settle();
        let partly = write(&mut record, 1, false);
        assert!(!record.is_rewritten());
        let anew = write(&mut record, 1, true);
        assert!(record.is_rewritten());
        anew.resolve(Err(Error::Cancelled));
        assert!(!record.is_rewritten());
        partly.resolve(Ok(Timing::default()));
    }

    #[test]
    fn a_loss_is_undone_by_what_ends_later_alone() {
        let mut record = UsageRecord::default();
        let first = write(&mut record, 0, true);
        let behind = write(&mut record, 0, true);
        let other = write(&mut record, 1, true);
        behind.resolve(Ok(Timing::default()));
        record.settle();
        record.lose(&Error::DeviceLost("gone".into()));
        first.resolve(Err(Error::Cancelled));
        record.settle();
        assert!(record.expect_written().is_err(), "what had ended by then is lost");
        other.resolve(Ok(Timing::default()));
        record.settle();
        assert!(record.expect_written().is_ok() && record.streams.is_empty());
    }

    #[test]
    fn what_ends_during_a_look_is_pending_or_settled() {
        let (sender, promises) = std::sync::mpsc::sync_channel::<Promise>(0);
        let device = std::thread::spawn(move || {
            promises.into_iter().for_each(|promise| promise.resolve(Ok(Timing::default())));
        });
        for _ in 0..20_000 {
            let mut record = UsageRecord::default();
            write(&mut record, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
            record.settle();
            sender.send(write(&mut record, 1, true)).unwrap();
            while record.settle_for(Access::Read).is_some() {
                // The other thread may be waiting for this processor.
                std::thread::yield_now();
            }
            assert!(record.expect_written().is_ok());
        }
        drop(sender);
        device.join().unwrap();
    }

    #[test]
    fn the_last_pending_of_a_stream_is_waited_for() {
        let mut record = UsageRecord::default();
        let first = write(&mut record, 0, true);
        let last = record.streams[0].uses.back().map(|u| u.outcome.clone());
        let second = write(&mut record, 0, true);
        second.resolve(Err(Error::Cancelled));
        record.settle();
        assert!(record.pending(Access::Read).zip(last).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b)));
        first.resolve(Ok(Timing::default()));
        assert!(record.pending(Access::Read).is_none());
    }
}
