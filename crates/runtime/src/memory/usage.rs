//! Who uses an allocation: work in flight, host access, map guards.
//!
//! A [`Storage`] is one allocation with its account. Work in flight holds it, so that its memory goes back to the
//! device's pool when the last handle is gone and the device is done with it. Host access waits for conflicting work in flight and
//! holds the account's lock while bytes move, so that no launch begins meanwhile. A map guard outlives
//! the lock and is counted instead; conflicting work is refused. Work is entered into the accounts of
//! all it uses at once, with all their locks held in order of address.
//!
//! The account is of whole allocations, not of ranges. It does not order streams among themselves.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use elinvar_driver::sync::{Mutex, MutexGuard};
use elinvar_driver::{Error, Pipeline, PrimitiveKind, Result, Storage as StorageMode};

use crate::Device;
use crate::memory::operands::{counts_place, place, used_place};
use crate::memory::pool::Block;
use crate::sync::completion::Outcome;

/// What is done to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    /// What is read has been written in full by work that this waits for, and fails with.
    ReadAnew,
    Write,
}

/// One allocation.
pub(crate) struct Storage {
    pub(crate) device: Device,
    pub(crate) block: Block,
    account: Mutex<Account>,
}

/// The account of one allocation.
#[derive(Default)]
pub(crate) struct Account {
    lanes: Vec<Lane>,
    /// How many uses there have been.
    entered: u64,
    /// Set when what should have written the content has failed: the number of that use, and why.
    failed: Option<(u64, Error)>,
    /// The last use that has written all of it.
    covered: u64,
    maps: u32,
    mapped_mut: bool,
}

/// Work of one stream that may be in flight, in order of submission.
struct Lane {
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
        Self { device, block, account: Mutex::default() }
    }

    /// Waits until no work in flight conflicts, and keeps work away as long as the guard lives.
    ///
    /// # Errors
    /// `InvalidArgument` when a map guard conflicts; `operation` begins the message.
    pub(crate) fn host(&self, access: Access, operation: &str) -> Result<MutexGuard<'_, Account>> {
        self.device.expect_here(operation)?;
        self.expect_memory(&operation)?;
        loop {
            let mut account = self.account.lock();
            // Work that nobody waits for any more may still use it.
            self.expect_content()?;
            account.refuse_mapped(access, &operation)?;
            let Some(pending) = account.settle_for(access) else {
                return Ok(account);
            };
            drop(account);
            let _ended = pending.wait(operation)?;
        }
    }

    /// An error for a transient of a graph, which has memory in that graph's runs only.
    fn expect_memory(&self, who: &dyn fmt::Display) -> Result<()> {
        if self.block.is_placeholder() {
            return Err(Error::invalid(format!(
                "{who}: the buffer is a transient of a graph, of no use outside it"
            )));
        }
        Ok(())
    }

    /// Whether the device alone has the content, so that a reset takes it away.
    pub(crate) fn is_own(&self) -> bool {
        self.block.memory.storage() != StorageMode::Shared
    }

    /// An error when the content is not to be looked at. What was read is good if there is none behind that, with the
    /// account's lock held all the time: a reset that has begun meanwhile cannot have ended, since it enters the loss here.
    pub(crate) fn expect_content(&self) -> Result<()> {
        let present = self.device.loss().hold();
        if self.is_own() { present.expect_content() } else { present.expect() }
    }

    /// The content is lost, with all that work has written that has ended. What has not is yet to run.
    pub(crate) fn lose(&self, cause: &Error) {
        let mut account = self.account.lock();
        account.settle();
        account.lose(cause);
    }

    /// Ends a map; `lost` is why the device does not see what was written, if it does not.
    pub(crate) fn unmap(&self, access: Access, lost: Option<Error>) {
        if !self.device.is_here() {
            return;
        }
        let mut account = self.account.lock();
        let entered = account.entered;
        account.failed = lost.map(|cause| (entered, cause)).or(account.failed.take());
        match access {
            Access::Read | Access::ReadAnew => account.maps -= 1,
            Access::Write => account.mapped_mut = false,
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // A child has nobody to give it to, and a thread of the parent may have held the pool's lock.
        if !self.device.is_here() {
            return;
        }
        self.device.pool().give_back(self.block.clone());
    }
}

