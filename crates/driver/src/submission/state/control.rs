//! Control of submissions by the user: cancel, stop, acknowledge; device loss; and the resumption of a suspended queue.

use super::*;

/// Callback that asks the device to stop a submission, without the lock; `None` if the device is not involved.
type Asked<B> = Option<Deferred<B, Result<()>>>;

impl<B: Backend> State<B> {
    /// Cancels a submission that has not begun. `Some(true)` if it was cancelled; `Some(false)` if it has begun; `None` if it has ended.
    pub(in super::super) fn cancel(&mut self, id: u64, backend: &B) -> Option<bool> {
        let at = self.find(id)?;
        let pending = &self.pending[at];
        // In a suspended queue, all submissions behind the first are reissued.
        let has_begun = match self.suspended_over() {
            Some(first) if first != id => backend.may_have_begun(&pending.work),
            _ => pending.has_begun || pending.in_flight > 0,
        };
        if has_begun {
            return Some(false);
        }
        self.take_out(at);
        Some(true)
    }

    /// Whether the device could cancel a submission that has begun: none of its commands has taken effect, and the first operation is
    /// in flight on the device.
    pub(in super::super) fn may_be_taken_back(&self, id: u64) -> bool {
        let first = self.in_flight.iter().find(|operation| operation.submission == id);
        let is_in_flight = first.is_some_and(|first| matches!(first.status, Status::At(_)));
        is_in_flight && self.pending(id).is_some_and(|pending| !pending.has_effect)
    }

    pub(super) fn take_out(&mut self, at: usize) {
        if at < self.issued {
            self.issued -= 1;
        } else if at == self.issued {
            self.blocked_at = None;
        }
        self.cancelled.extend(self.pending.remove(at));
        self.has_failed =
            self.pending.iter().any(|pending| matches!(pending.verdict, Some(Verdict::Failed(_))));
    }

    /// The device has cancelled a submission that had begun. It ends when none of its operations is in flight.
    pub(in super::super) fn was_cancelled(&mut self, id: u64) {
        let Some(at) = self.find(id) else { return };
        let mut marks = 0;
        self.in_flight.retain(|operation| {
            let is_mark =
                operation.submission == id && matches!(operation.status, Status::Follows | Status::Watched);
            marks += usize::from(is_mark);
            !is_mark
        });
        let pending = &mut self.pending[at];
        pending.in_flight -= marks;
        pending.verdict.get_or_insert(Verdict::Cancelled);
        if pending.in_flight == 0
            && matches!(pending.verdict, Some(Verdict::Cancelled))
            && self.issuing != Some(id)
        {
            self.take_out(at);
        }
        self.made_room();
    }

    /// Stops a submission with `cause`. `None` if it has ended; otherwise the callback to run without the lock.
    pub(in super::super) fn stop(&mut self, id: u64, cause: Error, backend: &B) -> Result<Option<Asked<B>>> {
        let Some(at) = self.find(id) else { return Ok(None) };
        let is_blocked = at == self.issued && self.blocked_at.is_some();
        let is_issuing = self.issuing == Some(id) && self.pending[at].has_begun;
        let has_commands = self.fences(Some(id)).next().is_some();
        let mut deferred = None;
        if is_issuing || has_commands {
            let asked = backend.stop(&self.pending[at].work, &mut self.fences(Some(id)), &cause);
            deferred = match asked {
                Err(_) if is_blocked => None,
                asked => asked?,
            };
        }
        self.pending[at].stop.get_or_insert(cause);
        if is_blocked {
            self.blocked_at = None;
        }
        Ok(Some(deferred))
    }

    /// Withdraws a stop, because the device could not stop the submission.
    pub(in super::super) fn withdraw_stop(&mut self, id: u64) {
        if let Some(pending) = self.pending_mut(id) {
            pending.stop = None;
        }
    }

