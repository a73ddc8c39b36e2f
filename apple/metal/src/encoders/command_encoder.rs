//! [`Encoding`]: common parts of all encoders, see [`MTLCommandEncoder`](https://developer.apple.com/documentation/metal/mtlcommandencoder):
//! label, debug groups, and `endEncoding`, which must be called exactly once.

use elinvar_objc::foundation::NsString;
use elinvar_objc::{Declaration, Declared, Property, Ref};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::pass::{Op, Pass};
use crate::device::profile::Samples;
use crate::memory::buffer::{Buffer, Held};
use crate::require;
use crate::sync::counter::{Attachments, SampleBuffer};
use crate::sync::fence::Fence;
use crate::validation::failed;

struct Open {
    pass: Pass,
    groups: usize,
    /// Samples to take at the end of the pass.
    at_end: Vec<Op>,
}

/// State of an encoder.
pub struct Encoding {
    pub buffer: Ref<CommandBuffer>,
    /// Name of the protocol, for messages.
    protocol: &'static str,
    label: Property<Option<Ref<NsString>>>,
    open: Mutex<Option<Open>>,
}

impl Drop for Encoding {
    fn drop(&mut self) {
        if self.open.get_mut().is_some() {
            failed(format!("{}: it was released before -endEncoding", self.protocol));
        }
    }
}

impl Encoding {
    /// Begins encoding, if the command buffer permits it.
    pub fn begin(
        buffer: &Ref<CommandBuffer>,
        protocol: &'static str,
        method: &str,
        concurrent: bool,
        samples: Option<&Attachments>,
    ) -> Option<Self> {
        if !buffer.begin(method) {
            return None;
        }
        let (ops, at_end) = samples.map(Attachments::ops).unwrap_or_default();
        let pass = Pass { ops, concurrent, ..Pass::default() };
        let open = Mutex::new(Some(Open { pass, groups: 0, at_end }));
        Some(Self { buffer: buffer.clone(), protocol, label: Property::default(), open })
    }

    /// Whether it is open; reports an error otherwise.
    pub fn is_open(&self, method: &str) -> bool {
        let open = self.open.lock().is_some();
        require!(open, "-[{} {method}]: the encoder is ended", self.protocol);
        true
    }

    fn open(&self, method: &str) -> Option<MappedMutexGuard<'_, Open>> {
        if !self.is_open(method) {
            return None;
        }
        MutexGuard::try_map(self.open.lock(), Option::as_mut).ok()
    }

    /// Adds an operation.
    pub fn push(&self, method: &str, op: Op) {
        if let Some(mut open) = self.open(method) {
            self.trace(&mut open, || op.in_words());
            open.pass.ops.push(op);
        }
    }

    /// Records an entry for a capture.
    fn trace(&self, open: &mut Open, words: impl FnOnce() -> String) {
        if self.buffer.captured.is_some() {
            open.pass.trace.push(words());
        }
    }

    /// A buffer as the command buffer keeps it: a buffer of the queue's device, not a remote view, which
    /// [can only be copied from](https://developer.apple.com/documentation/metal/transferring-data-between-connected-gpus).
    pub fn hold(&self, buffer: &Ref<Buffer>) -> Held {
        if buffer.is_remote() {
            failed(format!("{}: a remote view is the source of a blit or nothing", self.protocol));
        }
        self.hold_source(buffer)
    }

    /// As [`Encoding::hold`], for the source of a copy.
    pub fn hold_source(&self, buffer: &Ref<Buffer>) -> Held {
        if !buffer.device().is(&self.buffer.queue.device) {
            failed(format!("{}: a buffer of another device", self.protocol));
        }
        Held::new(buffer, self.buffer.retained)
    }

    fn end(&self) {
        let Some(groups) = self.open("endEncoding").map(|open| open.groups) else { return };
        require!(groups == 0, "-[{} endEncoding]: {groups} debug groups are not popped", self.protocol);
        let Some(mut open) = self.open.lock().take() else { return };
        open.pass.label = self.label.get().map(|label| label.as_str().to_owned()).unwrap_or_default();
        open.pass.ops.append(&mut open.at_end);
        self.buffer.end(open.pass);
    }

    fn signpost(&self, method: &str, text: &Ref<NsString>, pushes: bool) {
        if let Some(mut open) = self.open(method) {
            open.pass.signposts.push(text.as_str().to_owned());
            let kind = if pushes { "group" } else { "signpost" };
            self.trace(&mut open, || format!("{kind} {}", text.as_str()));
            open.groups += usize::from(pushes);
        }
    }

    fn pop(&self) {
        let Some(popped) = self.open("popDebugGroup").map(|mut open| {
            self.trace(&mut open, || "end".to_owned());
            let left = open.groups.checked_sub(1);
            open.groups = left.unwrap_or(0);
            left.is_some()
        }) else {
            return;
        };
        require!(popped, "-[{} popDebugGroup]: no group is pushed", self.protocol);
    }

    fn sample(&self, samples: Ref<SampleBuffer>, index: usize) {
        const METHOD: &str = "sampleCountersInBuffer:atSampleIndex:withBarrier:";
        let device = &self.buffer.queue.device;
        require!(
            device.profile.samples == Samples::Commands,
            "-[{} {METHOD}]: the device samples counters at the ends of passes only",
            self.protocol
        );
        let count = samples.count();
        require!(index < count, "-[{} {METHOD}]: index {index} of {count}", self.protocol);
        self.push(METHOD, Op::Sample(samples, index));
    }
}

/// The methods of all encoders.
pub fn declare<T, F>(class: Declaration<T>, of: F) -> Declaration<T>
where
    T: Declared,
    F: Fn(&T) -> &Encoding + Copy + 'static,
{
    class
        .follows(c"MTLCommandEncoder")
        .property("label", move |this: &T| &of(this).label)
        .method("device", move |this: &Ref<T>| of(this).buffer.queue.device.clone())
        .method("endEncoding", move |this: &Ref<T>| of(this).end())
        .method("insertDebugSignpost:", move |this: &Ref<T>, text: Ref<NsString>| {
            of(this).signpost("insertDebugSignpost:", &text, false);
        })
        .method("pushDebugGroup:", move |this: &Ref<T>, text: Ref<NsString>| {
            of(this).signpost("pushDebugGroup:", &text, true);
        })
        .method("popDebugGroup", move |this: &Ref<T>| of(this).pop())
        .method("updateFence:", move |this: &Ref<T>, fence: Ref<Fence>| {
            of(this).push("updateFence:", Op::Update(fence));
        })
        .method("waitForFence:", move |this: &Ref<T>, fence: Ref<Fence>| {
            of(this).push("waitForFence:", Op::Await(fence));
        })
        .method(
            "sampleCountersInBuffer:atSampleIndex:withBarrier:",
            move |this: &Ref<T>, samples: Ref<SampleBuffer>, index: usize, _barrier: bool| {
                of(this).sample(samples, index);
            },
        )
}
