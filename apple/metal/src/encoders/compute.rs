//! [`ComputeEncoder`]: [`MTLComputeCommandEncoder`](https://developer.apple.com/documentation/metal/mtlcomputecommandencoder).
//!
//! A concurrent encoder runs the dispatches between two barriers in reverse order, one of the permitted orders, to expose missing barriers. A
//! barrier for some resources applies to all.

use std::ffi::c_void;

use elinvar_objc::{Declaration, Id, NsRange, Object, Property, Ref};
use parking_lot::Mutex;

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::pass::{ExecuteRange, Grid, Op};
use crate::encoders::bindings::{Bindings, Bound, PLACES};
use crate::encoders::command_encoder::{self, Encoding};
use crate::encoders::indirect::IndirectBuffer;
use crate::library::pipeline::Pipeline;
use crate::memory::buffer::Buffer;
use crate::memory::heap::Heap;
use crate::require;
use crate::sync::counter::Attachments;
use crate::values::{Size, within};

/// Maximum length for `setBytes`.
const MAX_BYTES: usize = 4096;

/// How a compute pass is to be.
#[derive(Clone, Default)]
pub struct ComputePassDescriptor {
    pub kind: Property<usize>,
    pub samples: Ref<Attachments>,
}

elinvar_objc::object!(ComputePassDescriptor, c"MTLComputePassDescriptor");

/// Encodes dispatches.
pub struct ComputeEncoder {
    encoding: Encoding,
    kind: usize,
    bindings: Mutex<Bindings>,
}

elinvar_objc::object!(ComputeEncoder, c"ElinvarMTLComputeCommandEncoder");

/// `MTLDispatchTypeConcurrent`.
const CONCURRENT: usize = 1;

const CLASS: &str = "MTLComputeCommandEncoder";

impl ComputeEncoder {
    /// Begin a pass.
    pub fn begin(
        buffer: &Ref<CommandBuffer>,
        kind: usize,
        samples: Option<&Attachments>,
    ) -> Option<Ref<Self>> {
        let encoding = Encoding::begin(buffer, CLASS, "computeCommandEncoder:", kind == CONCURRENT, samples)?;
        Some(Ref::new(Self { encoding, kind, bindings: Mutex::default() }))
    }

    fn set_pipeline(this: &Ref<Self>, pipeline: Ref<Pipeline>) {
        if this.encoding.is_open("setComputePipelineState:") {
            this.bindings.lock().pipeline = Some(pipeline);
        }
    }

    fn check(&self, method: &str, index: usize) -> bool {
        require!(index < PLACES, "-[{CLASS} {method}]: the index {index} is over 30");
        self.encoding.is_open(method)
    }

    fn set_bytes(this: &Ref<Self>, bytes: *const c_void, length: usize, index: usize) {
        const METHOD: &str = "setBytes:length:atIndex:";
        if !this.check(METHOD, index) {
            return;
        }
        require!(!bytes.is_null(), "-[{CLASS} {METHOD}]: the bytes are null");
        require!(length > 0, "-[{CLASS} {METHOD}]: the length is 0");
        require!(length <= MAX_BYTES, "-[{CLASS} {METHOD}]: {length} bytes: the limit is {MAX_BYTES}");
        // SAFETY: the program passes that many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        this.bindings.lock().places[index] = Some(Bound::Bytes(bytes.into()));
    }

    fn set_buffer(this: &Ref<Self>, buffer: Option<Ref<Buffer>>, offset: usize, index: usize) {
        const METHOD: &str = "setBuffer:offset:atIndex:";
        if !this.check(METHOD, index) {
            return;
        }
        let length = buffer.as_ref().map_or(usize::MAX, |buffer| buffer.store().length());
        require!(offset < length, "-[{CLASS} {METHOD}]: the offset {offset} is not within {length} bytes");
        let bound = buffer.map(|buffer| Bound::Buffer(this.encoding.hold(&buffer), offset, length));
        this.bindings.lock().places[index] = bound;
    }

