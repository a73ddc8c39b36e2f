//! [`CommandBuffer`]: [`MTLCommandBuffer`](https://developer.apple.com/documentation/metal/mtlcommandbuffer): encoded commands, status,
//! handlers, times and error.
//!
//! A guess, because it is not documented: `waitUntilCompleted` returns before the completion handlers have been called.

use elinvar_objc::foundation::{NsArray, NsError, NsString};
use elinvar_objc::{Block, Declaration, Id, Object, Property, Ref};
use parking_lot::{Condvar, Mutex};

use crate::commands::capture;
use crate::commands::log_state::LogState;
use crate::commands::pass::{Pass, Step};
use crate::commands::queue::Queue;
use crate::device::Device;
use crate::encoders::blit::{BlitEncoder, BlitPassDescriptor};
use crate::encoders::compute::{ComputeEncoder, ComputePassDescriptor};
use crate::memory::residency::ResidencySet;
use crate::require;
use crate::sync::event::counter_of;
use crate::validation::fault_injection::Site;
use crate::validation::shader_validation::Log;
use crate::values::status;

/// `MTLCommandBufferDescriptor`.
#[derive(Clone)]
pub struct BufferDescriptor {
    pub retained: Property<bool>,
    pub error_options: Property<usize>,
    pub log: Property<Option<Ref<LogState>>>,
}

elinvar_objc::object!(BufferDescriptor, c"MTLCommandBufferDescriptor");

impl Default for BufferDescriptor {
    fn default() -> Self {
        Self { retained: Property::new(true), error_options: Property::default(), log: Property::default() }
    }
}

/// A completion or schedule handler.
type CommandBlock = Block<(Id,)>;

/// Times in nanoseconds of the device's clock.
#[derive(Clone, Copy, Default)]
pub struct Times {
    pub kernel_start: u64,
    pub kernel_end: u64,
    pub start: u64,
    pub end: u64,
}

#[derive(Default)]
struct State {
    status: usize,
    steps: Vec<Step>,
    /// Whether an encoder is open.
    encoding: bool,
    groups: usize,
    scheduled: Vec<CommandBlock>,
    completed: Vec<CommandBlock>,
    times: Times,
    error: Option<Ref<NsError>>,
    logs: Vec<Ref<Log>>,
    /// Residency sets are retained until the end.
    sets: Vec<Ref<ResidencySet>>,
}

/// A command buffer.
pub struct CommandBuffer {
    pub queue: Ref<Queue>,
    number: u64,
    /// Whether it retains its resources.
    pub retained: bool,
    pub error_options: usize,
    pub log: Option<Ref<LogState>>,
    /// The capture that it belongs to, if it is committed before the capture ends.
    pub captured: Option<u64>,
    label: Property<Option<Ref<NsString>>>,
    state: Mutex<State>,
    changed: Condvar,
}

elinvar_objc::object!(CommandBuffer, c"ElinvarMTLCommandBuffer");

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.status < status::COMMITTED {
            self.queue.forget(self.number);
        }
    }
}

