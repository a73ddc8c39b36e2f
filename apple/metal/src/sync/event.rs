//! Events: [`MTLEvent`](https://developer.apple.com/documentation/metal/mtlevent) and
//! [`MTLSharedEvent`](https://developer.apple.com/documentation/metal/mtlsharedevent), counters that command buffers, and for shared events the
//! host, signal and wait for.
//!
//! A guess, because it is not documented: signaling a value below the counter's has no effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Block, Declaration, DispatchQueue, Id, Object, Property, Ref};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::validation::fault_injection::Site;

/// Callback for a value.
type Waiting = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct State {
    value: u64,
    waiting: Vec<Waiting>,
}

/// A counter that only the program can decrease.
#[derive(Default)]
pub struct Counter {
    state: Mutex<State>,
    changed: Condvar,
}

impl Counter {
    /// The value.
    pub fn value(&self) -> u64 {
        self.state.lock().value
    }

    /// Raises the counter to at least `value`.
    pub fn raise(&self, value: u64) {
        let mut state = self.state.lock();
        state.value = state.value.max(value);
        self.tell(state);
    }

    fn set(&self, value: u64) {
        let mut state = self.state.lock();
        state.value = value;
        self.tell(state);
    }

    fn tell(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let value = state.value;
        let reached: Vec<Waiting> = state.waiting.extract_if(.., |waiting| waiting.0 <= value).collect();
        self.changed.notify_all();
        drop(state);
        for (_, call) in reached {
            call();
        }
    }

    /// Calls a function when a value is reached.
    fn when(&self, value: u64, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.value < value {
            return state.waiting.push((value, Box::new(call)));
        }
        drop(state);
        call();
    }

    /// Waits for a value until `end`. Returns whether it was reached.
    pub fn wait(&self, value: u64, end: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while state.value < value {
            match end {
                Some(end) if self.changed.wait_until(&mut state, end).timed_out() => {
                    return state.value >= value;
                }
                Some(_) => {}
                None => self.changed.wait(&mut state),
            }
        }
        true
    }
}

/// `MTLEvent`.
pub struct Event {
    device: Ref<Device>,
    counter: Arc<Counter>,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Event, c"ElinvarMTLEvent");

/// `MTLSharedEvent`.
pub struct SharedEvent {
    device: Ref<Device>,
    counter: Arc<Counter>,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(SharedEvent, c"ElinvarMTLSharedEvent");

/// `MTLSharedEventHandle`.
pub struct Handle {
    counter: Arc<Counter>,
    label: Option<Ref<NsString>>,
}

elinvar_objc::object!(Handle, c"MTLSharedEventHandle");

/// `MTLSharedEventListener`.
struct Listener(Ref<DispatchQueue>);

elinvar_objc::object!(Listener, c"MTLSharedEventListener");

impl Event {
    /// `newEvent`.
    pub fn of_device(device: &Ref<Device>) -> Option<Ref<Self>> {
        let (device, counter) = (device.clone(), Arc::default());
        let made = device.faults.now(Site::Object).is_none();
        made.then(|| Ref::new(Self { device, counter, label: Property::default() }))
    }
}

/// The counter of an event of either kind; `None` for another object.
pub fn counter_of(event: &Object) -> Option<Arc<Counter>> {
    let own = event.downcast::<Event>().map(|event| event.counter.clone());
    own.or_else(|| event.downcast::<SharedEvent>().map(|event| event.counter.clone()))
}

impl SharedEvent {
    /// `newSharedEvent`.
    pub fn of_device(device: &Ref<Device>) -> Option<Ref<Self>> {
        device.faults.now(Site::Object).is_none().then(|| Self::over(device, Arc::default()))
    }

    /// `newSharedEventWithHandle:`.
    pub fn with_handle(device: &Ref<Device>, handle: Ref<Handle>) -> Option<Ref<Self>> {
        Some(Self::over(device, handle.counter.clone()))
    }

    fn over(device: &Ref<Device>, counter: Arc<Counter>) -> Ref<Self> {
        Ref::new(Self { device: device.clone(), counter, label: Property::default() })
    }

    fn wait(this: &Ref<Self>, value: u64, milliseconds: u64) -> bool {
        this.counter.wait(value, Instant::now().checked_add(Duration::from_millis(milliseconds)))
    }

    fn notify(this: &Ref<Self>, listener: Ref<Listener>, value: u64, block: Option<Block<(Id, u64)>>) {
        crate::require!(block.is_some(), "notifyListener:atValue:block: the block is missing");
        let Some(block) = block else { return };
        let (event, queue) = (this.clone(), listener.0.clone());
        let call = move || {
            let reached = event.counter.value();
            queue.run(move || block.call(event.id(), reached));
        };
        this.counter.when(value, call);
    }
}

pub fn register() {
    Declaration::<Event>::new()
        .follows(c"MTLEvent")
        .property("label", |event: &Event| &event.label)
        .method("device", |this: &Ref<Event>| this.device.clone())
        .register();
    Declaration::<SharedEvent>::new()
        .follows(c"MTLEvent")
        .follows(c"MTLSharedEvent")
        .property("label", |event: &SharedEvent| &event.label)
        .method("device", |this: &Ref<SharedEvent>| this.device.clone())
        .method("signaledValue", |this: &Ref<SharedEvent>| this.counter.value())
        .method("setSignaledValue:", |this: &Ref<SharedEvent>, value: u64| this.counter.set(value))
        .method("waitUntilSignaledValue:timeoutMS:", SharedEvent::wait)
        .method("notifyListener:atValue:block:", SharedEvent::notify)
        .method("newSharedEventHandle", |this: &Ref<SharedEvent>| {
            Ref::new(Handle { counter: this.counter.clone(), label: this.label.get() })
        })
        .register();
    Declaration::<Handle>::new().method("label", |this: &Ref<Handle>| this.label.clone()).register();
    Declaration::<Listener>::new()
        .init("init", || Some(Listener(DispatchQueue::new())))
        .init("initWithDispatchQueue:", |queue: Ref<DispatchQueue>| Some(Listener(queue)))
        .class_method("sharedListener", || Ref::new(Listener(DispatchQueue::global())))
        .method("dispatchQueue", |this: &Ref<Listener>| this.0.clone())
        .register();
}