impl Account {
    /// Whether any map guard lives.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped_mut || self.maps > 0
    }

    /// Begins a map; to be called on what [`Storage::host`] gave for the same access.
    pub(crate) fn map(&mut self, access: Access) {
        match access {
            Access::Read | Access::ReadAnew => self.maps += 1,
            Access::Write => self.mapped_mut = true,
        }
    }

    /// An error when the content should have been written by work that failed.
    pub(crate) fn expect_written(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |(_, cause)| Err(cause.poison()))
    }

    /// The content is good again: all of it has been written.
    pub(crate) fn written_in_full(&mut self) {
        self.failed = None;
    }

    /// Whether work in flight writes all of it: what comes after that reads good content, or fails with it.
    fn is_rewritten(&self) -> bool {
        let failed = self.failed.as_ref().map_or(0, |(failed, _)| *failed);
        let rewrites =
            |u: &Use| u.writes && u.covers && u.number > failed && !matches!(u.outcome.get(), Some(Err(_)));
        self.lanes.iter().any(|lane| lane.uses.iter().any(rewrites))
    }

    /// Forgets the work that has ended, keeping what its failure means for the content.
    fn settle(&mut self) {
        for lane in &mut self.lanes {
            while let Some(result) = lane.uses.front().and_then(|u| u.outcome.get()) {
                match (result, &lane.uses[0]) {
                    (_, Use { writes: false, .. }) | (Err(Error::Cancelled), _) => {}
                    // Streams learn of their ends in any order: what failed may have come after this, or before.
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
                lane.uses.pop_front();
            }
        }
        self.lanes.retain(|lane| !lane.uses.is_empty());
    }

    /// Work in flight that conflicts with a host access; without any, all that has ended is settled.
    fn settle_for(&mut self, access: Access) -> Option<Arc<Outcome>> {
        // Looked at first: what ends behind the settling would be neither pending nor settled.
        let pending = self.pending(access);
        self.settle();
        pending
    }

    /// Work in flight that conflicts with a host access; the last of its stream, so that few waits do.
    fn pending(&self, access: Access) -> Option<Arc<Outcome>> {
        let conflicts = |u: &&Use| (u.writes || access == Access::Write) && u.outcome.get().is_none();
        let last = self.lanes.iter().find_map(|lane| lane.uses.iter().rev().find(conflicts));
        last.map(|u| u.outcome.clone())
    }

    fn lose(&mut self, cause: &Error) {
        let mut last = self.entered;
        for entry in self.lanes.iter_mut().flat_map(|lane| &mut lane.uses) {
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
        match self.lanes.iter_mut().find(|lane| lane.stream == stream) {
            Some(lane) => lane.uses.push_back(entry),
            None => self.lanes.push(Lane { stream, uses: VecDeque::from([entry]) }),
        }
    }
}

/// For whom a piece of work uses memory, as error messages say it.
#[derive(Clone)]
pub(crate) enum Who {
    Argument(Arc<dyn Pipeline>, usize),
    Use(Arc<dyn Pipeline>, usize),
    /// The counts of its threadgroups.
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

/// One use of one allocation by work that is about to be submitted.
#[derive(Clone)]
pub(crate) struct Usage {
    pub(crate) storage: Arc<Storage>,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// Whether the range is the whole allocation.
    pub(crate) covers: bool,
}

/// Checks all uses, has the work submitted and enters it into all accounts, as one step.
///
/// When content that the work reads should have been written by work that failed, `submit` is not
/// called and the outcome is `Poisoned`. `submit` gets what the work must hold until it has ended.
///
/// # Errors
/// `InvalidArgument` when a map guard conflicts; what `submit` answers. Nothing is entered then.
pub(crate) fn commit<S>(
    mut usages: Vec<Usage>,
    stream: u64,
    submit: impl FnOnce(Vec<Arc<Storage>>) -> Result<(Arc<Outcome>, S)>,
) -> Result<(Arc<Outcome>, Option<S>)> {
    // Stable, so that the uses of one allocation stay in the order of the commands.
    usages.sort_by_key(|usage| Arc::as_ptr(&usage.storage));
    let mut locked: Vec<(&[Usage], MutexGuard<'_, Account>)> = usages
        .chunk_by(|a, b| Arc::ptr_eq(&a.storage, &b.storage))
        .map(|group| (group, group[0].storage.account.lock()))
        .collect();
    let mut poison = None;
    for (group, account) in &mut locked {
        account.settle();
        for usage in *group {
            usage.storage.expect_memory(&usage.who)?;
            account.refuse_mapped(usage.access, &usage.who)?;
        }
        let is_bad = !account.is_rewritten() && reads_before_it_covers(group);
        if let Some((_, cause)) = account.failed.as_ref().filter(|_| is_bad) {
            poison.get_or_insert_with(|| cause.poison());
        }
    }
    let (outcome, submitted) = match poison {
        Some(cause) => (Outcome::failed(cause), None),
        None => submit(locked.iter().map(|(group, _)| group[0].storage.clone()).collect())
            .map(|(outcome, submitted)| (outcome, Some(submitted)))?,
    };
    for (group, account) in &mut locked {
        let writes = group.iter().any(|u| u.access == Access::Write);
        let covers = group.iter().any(|u| u.access == Access::Write && u.covers);
        account.enter(stream, outcome.clone(), writes, covers);
    }
    Ok((outcome, submitted))
}

/// Whether the work reads what was there before. A use that may write counts as writing only: an output
/// must be usable after the work that should have filled it has failed.
fn reads_before_it_covers(group: &[Usage]) -> bool {
    let before = group.iter().take_while(|u| !(u.access == Access::Write && u.covers));
    before.into_iter().any(|u| u.access == Access::Read)
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Timing;

    use super::*;
    use crate::sync::completion::Promise;

    fn write(account: &mut Account, stream: u64, covers: bool) -> Promise {
        let (promise, outcome) = Promise::new();
        account.enter(stream, outcome, true, covers);
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
        let mut account = Account::default();
        for stream in 0..3 {
            write(&mut account, stream, true).resolve(Ok(Timing::default()));
        }
        let running = write(&mut account, 1, true);
        assert!(account.settle_for(Access::Read).is_some());
        assert_eq!(account.lanes.len(), 1);
        running.resolve(Ok(Timing::default()));
        assert!(account.settle_for(Access::Write).is_none() && account.lanes.is_empty());
    }

    #[test]
    fn a_failure_stays_until_all_is_written() {
        let mut account = Account::default();
        write(&mut account, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
        write(&mut account, 0, false).resolve(Ok(Timing::default()));
        write(&mut account, 0, true).resolve(Err(Error::Cancelled));
        account.settle();
        assert!(matches!(account.expect_written(), Err(Error::Poisoned(_))));
        write(&mut account, 0, true).resolve(Ok(Timing::default()));
        account.settle();
        assert!(account.expect_written().is_ok());
    }

    #[test]
    fn a_failure_is_not_undone_by_what_came_before_it() {
        let mut account = Account::default();
        let first = write(&mut account, 0, true);
        write(&mut account, 1, false).resolve(Err(Error::DeviceLost("gone".into())));
        account.settle();
        first.resolve(Ok(Timing::default()));
        account.settle();
        assert!(account.expect_written().is_err() && account.lanes.is_empty());
        write(&mut account, 1, true).resolve(Ok(Timing::default()));
        account.settle();
        assert!(account.expect_written().is_ok());
    }

    #[test]
    fn a_failure_that_is_learned_of_behind_what_came_after_it_is_over() {
        let mut account = Account::default();
        // So that the other stream's end is seen first.
        let partly = write(&mut account, 0, false);
        let failing = write(&mut account, 1, true);
        let anew = write(&mut account, 0, true);
        for promise in [partly, anew] {
            promise.resolve(Ok(Timing::default()));
        }
        failing.resolve(Err(Error::DeviceLost("gone".into())));
        account.settle();
        assert!(account.expect_written().is_ok() && account.lanes.is_empty());
        write(&mut account, 1, true).resolve(Err(Error::DeviceLost("gone".into())));
        account.settle();
        assert!(account.expect_written().is_err());
    }

    #[test]
    fn content_that_is_being_written_anew_is_not_bad() {
        let mut account = Account::default();
        write(&mut account, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
        account.settle();
        let partly = write(&mut account, 1, false);
        assert!(!account.is_rewritten());
        let anew = write(&mut account, 1, true);
        assert!(account.is_rewritten());
        anew.resolve(Err(Error::Cancelled));
        assert!(!account.is_rewritten());
        partly.resolve(Ok(Timing::default()));
    }

    #[test]
    fn a_loss_is_undone_by_what_ends_later_alone() {
        let mut account = Account::default();
        let first = write(&mut account, 0, true);
        let behind = write(&mut account, 0, true);
        let other = write(&mut account, 1, true);
        behind.resolve(Ok(Timing::default()));
        account.settle();
        account.lose(&Error::DeviceLost("gone".into()));
        first.resolve(Err(Error::Cancelled));
        account.settle();
        assert!(account.expect_written().is_err(), "what had ended by then is lost");
        other.resolve(Ok(Timing::default()));
        account.settle();
        assert!(account.expect_written().is_ok() && account.lanes.is_empty());
    }

    #[test]
    fn what_ends_during_a_look_is_pending_or_settled() {
        let (sender, promises) = std::sync::mpsc::sync_channel::<Promise>(0);
        let device = std::thread::spawn(move || {
            promises.into_iter().for_each(|promise| promise.resolve(Ok(Timing::default())));
        });
        for _ in 0..20_000 {
            let mut account = Account::default();
            write(&mut account, 0, true).resolve(Err(Error::DeviceLost("gone".into())));
            account.settle();
            sender.send(write(&mut account, 1, true)).unwrap();
            while account.settle_for(Access::Read).is_some() {
                // The other thread may be waiting for this processor.
                std::thread::yield_now();
            }
            assert!(account.expect_written().is_ok());
        }
        drop(sender);
        device.join().unwrap();
    }

    #[test]
    fn the_last_pending_of_a_stream_is_waited_for() {
        let mut account = Account::default();
        let first = write(&mut account, 0, true);
        let last = account.lanes[0].uses.back().map(|u| u.outcome.clone());
        let second = write(&mut account, 0, true);
        second.resolve(Err(Error::Cancelled));
        account.settle();
        assert!(account.pending(Access::Read).zip(last).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b)));
        first.resolve(Ok(Timing::default()));
        assert!(account.pending(Access::Read).is_none());
    }
}