    /// Clears and returns the failure.
    pub(in super::super) fn acknowledge(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// See [`SubmissionQueue::abandon`].
    pub(in super::super) fn abandon(
        &mut self,
        is_gone: bool,
        failure: &Error,
        mut cause: impl FnMut(&Arc<[Command]>) -> Error,
    ) -> Vec<B::Fence> {
        if !self.pending.is_empty() {
            self.failure.get_or_insert_with(|| failure.clone());
        }
        for pending in &mut self.pending {
            if !matches!(pending.verdict, Some(Verdict::Cancelled)) {
                let verdict = pending.verdict.take();
                let own = match &verdict {
                    // The layer has not yet decided about this failure.
                    Some(Verdict::Failed(_)) if B::IS_LAYER && !pending.is_final => {
                        Some(cause(&pending.commands))
                    }
                    Some(Verdict::Failed(error)) => Some(error.clone()),
                    Some(_) => None,
                    None => Some(cause(&pending.commands)),
                };
                pending.verdict = own.map(Verdict::Lost).or(verdict);
            }
            if is_gone {
                pending.in_flight = 0;
            }
        }
        (self.has_failed, self.is_suspended) = (false, false);
        if !is_gone {
            return Vec::new();
        }
        (self.drain, self.is_full) = (false, false);
        let gone = std::mem::take(&mut self.in_flight);
        gone.into_iter()
            .filter_map(|operation| match operation.status {
                Status::At(fence) => Some(fence),
                _ => None,
            })
            .collect()
    }

    /// The first submission, if commands of it are in flight, and the cause of its stop, if it was stopped.
    pub(in super::super) fn first_in_flight(&self) -> Option<(u64, Option<&Error>)> {
        let first = self.pending.front()?;
        self.fences(Some(first.id)).next().map(|_| (first.id, first.stop.as_ref()))
    }

    /// See [`SubmissionQueue::lose_commands`].
    pub(in super::super) fn lose_commands(&mut self, cause: &Error) {
        let first = self.in_flight.iter().find(|operation| matches!(operation.status, Status::At(_)));
        let Some(first) = first.map(|operation| operation.submission) else { return };
        let stop = self.pending(first).and_then(|pending| pending.stop.clone());
        let error = stop.unwrap_or_else(|| cause.clone());
        for operation in &mut self.in_flight {
            if matches!(operation.status, Status::At(_)) {
                let completed = match operation.submission == first {
                    true => Completed::Failed(error.clone()),
                    false => Completed::Poisoned(error.poison()),
                };
                operation.status = Status::Completed(completed);
            }
        }
    }

    /// The submission whose failure has suspended the queue. `None` while operations are in flight.
    fn suspended_over(&self) -> Option<u64> {
        self.first().filter(|_| self.is_suspended && self.in_flight.is_empty())
    }

    /// See [`State::suspended_over`].
    pub(in super::super) fn suspended(&mut self) -> Option<Suspended<'_, B>> {
        self.suspended_over()?;
        let Pending { id, commands, work, stop, verdict, .. } = self.pending.front_mut()?;
        let error = match (&*stop, verdict) {
            (Some(cause), _) => cause,
            (None, Some(Verdict::Failed(error))) => error,
            _ => return None,
        };
        Some(Suspended { submission: Submission(*id), commands, error, is_stopped: stop.is_some(), work })
    }

    /// Reissues the first submission and those behind it, from their first commands.
    pub(in super::super) fn retry(&mut self, first: u64, backend: &B) -> bool {
        if self.suspended_over() != Some(first) || self.pending[0].stop.is_some() {
            return false;
        }
        self.rewind(backend);
        true
    }

    fn rewind(&mut self, backend: &B) {
        for pending in &mut self.pending {
            if matches!(pending.verdict, None | Some(Verdict::Failed(_))) {
                let has_begun = backend.may_have_begun(&pending.work);
                (pending.verdict, pending.next, pending.has_begun, pending.has_effect) =
                    (None, 0, has_begun, false);
                (pending.was_given, pending.start_ns, pending.end_ns) = (false, None, None);
            }
        }
        (self.issued, self.blocked_at) = (0, None);
        (self.has_failed, self.is_suspended) = (false, false);
    }

    /// Continues at command `next` of the first submission, because the commands before it were executed elsewhere.
    pub(in super::super) fn complete_first(
        &mut self,
        first: u64,
        next: usize,
        timing: Timing,
        backend: &B,
    ) -> bool {
        if self.suspended_over() != Some(first) {
            return false;
        }
        self.rewind(backend);
        if let Some(first) = self.pending.front_mut() {
            (first.next, first.has_begun, first.was_given, first.stop) = (next, true, true, None);
            (first.start_ns, first.end_ns) = (Some(timing.start_ns), Some(timing.end_ns));
        }
        true
    }

    /// Makes `error` the final failure of the first submission.
    pub(in super::super) fn fail_first(&mut self, first: u64, error: Error) -> bool {
        if self.suspended_over() != Some(first) {
            return false;
        }
        self.is_suspended = false;
        if let Some(first) = self.pending.front_mut() {
            (first.is_final, first.verdict) = (true, Some(Verdict::Failed(error)));
        }
        true
    }
}
