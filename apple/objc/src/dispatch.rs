//! Serial queues of Grand Central Dispatch, as far as event listeners use them: tasks run in order on a thread of the queue
//! ([Dispatch](https://developer.apple.com/documentation/dispatch)). The global queue is also a serial queue here.

use std::ffi::{c_char, c_void};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

use crate::block::Block;
use crate::busy::BUSY;
use crate::declare::Declaration;
use crate::object::{Id, Raw};
use crate::pool::with_pool;
use crate::reference::Ref;
use crate::value::Argument;

type Work = Box<dyn FnOnce() + Send>;

/// A queue. Its thread ends when the queue was released and all tasks are done.
pub struct DispatchQueue(Sender<Work>);

crate::object!(DispatchQueue, c"OS_dispatch_queue");

impl DispatchQueue {
    /// A new queue.
    pub fn new() -> Ref<Self> {
        let (sender, work) = channel::<Work>();
        std::thread::spawn(move || {
            for work in work {
                with_pool(work);
                BUSY.end();
            }
        });
        Ref::new(Self(sender))
    }

    /// The global queue.
    pub fn global() -> Ref<Self> {
        static GLOBAL: LazyLock<Ref<DispatchQueue>> = LazyLock::new(DispatchQueue::new);
        GLOBAL.clone()
    }

    /// Adds a task.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        BUSY.begin();
        // The thread lives as long as the sender.
        let _sent = self.0.send(Box::new(work));
    }
}

pub(crate) fn register() {
    Declaration::<DispatchQueue>::new().follows(c"OS_dispatch_queue").register();
}

#[unsafe(no_mangle)]
extern "C" fn dispatch_queue_create(_label: *const c_char, _attributes: *const c_void) -> Id {
    DispatchQueue::new().into_object().into_owned()
}

#[unsafe(no_mangle)]
extern "C" fn dispatch_get_global_queue(_identifier: isize, _flags: usize) -> Id {
    DispatchQueue::global().id()
}

/// # Safety
/// `queue` is a queue and `block` a block that takes nothing.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_async(queue: Id, block: <Option<Block<()>> as Argument>::Raw) {
    // SAFETY: the caller's promise.
    let (queue, block) =
        unsafe { (Ref::<DispatchQueue>::from_raw(queue), Option::<Block<()>>::from_raw(block)) };
    if let Some(block) = block {
        queue.run(move || block.call());
    }
}

/// What a function is called with.
struct Context(*mut c_void);

// SAFETY: who hands it over promises that it may be used on the queue's thread.
unsafe impl Send for Context {}

impl Context {
    fn pass_to(self, function: extern "C" fn(*mut c_void)) {
        function(self.0);
    }
}

/// # Safety
/// `queue` is a queue, and `function` may be called with `context` on its thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_async_f(queue: Id, context: *mut c_void, function: extern "C" fn(*mut c_void)) {
    let context = Context(context);
    // SAFETY: the caller's promise.
    unsafe { Ref::<DispatchQueue>::from_raw(queue) }.run(move || context.pass_to(function));
}

/// # Safety
/// As [`dispatch_async_f`].
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_sync_f(queue: Id, context: *mut c_void, function: extern "C" fn(*mut c_void)) {
    let (done, wait) = channel();
    let context = Context(context);
    // SAFETY: the caller's promise.
    unsafe { Ref::<DispatchQueue>::from_raw(queue) }.run(move || {
        context.pass_to(function);
        let _sent = done.send(());
    });
    let _done = wait.recv();
}

/// # Safety
/// `object` is an object.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_retain(object: Id) {
    // SAFETY: the caller's promise.
    unsafe { Raw::retain(object) };
}

/// # Safety
/// `object` is an object to which the caller owns a reference.
#[unsafe(no_mangle)]
unsafe extern "C" fn dispatch_release(object: Id) {
    // SAFETY: the caller's promise.
    unsafe { Raw::release(object) };
}
