//! [`Timeline`]: an event in host memory.
//!
//! Each callback is called once, without the lock: by the thread that removes it from the list, or immediately by
//! [`Event::when`].

use std::collections::BTreeMap;

use crate::sync::Mutex;
use crate::{Callback, Error, Event, Reached};

/// An event in host memory, for drivers without native events.
pub struct Timeline {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    value: u64,
    time_ns: Option<u64>,
    failure: Option<Error>,
    waiting: BTreeMap<u64, Vec<Reached>>,
}

impl Timeline {
    /// Creates an event with value 0.
    pub fn new() -> Self {
        Self { state: Mutex::new(State::default()) }
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Event for Timeline {
    fn value(&self) -> u64 {
        self.state.lock().value
    }

    fn time_ns(&self) -> Option<u64> {
        self.state.lock().time_ns
    }

    fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    fn is_pending(&self, value: u64) -> bool {
        let state = self.state.lock();
        state.value < value && state.failure.is_none()
    }

    fn signal(&self, value: u64, now_ns: u64) {
        let mut state = self.state.lock();
        if value <= state.value || state.failure.is_some() {
            return;
        }
        (state.value, state.time_ns) = (value, Some(now_ns));
        let later = value.checked_add(1).map(|next| state.waiting.split_off(&next)).unwrap_or_default();
        let reached = std::mem::replace(&mut state.waiting, later);
        drop(state);
        let _callback = Callback::enter();
        reached.into_values().flatten().for_each(|then| then(Ok(())));
    }

    fn fail(&self, cause: &Error) {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return;
        }
        let cause = cause.poison();
        state.failure = Some(cause.clone());
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let _callback = Callback::enter();
        waiting.into_values().flatten().for_each(|then| then(Err(cause.clone())));
    }

    fn when(&self, value: u64, then: Reached) {
        let mut state = self.state.lock();
        let known = match &state.failure {
            _ if state.value >= value => Ok(()),
            Some(cause) => Err(cause.clone()),
            None => return state.waiting.entry(value).or_default().push(then),
        };
        drop(state);
        then(known);
    }
}
