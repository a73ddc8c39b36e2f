//! Retirement: raises events and ends submissions in order, when everything before them has completed.

use super::*;

impl<B: Backend> State<B> {
    /// Whether a turn must be scheduled: there is work, and no scheduled or running turn will do it.
    pub(in super::super) fn needs_turn(&self) -> bool {
        let is_covered = self.is_scheduled || self.turns > 0 && self.issuing.is_none();
        !is_covered && self.has_work()
    }

    /// Whether something can be issued or retired.
    pub(in super::super) fn has_work(&self) -> bool {
        self.can_issue() || self.can_retire()
    }

    /// Whether [`State::next_retirement`] would return an action or make progress.
    pub(in super::super) fn can_retire(&self) -> bool {
        !self.is_retiring
            && (!self.cancelled.is_empty() || self.is_first_operation_over() || self.is_first_over())
    }

    pub(super) fn is_first_operation_over(&self) -> bool {
        let Some(first) = self.in_flight.front() else { return false };
        // Wait for earlier submissions: if one fails, this operation is poisoned.
        if self.first() != Some(first.submission) {
            return self.is_suspended && !matches!(first.status, Status::At(_));
        }
        match &first.status {
            Status::At(_) => false,
            Status::Completed(_) => true,
            Status::Follows => true,
            Status::Watched => self.awaited(first).is_none_or(|(event, value)| !event.is_pending(value)),
        }
    }

    /// The event and value that an operation waits for.
    pub(super) fn awaited(&self, operation: &Operation<B::Fence>) -> Option<(&Arc<dyn Event>, u64)> {
        let Kind::Wait(command) = operation.kind else { return None };
        match &self.pending(operation.submission)?.commands[command] {
            Command::Wait { event, value } => Some((event, *value)),
            _ => None,
        }
    }

    pub(super) fn is_first_over(&self) -> bool {
        let Some(first) = self.pending.front() else { return false };
        first.in_flight == 0
            && !self.is_suspended
            && (self.issuing != Some(first.id) || first.is_issued())
            && !(self.is_held
                && first.next == 0
                && matches!(first.verdict, None | Some(Verdict::Poisoned(_))))
            && (self.issued > 0
                || self.issuing == Some(first.id)
                || first.verdict.is_some()
                || first.stop.is_some())
    }

    /// The next action of retire.
    pub(in super::super) fn next_retirement(&mut self, backend: &B) -> Option<ToRetire<B>> {
        loop {
            if let Some(cancelled) = self.cancelled.pop_front() {
                self.ending = Some(cancelled.id);
                return Some(ToRetire::End(cancelled, Err(Error::Cancelled)));
            }
            if self.is_first_operation_over() {
                if let Some(to_retire) = self.retire_operation(backend) {
                    return Some(to_retire);
                }
            } else if self.is_first_over() {
                return self.end_first(backend);
            } else {
                return None;
            }
        }
    }

    /// Retire the first operation.
    pub(super) fn retire_operation(&mut self, backend: &B) -> Option<ToRetire<B>> {
        let first = self.in_flight.front()?;
        if !self.is_suspended
            && let (Status::Follows, Some((event, value))) = (&first.status, self.awaited(first))
            && event.is_pending(value)
        {
            // The device has passed the wait, but the host has not seen the event's value yet.
            let watch = ToRetire::Watch(event.clone(), value);
            self.in_flight.front_mut()?.status = Status::Watched;
            return Some(watch);
        }
        let Operation { submission, kind, status } = self.in_flight.pop_front()?;
        self.made_room();
        let at = self.find(submission)?;
        let pending = &mut self.pending[at];
        pending.in_flight -= 1;
        if self.is_suspended && at > 0 {
            // Its submission is reissued or poisoned.
            return None;
        }
        pending.has_effect |= kind != Kind::Start;
        let ns = match status {
            Status::Completed(Completed::Executed { start_ns, end_ns }) => {
                if kind == Kind::Start {
                    pending.start_ns = Some(end_ns);
                } else {
                    pending.start_ns.get_or_insert(start_ns.unwrap_or(end_ns));
                    pending.end_ns = pending.end_ns.max(Some(end_ns));
                }
                Some(end_ns)
            }
            Status::Completed(Completed::Failed(error)) => {
                self.fail(at, error);
                return None;
            }
            Status::Completed(Completed::Poisoned(error)) => {
                pending.verdict.get_or_insert(Verdict::Poisoned(error));
                return None;
            }
            Status::Completed(Completed::Cancelled) | Status::At(_) => None,
            Status::Follows | Status::Watched => pending.end_ns,
        };
        if pending.verdict.is_some() {
            return None;
        }
        match (kind, &pending.commands.get(kind.command()?)?) {
            (Kind::Signal(_), Command::Signal { event, value }) => {
                Some(ToRetire::Signal(event.clone(), *value, ns))
            }
            (Kind::Timestamp(_), Command::Timestamp { into }) => {
                into.set(ns.unwrap_or_else(|| backend.now_ns()));
                None
            }
            (Kind::Wait(_), Command::Wait { event, value }) => {
                let cause = event.failure_below(*value)?;
                self.fail(at, cause);
                None
            }
            _ => None,
        }
    }

    /// End the first submission, or suspend the queue over its failure.
    pub(super) fn end_first(&mut self, backend: &B) -> Option<ToRetire<B>> {
        let is_issued = self.issued > 0;
        let first = self.pending.front_mut()?;
        if first.verdict.is_none()
            && let Some(cause) = first.stop.as_ref()
            && !(first.has_begun && first.is_issued())
        {
            first.verdict = Some(Verdict::Failed(cause.clone()));
        }
        if let Some(Verdict::Failed(error)) = &first.verdict
            && !first.is_final
            && backend.suspends(&mut first.work, error)
        {
            self.is_suspended = true;
            return None;
        }
        let first = self.pending.pop_front()?;
        self.ending = Some(first.id);
        match is_issued {
            true => self.issued -= 1,
            false => self.blocked_at = None,
        }
        let result = match &first.verdict {
            None => Ok(Times { start_ns: first.start_ns, end_ns: first.end_ns }),
            Some(Verdict::Cancelled) => Err(Error::Cancelled),
            Some(Verdict::Poisoned(error)) => Err(error.clone()),
            // The queue's failure was set at the loss of the device and may have been acknowledged since.
            Some(Verdict::Lost(error)) => Err(error.clone()),
            Some(Verdict::Failed(error)) => {
                let error = error.clone();
                self.poison_all(&error);
                Err(error)
            }
        };
        Some(ToRetire::End(first, result))
    }

    /// Makes `error` the queue's failure, and poisons all pending submissions.
    pub(super) fn poison_all(&mut self, error: &Error) {
        for pending in &mut self.pending {
            if matches!(pending.verdict, None | Some(Verdict::Failed(_))) {
                pending.verdict = Some(Verdict::Poisoned(error.poison()));
            }
        }
        self.failure = Some(error.clone());
        self.has_failed = false;
    }
}
