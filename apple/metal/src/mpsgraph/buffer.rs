//! [`ContinuedBuffer`]: [`MPSCommandBuffer`](https://developer.apple.com/documentation/metalperformanceshaders/mpscommandbuffer), which
//! wraps a command buffer, and goes on in another one after it has committed it. It may wrap another one of its kind, to which it forwards
//! `commitAndContinue`. It does not forward the methods of `MTLCommandBuffer`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use elinvar_objc::{Declaration, Id, Object, Ref, Selector};
use parking_lot::Mutex;

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::queue::Queue;
use crate::require;

/// What MPSGraph does behind each graph: 0 for nothing, 1 for `commitAndContinue`, 2 for the same without a message, so that a subclass does
/// not see it.
static COMMITS: AtomicU32 = AtomicU32::new(1);

/// Sets what MPSGraph does behind each graph that it has encoded: 0 for nothing, 1 for `commitAndContinue` (the default), 2 for its effect in
/// spite of a subclass that overrides it.
#[unsafe(no_mangle)]
extern "C" fn elinvar_apple_graphs_commit(how: u32) {
    COMMITS.store(how, Ordering::Relaxed);
}

/// What it wraps.
#[derive(Clone)]
enum Wrapped {
    Root(Ref<CommandBuffer>),
    Other(Object),
}

/// `MPSCommandBuffer`.
pub struct ContinuedBuffer(Mutex<Wrapped>);

elinvar_objc::object!(ContinuedBuffer, c"MPSCommandBuffer");

impl ContinuedBuffer {
    fn around(buffer: Object) -> Option<Self> {
        let root = buffer.downcast::<CommandBuffer>().map(Wrapped::Root);
        let known = root.is_some() || buffer.downcast::<Self>().is_some();
        require!(known, "-[MPSCommandBuffer initWithCommandBuffer:]: the object is no command buffer");
        Some(Self(Mutex::new(root.unwrap_or(Wrapped::Other(buffer)))))
    }

    /// The command buffer that is encoded to.
    pub fn root(&self) -> Option<Ref<CommandBuffer>> {
        let wrapped = self.0.lock().clone();
        match wrapped {
            Wrapped::Root(root) => Some(root),
            Wrapped::Other(other) => other.downcast::<Self>()?.root(),
        }
    }

    fn wrapped(this: &Ref<Self>) -> Object {
        match &*this.0.lock() {
            Wrapped::Root(root) => root.object().clone(),
            Wrapped::Other(other) => other.clone(),
        }
    }

    /// Commits the command buffer, and goes on in a new one of its queue, which retains its resources. That it has no error options is a guess.
    fn commit_and_continue(this: &Ref<Self>) {
        let wrapped = this.0.lock().clone();
        match wrapped {
            Wrapped::Root(root) => {
                CommandBuffer::commit(&root);
                if let Some(next) = Queue::buffer(&root.queue, true, 0, None) {
                    *this.0.lock() = Wrapped::Root(next);
                }
            }
            Wrapped::Other(other) => send(&other),
        }
    }

    /// What MPSGraph does behind a graph.
    pub fn after_a_graph(this: &Ref<Self>) {
        match COMMITS.load(Ordering::Relaxed) {
            0 => {}
            1 => send(this.object()),
            _ => Self::commit_and_continue(this),
        }
    }
}

/// Sends `commitAndContinue`.
fn send(object: &Object) {
    let selector = Selector::of(c"commitAndContinue");
    if let Some(imp) = object.implementation(selector) {
        // SAFETY: the method takes nothing and returns nothing.
        let imp = unsafe { std::mem::transmute::<*const c_void, extern "C" fn(Id, Selector)>(imp) };
        imp(object.id(), selector);
    }
}

pub fn register() {
    Declaration::<ContinuedBuffer>::new()
        .follows(c"MTLCommandBuffer")
        .init("initWithCommandBuffer:", ContinuedBuffer::around)
        .class_method("commandBufferWithCommandBuffer:", |buffer: Object| {
            ContinuedBuffer::around(buffer).map(Ref::new)
        })
        .method("commandBuffer", ContinuedBuffer::wrapped)
        .method("rootCommandBuffer", |this: &Ref<ContinuedBuffer>| this.root())
        .method("commitAndContinue", ContinuedBuffer::commit_and_continue)
        .register();
}
