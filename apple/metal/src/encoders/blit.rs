//! [`BlitEncoder`]: [`MTLBlitCommandEncoder`](https://developer.apple.com/documentation/metal/mtlblitcommandencoder), for buffers.

use elinvar_objc::{Declaration, NsRange, Ref};

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::pass::Op;
use crate::encoders::command_encoder::{self, Encoding};
use crate::encoders::indirect::IndirectBuffer;
use crate::memory::buffer::Buffer;
use crate::require;
use crate::sync::counter::{Attachments, SampleBuffer};
use crate::values::{Storage, within};

/// How a blit pass is to be.
#[derive(Clone, Default)]
pub struct BlitPassDescriptor(pub Ref<Attachments>);

elinvar_objc::object!(BlitPassDescriptor, c"MTLBlitPassDescriptor");

/// Encodes copies.
pub struct BlitEncoder(Encoding);

elinvar_objc::object!(BlitEncoder, c"ElinvarMTLBlitCommandEncoder");

const CLASS: &str = "MTLBlitCommandEncoder";

/// Whether `length` bytes from `offset` on are within a buffer.
fn fits(buffer: &Buffer, offset: usize, length: usize) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= buffer.store().length())
}

impl BlitEncoder {
    /// Begin a pass.
    pub fn begin(buffer: &Ref<CommandBuffer>, samples: Option<&Attachments>) -> Option<Ref<Self>> {
        Some(Ref::new(Self(Encoding::begin(buffer, CLASS, "blitCommandEncoder:", false, samples)?)))
    }

    fn copy(
        this: &Ref<Self>,
        from: Ref<Buffer>,
        from_at: usize,
        to: Ref<Buffer>,
        to_at: usize,
        length: usize,
    ) {
        const METHOD: &str = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
        require!(length > 0, "-[{CLASS} {METHOD}]: the size is 0");
        let has = from.store().length();
        require!(
            fits(&from, from_at, length),
            "-[{CLASS} {METHOD}]: {length} bytes from {from_at} on are not within the source's {has}"
        );
        let has = to.store().length();
        require!(
            fits(&to, to_at, length),
            "-[{CLASS} {METHOD}]: {length} bytes from {to_at} on are not within the destination's {has}"
        );
        // According to the method's documentation: multiples of 4 bytes on macOS, except on Apple GPUs.
        let step = if this.0.buffer.queue.device.profile.apple_family > 0 { 1 } else { 4 };
        let aligned = [from_at, to_at, length].iter().all(|number| number.is_multiple_of(step));
        require!(aligned, "-[{CLASS} {METHOD}]: {from_at}, {to_at} or {length} is not a multiple of {step}");
        let (from, to) = ((this.0.hold_source(&from), from_at), (this.0.hold(&to), to_at));
        this.0.push(METHOD, Op::Copy { from, to, length });
    }

    fn fill(this: &Ref<Self>, buffer: Ref<Buffer>, range: NsRange, value: u8) {
        const METHOD: &str = "fillBuffer:range:value:";
        let length = buffer.store().length();
        require!(range.length > 0, "-[{CLASS} {METHOD}]: the length is 0");
        require!(within(range, length), "-[{CLASS} {METHOD}]: {range:?} is not within {length} bytes");
        let step = if this.0.buffer.queue.device.profile.apple_family > 0 { 1 } else { 4 };
        let aligned = range.location.is_multiple_of(step) && range.length.is_multiple_of(step);
        require!(aligned, "-[{CLASS} {METHOD}]: {range:?} has a number that is not a multiple of {step}");
        this.0.push(METHOD, Op::Fill { to: this.0.hold(&buffer), range, value });
    }

    fn synchronize(this: &Ref<Self>, buffer: Ref<Buffer>) {
        const METHOD: &str = "synchronizeResource:";
        let managed = buffer.store().storage() == Storage::Managed;
        require!(managed, "-[{CLASS} {METHOD}]: the buffer is not managed");
        this.0.push(METHOD, Op::Synchronize(this.0.hold(&buffer)));
    }

    fn resolve(this: &Ref<Self>, samples: Ref<SampleBuffer>, range: NsRange, to: Ref<Buffer>, offset: usize) {
        const METHOD: &str = "resolveCounters:inRange:destinationBuffer:destinationOffset:";
        let count = samples.count();
        require!(within(range, count), "-[{CLASS} {METHOD}]: {range:?} is not within {count} samples");
        let (bytes, has) = (range.length * 8, to.store().length());
        require!(
            fits(&to, offset, bytes),
            "-[{CLASS} {METHOD}]: {bytes} bytes from {offset} on are not within {has}"
        );
        require!(offset.is_multiple_of(8), "-[{CLASS} {METHOD}]: the offset {offset} is not a multiple of 8");
        let to = this.0.hold(&to);
        this.0.push(METHOD, Op::Resolve { samples, range, to, offset });
    }

    fn reset(this: &Ref<Self>, commands: Ref<IndirectBuffer>, range: NsRange) {
        const METHOD: &str = "resetCommandsInBuffer:withRange:";
        let count = commands.count();
        require!(within(range, count), "-[{CLASS} {METHOD}]: {range:?} is not within {count} commands");
        this.0.push(METHOD, Op::ResetIndirect(commands, range));
    }

    fn copy_indirect(
        this: &Ref<Self>,
        from: Ref<IndirectBuffer>,
        range: NsRange,
        to: Ref<IndirectBuffer>,
        at: usize,
    ) {
        const METHOD: &str = "copyIndirectCommandBuffer:sourceRange:destination:destinationIndex:";
        let (has, room) = (from.count(), to.count());
        require!(within(range, has), "-[{CLASS} {METHOD}]: {range:?} is not within {has} commands");
        let target = NsRange { location: at, length: range.length };
        require!(within(target, room), "-[{CLASS} {METHOD}]: {target:?} is not within {room} commands");
        this.0.push(METHOD, Op::CopyIndirect { from, range, to, at });
    }

    fn optimize(this: &Ref<Self>, commands: Ref<IndirectBuffer>, range: NsRange) {
        const METHOD: &str = "optimizeIndirectCommandBuffer:withRange:";
        let count = commands.count();
        require!(within(range, count), "-[{CLASS} {METHOD}]: {range:?} is not within {count} commands");
        this.0.is_open(METHOD);
    }
}

pub fn register() {
    Declaration::<BlitPassDescriptor>::new()
        .makes_default()
        .copies()
        .class_method("blitPassDescriptor", || Ref::new(BlitPassDescriptor::default()))
        .method("sampleBufferAttachments", |this: &Ref<BlitPassDescriptor>| this.0.clone())
        .register();
    let encoder = Declaration::<BlitEncoder>::new().follows(c"MTLBlitCommandEncoder");
    command_encoder::declare(encoder, |encoder: &BlitEncoder| &encoder.0)
        .method("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", BlitEncoder::copy)
        .method("fillBuffer:range:value:", BlitEncoder::fill)
        .method("synchronizeResource:", BlitEncoder::synchronize)
        .method("resolveCounters:inRange:destinationBuffer:destinationOffset:", BlitEncoder::resolve)
        .method("resetCommandsInBuffer:withRange:", BlitEncoder::reset)
        .method(
            "copyIndirectCommandBuffer:sourceRange:destination:destinationIndex:",
            BlitEncoder::copy_indirect,
        )
        .method("optimizeIndirectCommandBuffer:withRange:", BlitEncoder::optimize)
        .register();
}