#[allow(clippy::cast_precision_loss)] // the unit is Metal's
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl CommandBuffer {
    /// A new command buffer, already counted by the queue.
    pub fn new(
        queue: &Ref<Queue>,
        number: u64,
        retained: bool,
        error_options: usize,
        log: Option<Ref<LogState>>,
    ) -> Ref<Self> {
        Ref::new(Self {
            queue: queue.clone(),
            number,
            retained,
            error_options,
            log,
            captured: capture::under_way(queue),
            label: Property::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether commands can be encoded: not committed, and no open encoder.
    fn is_open(&self, method: &str) -> bool {
        let state = self.state.lock();
        let (uncommitted, encoding) = (state.status < status::COMMITTED, state.encoding);
        drop(state);
        require!(uncommitted, "{method} the command buffer is committed");
        require!(!encoding, "{method} an encoder of the command buffer is not ended");
        true
    }

    /// Opens an encoder, if possible.
    pub fn begin(&self, method: &str) -> bool {
        let begins = self.is_open(method);
        if begins {
            self.state.lock().encoding = true;
        }
        begins
            && (!Device::fails(&self.queue.device, Site::Encoder) || {
                self.state.lock().encoding = false;
                false
            })
    }

    /// Closes the encoder.
    pub fn end(&self, pass: Pass) {
        let mut state = self.state.lock();
        state.encoding = false;
        state.steps.push(Step::Pass(pass));
    }

    /// Adds a pass without an encoder, as Metal Performance Shaders do.
    pub fn add_pass(&self, method: &str, pass: Pass) {
        if self.is_open(method) {
            self.state.lock().steps.push(Step::Pass(pass));
        }
    }

    fn add_event(
        &self,
        method: &str,
        event: &Object,
        step: impl FnOnce(std::sync::Arc<crate::sync::event::Counter>) -> Step,
    ) {
        let counter = counter_of(event);
        require!(counter.is_some(), "{method} the object is not an event");
        if self.is_open(method)
            && let Some(counter) = counter
        {
            self.state.lock().steps.push(step(counter));
        }
    }

    fn enqueue(this: &Ref<Self>) {
        let mut state = this.state.lock();
        let first = state.status == status::NOT_ENQUEUED;
        if first {
            state.status = status::ENQUEUED;
        }
        drop(state);
        require!(first, "-[MTLCommandBuffer enqueue]: it is enqueued");
        this.queue.enqueue(this.number);
    }

    pub fn commit(this: &Ref<Self>) {
        const METHOD: &str = "-[MTLCommandBuffer commit]:";
        if !this.is_open(METHOD) {
            return;
        }
        let groups = this.state.lock().groups;
        require!(groups == 0, "{METHOD} {groups} debug groups are not popped");
        if let Some(captured) = this.captured {
            capture::note(captured, || this.in_words());
        }
        let mut state = this.state.lock();
        state.status = status::COMMITTED;
        state.times.kernel_start = this.queue.device.now_ns();
        drop(state);
        this.queue.device.hold.count();
        this.queue.commit(this.number, this.clone());
    }

    /// Description for a capture.
    fn in_words(&self) -> String {
        let name = |label: &Property<Option<Ref<NsString>>>| {
            label.get().map_or_else(String::new, |label| label.as_str().to_owned())
        };
        let mut words = format!("command buffer {} of {}\n", name(&self.label), name(&self.queue.label));
        for step in &self.state.lock().steps {
            match step {
                Step::Pass(pass) => {
                    words += &format!("  encoder {}\n", pass.label);
                    pass.trace.iter().for_each(|line| words += &format!("    {line}\n"));
                }
                Step::Wait(_, value) => words += &format!("  wait for {value}\n"),
                Step::Signal(_, value) => words += &format!("  signal {value}\n"),
            }
        }
        words
    }

    fn wait(this: &Ref<Self>, for_status: usize, method: &str) {
        let mut state = this.state.lock();
        let committed = state.status >= status::COMMITTED;
        if committed {
            while state.status < for_status {
                this.changed.wait(&mut state);
            }
        }
        drop(state);
        require!(committed, "{method} the command buffer is not committed");
    }

    fn add_block(this: &Ref<Self>, block: Option<CommandBlock>, scheduled: bool) {
        let method = if scheduled { "addScheduledHandler:" } else { "addCompletedHandler:" };
        require!(block.is_some(), "{method} the block is missing");
        let mut state = this.state.lock();
        let uncommitted = state.status < status::COMMITTED;
        if let Some(block) = block.filter(|_| uncommitted) {
            if scheduled { state.scheduled.push(block) } else { state.completed.push(block) }
        }
        drop(state);
        require!(uncommitted, "{method} the command buffer is committed");
    }

    /// Starts execution: returns its steps, and the handlers to call.
    pub fn schedule(&self) -> (Vec<Step>, Vec<CommandBlock>) {
        let mut state = self.state.lock();
        state.status = status::SCHEDULED;
        state.times.kernel_end = self.queue.device.now_ns();
        let taken = (std::mem::take(&mut state.steps), std::mem::take(&mut state.scheduled));
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// Ends execution, after its resources were released. Returns the handlers to call.
    pub fn complete(
        &self,
        start: u64,
        end: u64,
        error: Option<Ref<NsError>>,
        logs: Vec<Ref<Log>>,
    ) -> Vec<CommandBlock> {
        self.queue.forget(self.number);
        let mut state = self.state.lock();
        state.status = if error.is_some() { status::ERROR } else { status::COMPLETED };
        (state.times.start, state.times.end, state.error) = (start, end, error);
        state.logs = logs;
        state.sets.clear();
        let blocks = std::mem::take(&mut state.completed);
        drop(state);
        self.changed.notify_all();
        blocks
    }

    fn push_group(this: &Ref<Self>, _name: Ref<NsString>) {
        this.state.lock().groups += 1;
    }

    fn pop_group(this: &Ref<Self>) {
        let popped = {
            let mut state = this.state.lock();
            state.groups.checked_sub(1).map(|left| state.groups = left).is_some()
        };
        require!(popped, "-[MTLCommandBuffer popDebugGroup]: no group is pushed");
    }

    fn use_sets(this: &Ref<Self>, sets: impl IntoIterator<Item = Ref<ResidencySet>>) {
        this.state.lock().sets.extend(sets);
    }

    fn time(this: &Ref<Self>, of: impl Fn(&Times) -> u64) -> f64 {
        seconds(of(&this.state.lock().times))
    }
}

pub fn register() {
    Declaration::<BufferDescriptor>::new()
        .makes_default()
        .copies()
        .property("retainedReferences", |d: &BufferDescriptor| &d.retained)
        .property("errorOptions", |d: &BufferDescriptor| &d.error_options)
        .property("logState", |d: &BufferDescriptor| &d.log)
        .register();
    let buffer = Declaration::<CommandBuffer>::new()
        .follows(c"MTLCommandBuffer")
        .property("label", |buffer: &CommandBuffer| &buffer.label)
        .method("device", |this: &Ref<CommandBuffer>| this.queue.device.clone())
        .method("commandQueue", |this: &Ref<CommandBuffer>| this.queue.clone())
        .method("retainedReferences", |this: &Ref<CommandBuffer>| this.retained)
        .method("errorOptions", |this: &Ref<CommandBuffer>| this.error_options)
        .method("enqueue", CommandBuffer::enqueue)
        .method("commit", CommandBuffer::commit)
        .method("waitUntilScheduled", |this: &Ref<CommandBuffer>| {
            CommandBuffer::wait(this, status::SCHEDULED, "waitUntilScheduled:");
        })
        .method("waitUntilCompleted", |this: &Ref<CommandBuffer>| {
            CommandBuffer::wait(this, status::COMPLETED, "waitUntilCompleted:");
        })
        .method("addScheduledHandler:", |this: &Ref<CommandBuffer>, block: Option<CommandBlock>| {
            CommandBuffer::add_block(this, block, true);
        })
        .method("addCompletedHandler:", |this: &Ref<CommandBuffer>, block: Option<CommandBlock>| {
            CommandBuffer::add_block(this, block, false);
        })
        .method("status", |this: &Ref<CommandBuffer>| this.state.lock().status)
        .method("error", |this: &Ref<CommandBuffer>| this.state.lock().error.clone())
        .method("logs", |this: &Ref<CommandBuffer>| {
            let logs = this.state.lock().logs.clone();
            NsArray::new(logs.into_iter().map(Ref::into_object))
        });
    encoding(buffer)
        .method("kernelStartTime", |this: &Ref<CommandBuffer>| CommandBuffer::time(this, |t| t.kernel_start))
        .method("kernelEndTime", |this: &Ref<CommandBuffer>| CommandBuffer::time(this, |t| t.kernel_end))
        .method("GPUStartTime", |this: &Ref<CommandBuffer>| CommandBuffer::time(this, |t| t.start))
        .method("GPUEndTime", |this: &Ref<CommandBuffer>| CommandBuffer::time(this, |t| t.end))
        .register();
}

fn encoding(buffer: Declaration<CommandBuffer>) -> Declaration<CommandBuffer> {
    buffer
        .method("computeCommandEncoder", |this: &Ref<CommandBuffer>| ComputeEncoder::begin(this, 0, None))
        .method("computeCommandEncoderWithDispatchType:", |this: &Ref<CommandBuffer>, kind: usize| {
            ComputeEncoder::begin(this, kind, None)
        })
        .method(
            "computeCommandEncoderWithDescriptor:",
            |this: &Ref<CommandBuffer>, descriptor: Ref<ComputePassDescriptor>| {
                ComputeEncoder::begin(this, descriptor.kind.get(), Some(&descriptor.samples))
            },
        )
        .method("blitCommandEncoder", |this: &Ref<CommandBuffer>| BlitEncoder::begin(this, None))
        .method(
            "blitCommandEncoderWithDescriptor:",
            |this: &Ref<CommandBuffer>, descriptor: Ref<BlitPassDescriptor>| {
                BlitEncoder::begin(this, Some(&descriptor.0))
            },
        )
        .method("encodeSignalEvent:value:", |this: &Ref<CommandBuffer>, event: Object, value: u64| {
            this.add_event("encodeSignalEvent:value:", &event, |counter| Step::Signal(counter, value));
        })
        .method("encodeWaitForEvent:value:", |this: &Ref<CommandBuffer>, event: Object, value: u64| {
            this.add_event("encodeWaitForEvent:value:", &event, |counter| Step::Wait(counter, value));
        })
        .method("pushDebugGroup:", CommandBuffer::push_group)
        .method("popDebugGroup", CommandBuffer::pop_group)
        .when(elinvar_objc::foundation::os_version() >= (15, 0), |buffer| {
            buffer
                .method("useResidencySet:", |this: &Ref<CommandBuffer>, set: Ref<ResidencySet>| {
                    CommandBuffer::use_sets(this, [set]);
                })
                .method(
                    "useResidencySets:count:",
                    |this: &Ref<CommandBuffer>, sets: *const Id, count: usize| {
                        CommandBuffer::use_sets(this, ResidencySet::list(sets, count));
                    },
                )
        })
}