    fn set_offset(this: &Ref<Self>, offset: usize, index: usize) {
        const METHOD: &str = "setBufferOffset:atIndex:";
        if !this.check(METHOD, index) {
            return;
        }
        let problem = match &mut this.bindings.lock().places[index] {
            Some(Bound::Buffer(_, own, length)) if offset < *length => {
                *own = offset;
                None
            }
            Some(Bound::Buffer(_, _, length)) => {
                Some(format!("the offset {offset} is not within {length} bytes"))
            }
            _ => Some(format!("no buffer is set at index {index}")),
        };
        require!(problem.is_none(), "-[{CLASS} {METHOD}]: {}", problem.unwrap_or_default());
    }

    fn set_buffers(this: &Ref<Self>, buffers: *const Id, offsets: *const usize, range: NsRange) {
        const METHOD: &str = "setBuffers:offsets:withRange:";
        require!(within(range, PLACES), "-[{CLASS} {METHOD}]: {range:?} goes over 30");
        for at in 0..range.length {
            // SAFETY: the program passes so many buffers, some of them nil, and so many offsets.
            let (buffer, offset) = unsafe { (Object::from_lent(*buffers.add(at)), *offsets.add(at)) };
            Self::set_buffer(this, buffer.and_then(|buffer| buffer.downcast()), offset, range.location + at);
        }
    }

    fn set_threadgroup(this: &Ref<Self>, length: usize, index: usize) {
        const METHOD: &str = "setThreadgroupMemoryLength:atIndex:";
        if !this.check(METHOD, index) {
            return;
        }
        require!(length.is_multiple_of(16), "-[{CLASS} {METHOD}]: {length} is not a multiple of 16");
        let limit = this.encoding.buffer.queue.device.profile.threadgroup_memory;
        require!(length <= limit, "-[{CLASS} {METHOD}]: {length} bytes: the limit is {limit}");
        this.bindings.lock().threadgroup[index] = length;
    }

    fn dispatch(&self, method: &str, grid: Grid, group: Size) {
        let full = format!("-[{CLASS} {method}]:");
        if !self.encoding.is_open(method) {
            return;
        }
        let dispatch = self.bindings.lock().dispatch(&self.encoding.buffer.queue.device, &full, grid, group);
        if let Some(dispatch) = dispatch {
            self.encoding.push(method, Op::Dispatch(dispatch));
        }
    }

    fn dispatch_indirect(this: &Ref<Self>, buffer: Ref<Buffer>, offset: usize, group: Size) {
        const METHOD: &str =
            "dispatchThreadgroupsWithIndirectBuffer:indirectBufferOffset:threadsPerThreadgroup:";
        let length = buffer.store().length();
        let fits = offset.checked_add(12).is_some_and(|end| end <= length);
        require!(fits, "-[{CLASS} {METHOD}]: 12 bytes from {offset} on are not within {length} bytes");
        require!(offset.is_multiple_of(4), "-[{CLASS} {METHOD}]: the offset {offset} is not a multiple of 4");
        this.dispatch(METHOD, Grid::Indirect(this.encoding.hold(&buffer), offset), group);
    }

    fn execute(this: &Ref<Self>, commands: Ref<IndirectBuffer>, range: NsRange) {
        const METHOD: &str = "executeCommandsInBuffer:withRange:";
        let count = commands.count();
        require!(within(range, count), "-[{CLASS} {METHOD}]: {range:?} is not within {count} commands");
        this.push_execution(METHOD, commands, ExecuteRange::Given(range));
    }

    fn execute_indirect(this: &Ref<Self>, commands: Ref<IndirectBuffer>, buffer: Ref<Buffer>, offset: usize) {
        const METHOD: &str = "executeCommandsInBuffer:indirectBuffer:indirectBufferOffset:";
        let length = buffer.store().length();
        let fits = offset.checked_add(8).is_some_and(|end| end <= length);
        require!(fits, "-[{CLASS} {METHOD}]: 8 bytes from {offset} on are not within {length} bytes");
        let range = ExecuteRange::InBuffer(this.encoding.hold(&buffer), offset);
        this.push_execution(METHOD, commands, range);
    }

    fn push_execution(&self, method: &str, commands: Ref<IndirectBuffer>, range: ExecuteRange) {
        let inherited = Box::new(self.bindings.lock().clone());
        self.encoding.push(method, Op::Execute { commands, range, inherited });
    }

