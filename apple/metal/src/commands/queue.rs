//! [`Queue`]: [`MTLCommandQueue`](https://developer.apple.com/documentation/metal/mtlcommandqueue): the order of its command buffers, and
//! the thread that executes them one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_objc::foundation::NsString;
use elinvar_objc::{BUSY, Declaration, Id, Property, Ref, with_pool};
use parking_lot::{Condvar, Mutex};

use crate::commands::command_buffer::{BufferDescriptor, CommandBuffer};
use crate::commands::execution;
use crate::commands::log_state::LogState;
use crate::device::Device;
use crate::memory::residency::ResidencySet;
use crate::require;
use crate::validation::fault_injection::Site;

/// Default maximum number of uncompleted command buffers.
const COUNT: usize = 64;

/// `MTLCommandQueueDescriptor`.
#[derive(Clone)]
pub struct QueueDescriptor {
    count: Property<usize>,
    log: Property<Option<Ref<LogState>>>,
}

elinvar_objc::object!(QueueDescriptor, c"MTLCommandQueueDescriptor");

impl Default for QueueDescriptor {
    fn default() -> Self {
        Self { count: Property::new(COUNT), log: Property::default() }
    }
}

/// Command buffers in queue order: the number of each, and the buffer once it is committed.
#[derive(Default)]
struct Order {
    line: VecDeque<(u64, Option<Ref<CommandBuffer>>)>,
    /// Number of uncompleted command buffers.
    outstanding: usize,
    last: u64,
    closed: bool,
}

/// State shared by the queue and its thread.
#[derive(Default)]
struct Shared {
    order: Mutex<Order>,
    changed: Condvar,
}

/// Command buffers in order.
pub struct Queue {
    pub device: Ref<Device>,
    shared: Arc<Shared>,
    count: usize,
    started: AtomicBool,
    residency: Mutex<Vec<Ref<ResidencySet>>>,
    log: Option<Ref<LogState>>,
    pub label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Queue, c"ElinvarMTLCommandQueue");

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.order.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Queue {
    /// `newCommandQueue`.
    pub fn new(device: &Ref<Device>) -> Option<Ref<Self>> {
        Self::with(device, COUNT, None)
    }

    /// `newCommandQueueWithDescriptor:`.
    pub fn with_descriptor(device: &Ref<Device>, descriptor: Ref<QueueDescriptor>) -> Option<Ref<Self>> {
        Self::with(device, descriptor.count.get(), descriptor.log.get())
    }

    /// `newCommandQueueWithMaxCommandBufferCount:`.
    pub fn with_count(device: &Ref<Device>, count: usize) -> Option<Ref<Self>> {
        Self::with(device, count, None)
    }

    fn with(device: &Ref<Device>, count: usize, log: Option<Ref<LogState>>) -> Option<Ref<Self>> {
        require!(count > 0, "newCommandQueueWithMaxCommandBufferCount: the count is 0");
        if Device::fails(device, Site::Queue) || device.is_lost() {
            return None;
        }
        Some(Ref::new(Self {
            device: device.clone(),
            shared: Arc::default(),
            count,
            started: AtomicBool::new(false),
            residency: Mutex::default(),
            log,
            label: Property::default(),
        }))
    }

    /// A new command buffer.
    pub fn buffer(
        this: &Ref<Self>,
        retained: bool,
        error_options: usize,
        log: Option<Ref<LogState>>,
    ) -> Option<Ref<CommandBuffer>> {
        if Device::fails(&this.device, Site::CommandBuffer) {
            return None;
        }
        let mut order = this.shared.order.lock();
        while order.outstanding >= this.count {
            this.shared.changed.wait(&mut order);
        }
        order.outstanding += 1;
        order.last += 1;
        let number = order.last;
        drop(order);
        Some(CommandBuffer::new(this, number, retained, error_options, log.or_else(|| this.log.clone())))
    }

    /// Enqueues a command buffer.
    pub fn enqueue(&self, number: u64) {
        self.shared.order.lock().line.push_back((number, None));
    }

    /// Commits a command buffer; enqueues it first if it is not enqueued.
    pub fn commit(&self, number: u64, buffer: Ref<CommandBuffer>) {
        BUSY.begin();
        let mut order = self.shared.order.lock();
        match order.line.iter_mut().find(|place| place.0 == number) {
            Some(place) => place.1 = Some(buffer),
            None => order.line.push_back((number, Some(buffer))),
        }
        drop(order);
        if !self.started.swap(true, Ordering::AcqRel) {
            let shared = self.shared.clone();
            std::thread::spawn(move || shared.work());
        }
        self.shared.changed.notify_all();
    }

    /// A command buffer has completed, or was released without being committed.
    pub fn forget(&self, number: u64) {
        let mut order = self.shared.order.lock();
        order.outstanding -= 1;
        order.line.retain(|place| place.0 != number);
        drop(order);
        self.shared.changed.notify_all();
    }

    fn add_sets(this: &Ref<Self>, sets: *const Id, count: usize) {
        this.residency.lock().extend(ResidencySet::list(sets, count));
    }

    fn remove_set(this: &Ref<Self>, set: Ref<ResidencySet>) {
        this.residency.lock().retain(|own| !own.is(&set));
    }
}

impl Shared {
    /// Waits for the next command buffer; `None` if there will be none.
    fn next(&self) -> Option<Ref<CommandBuffer>> {
        let mut order = self.order.lock();
        loop {
            if order.line.front().is_some_and(|place| place.1.is_some()) {
                return order.line.pop_front().and_then(|place| place.1);
            }
            if order.closed && order.line.is_empty() {
                return None;
            }
            self.changed.wait(&mut order);
        }
    }

    fn work(&self) {
        while let Some(buffer) = self.next() {
            with_pool(|| execution::run(&buffer));
            drop(buffer);
            BUSY.end();
        }
    }
}

pub fn register() {
    Declaration::<QueueDescriptor>::new()
        .makes_default()
        .copies()
        .property("maxCommandBufferCount", |d: &QueueDescriptor| &d.count)
        .property("logState", |d: &QueueDescriptor| &d.log)
        .register();
    Declaration::<Queue>::new()
        .follows(c"MTLCommandQueue")
        .property("label", |queue: &Queue| &queue.label)
        .method("device", |this: &Ref<Queue>| this.device.clone())
        .method("commandBuffer", |this: &Ref<Queue>| Queue::buffer(this, true, 0, None))
        .method("commandBufferWithUnretainedReferences", |this: &Ref<Queue>| {
            Queue::buffer(this, false, 0, None)
        })
        .method("commandBufferWithDescriptor:", |this: &Ref<Queue>, descriptor: Ref<BufferDescriptor>| {
            let log = descriptor.log.get();
            Queue::buffer(this, descriptor.retained.get(), descriptor.error_options.get(), log)
        })
        .method("insertDebugCaptureBoundary", |_: &Ref<Queue>| {})
        .when(elinvar_objc::foundation::os_version() >= (15, 0), |queue| {
            queue
                .method("addResidencySet:", |this: &Ref<Queue>, set: Ref<ResidencySet>| {
                    this.residency.lock().push(set);
                })
                .method("addResidencySets:count:", Queue::add_sets)
                .method("removeResidencySet:", Queue::remove_set)
                .method("removeResidencySets:count:", |this: &Ref<Queue>, sets: *const Id, count: usize| {
                    for set in ResidencySet::list(sets, count) {
                        Queue::remove_set(this, set);
                    }
                })
        })
        .method("logState", |this: &Ref<Queue>| this.log.clone())
        .register();
}
