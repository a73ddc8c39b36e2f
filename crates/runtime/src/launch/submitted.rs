//! [`Submitted`]: the runtime's side of a submission that the driver has, from the call of `submit` to its completion.
//!
//! It holds what the submission uses, and releases it before waiters are woken. Everything that a submission of one command needs is
//! kept with its command list ([`crate::launch::command_list_pool`]) and used again.

use std::sync::Arc;

use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{Command, OnCompleted, Result, Timing};

use crate::launch::command_list_pool::CommandList;
use crate::memory::usage::Storages;
use crate::observe::event;
use crate::observe::metrics::SubmissionCounters;
use crate::observe::trace::Notes;
use crate::sync::completion::Promise;
use crate::sync::deadline::Watched;
use crate::sync::dependencies::Entered;
use crate::sync::device_state::Registration;
use crate::sync::in_flight::InFlight;
use crate::{Device, Event};

/// Receives the result of one submission at a time.
#[derive(Default)]
pub(crate) struct Submitted(Mutex<Option<Pending>>);

/// A submission that has not ended.
pub(crate) struct Pending {
    pub(crate) promise: Promise,
    /// When it was submitted, on the device's clock.
    pub(crate) submitted_ns: u64,
    /// In the device's list of pending work.
    pub(crate) registration: Registration,
    pub(crate) notes: Option<Notes>,
    pub(crate) span: tracing::Span,
    /// Counters of its stream and its graph, where they have names.
    pub(crate) named: [Option<Arc<SubmissionCounters>>; 2],
    pub(crate) device: Device,
    pub(crate) held: Held,
}

/// Resources that a submission holds until it has ended.
pub(crate) struct Held {
    pub(crate) _storages: Storages,
    /// Dropped before the events, which return to the pool if nothing else references them.
    pub(crate) _entered: Option<Entered>,
    /// The events that it raises.
    pub(crate) _events: Vec<Event>,
    pub(crate) _watched: Option<Arc<OnceLock<Watched>>>,
    pub(crate) _in_flight: InFlight,
    pub(crate) commands: Arc<[Command]>,
    pub(crate) list: CommandList,
}

impl Submitted {
    /// Sets the submission whose result is received next.
    pub(crate) fn begin(&self, pending: Pending) {
        *self.0.lock() = Some(pending);
    }

    fn take(&self) -> Option<Pending> {
        self.0.lock().take()
    }
}

impl Held {
    /// Releases everything; the command list keeps what can be used again.
    fn release(self, submitted: Option<Arc<Submitted>>) {
        let Self { commands, mut list, .. } = self;
        list.reclaim(commands, submitted);
    }
}

impl OnCompleted for Submitted {
    fn completed(self: Arc<Self>, result: Result<Timing>) {
        let Some(pending) = self.take() else { return };
        let Pending { promise, submitted_ns, registration, notes, span, named, device, held } = pending;
        let traced = notes.map(|notes| (notes, Notes::now(), result.clone().map_err(Box::new)));
        device.recovery().vitals.submission(result.as_ref().err());
        if let Err(error) = &result {
            device.recovery().vitals.failures.add(&held.commands, error);
        }
        device.counters().submission(&held.commands, submitted_ns, &result);
        named.iter().flatten().for_each(|counters| counters.add(&result));
        if let Some(sample) = notes.and_then(|notes| notes.sample()) {
            device.counters().sampled_launches(sample, &held.commands, result.as_ref().ok().copied());
        }
        event::ended(span, &device, &held.commands, &result);
        drop(registration);
        // Before the promise is resolved, so that waiters find the memory released.
        held.release(Some(self));
        if let Some((notes, at, result)) = traced {
            device.note(notes, std::iter::once(notes.ended(at, result)));
        }
        promise.resolve(result);
    }

    fn dropped(self: Arc<Self>) {
        let Some(Pending { promise, registration, notes, device, held, .. }) = self.take() else { return };
        if let Some(sample) = notes.and_then(|notes| notes.sample()) {
            device.counters().sampled_launches(sample, &held.commands, None);
        }
        drop(registration);
        held.release(None);
        drop(promise);
    }
}