    fn use_list(this: &Ref<Self>, method: &str, objects: *const Id, count: usize) {
        require!(count == 0 || !objects.is_null(), "-[{CLASS} {method}]: the list is null");
        this.encoding.is_open(method);
    }
}

pub fn register() {
    Declaration::<ComputePassDescriptor>::new()
        .makes_default()
        .copies()
        .class_method("computePassDescriptor", || Ref::new(ComputePassDescriptor::default()))
        .property("dispatchType", |d: &ComputePassDescriptor| &d.kind)
        .method("sampleBufferAttachments", |this: &Ref<ComputePassDescriptor>| this.samples.clone())
        .register();
    let encoder = Declaration::<ComputeEncoder>::new().follows(c"MTLComputeCommandEncoder");
    let encoder = command_encoder::declare(encoder, |encoder: &ComputeEncoder| &encoder.encoding)
        .method("dispatchType", |this: &Ref<ComputeEncoder>| this.kind)
        .method("setComputePipelineState:", ComputeEncoder::set_pipeline)
        .method("setBytes:length:atIndex:", ComputeEncoder::set_bytes)
        .method("setBuffer:offset:atIndex:", ComputeEncoder::set_buffer)
        .method("setBufferOffset:atIndex:", ComputeEncoder::set_offset)
        .method("setBuffers:offsets:withRange:", ComputeEncoder::set_buffers)
        .method("setThreadgroupMemoryLength:atIndex:", ComputeEncoder::set_threadgroup)
        .method(
            "dispatchThreadgroups:threadsPerThreadgroup:",
            |this: &Ref<ComputeEncoder>, groups: Size, group: Size| {
                this.dispatch("dispatchThreadgroups:threadsPerThreadgroup:", Grid::Groups(groups), group);
            },
        )
        .method(
            "dispatchThreads:threadsPerThreadgroup:",
            |this: &Ref<ComputeEncoder>, threads: Size, group: Size| {
                this.dispatch("dispatchThreads:threadsPerThreadgroup:", Grid::Threads(threads), group);
            },
        )
        .method(
            "dispatchThreadgroupsWithIndirectBuffer:indirectBufferOffset:threadsPerThreadgroup:",
            ComputeEncoder::dispatch_indirect,
        )
        .method("executeCommandsInBuffer:withRange:", ComputeEncoder::execute)
        .method(
            "executeCommandsInBuffer:indirectBuffer:indirectBufferOffset:",
            ComputeEncoder::execute_indirect,
        );
    residency_and_barriers(encoder).register();
}

/// All memory is resident; residency calls only validate their arguments.
fn residency_and_barriers(encoder: Declaration<ComputeEncoder>) -> Declaration<ComputeEncoder> {
    encoder
        .method("memoryBarrierWithScope:", |this: &Ref<ComputeEncoder>, scope: usize| {
            require!(
                scope != 0 && scope < 8,
                "-[{CLASS} memoryBarrierWithScope:]: there is no scope {scope}"
            );
            this.encoding.push("memoryBarrierWithScope:", Op::Barrier);
        })
        .method(
            "memoryBarrierWithResources:count:",
            |this: &Ref<ComputeEncoder>, list: *const Id, count: usize| {
                ComputeEncoder::use_list(this, "memoryBarrierWithResources:count:", list, count);
                this.encoding.push("memoryBarrierWithResources:count:", Op::Barrier);
            },
        )
        .method("useResource:usage:", |this: &Ref<ComputeEncoder>, _resource: Object, usage: usize| {
            require!(usage != 0, "-[{CLASS} useResource:usage:]: the usage is 0");
            this.encoding.is_open("useResource:usage:");
        })
        .method(
            "useResources:count:usage:",
            |this: &Ref<ComputeEncoder>, list: *const Id, count: usize, usage: usize| {
                require!(usage != 0, "-[{CLASS} useResources:count:usage:]: the usage is 0");
                ComputeEncoder::use_list(this, "useResources:count:usage:", list, count);
            },
        )
        .method("useHeap:", |this: &Ref<ComputeEncoder>, _heap: Ref<Heap>| {
            this.encoding.is_open("useHeap:");
        })
        .method("useHeaps:count:", |this: &Ref<ComputeEncoder>, list: *const Id, count: usize| {
            ComputeEncoder::use_list(this, "useHeaps:count:", list, count);
        })
}
