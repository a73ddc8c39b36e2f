//! Autorelease pools: a stack of objects per thread, with a mark at the start of each pool.
//!
//! Without a pool, objects are kept until the thread ends and are counted as errors, because a thread may live as long as the
//! program.

use std::cell::RefCell;

use crate::object::{Id, Raw};
use crate::watch;

/// Autoreleased objects of a thread.
#[derive(Default)]
struct Stack {
    objects: Vec<Id>,
    /// Number of objects at the start of each pool.
    marks: Vec<usize>,
}

impl Drop for Stack {
    fn drop(&mut self) {
        for object in self.objects.drain(..) {
            // SAFETY: the stack owns a reference to each.
            unsafe { Raw::release(object) };
        }
    }
}

thread_local! {
    static STACK: RefCell<Stack> = RefCell::default();
}

/// Pushes a pool. Returns its token.
pub(crate) fn push() -> usize {
    STACK.with_borrow_mut(|stack| {
        stack.marks.push(stack.objects.len());
        stack.marks.len()
    })
}

/// Pops a pool and those pushed after it.
pub(crate) fn pop(pool: usize) {
    // Releasing may autorelease further objects, and push and pop pools.
    while let Some(object) = STACK.with_borrow_mut(|stack| {
        let mark = pool.checked_sub(1).and_then(|at| stack.marks.get(at));
        let Some(&mark) = mark else {
            watch::fatal(format_args!("an autorelease pool was ended twice, or on another thread"));
        };
        if stack.objects.len() > mark {
            return stack.objects.pop();
        }
        stack.marks.truncate(pool - 1);
        None
    }) {
        // SAFETY: the stack owned a reference.
        unsafe { Raw::release(object) };
    }
}

/// Adds a reference to the current pool.
pub(crate) fn put_off(object: Id) {
    let kept = STACK.try_with(|stack| {
        let mut stack = stack.borrow_mut();
        if stack.marks.is_empty() {
            // SAFETY: the caller owns a reference, so it is there.
            watch::without_pool(unsafe { Raw::class(object) });
        }
        stack.objects.push(object);
    });
    if kept.is_err() {
        // The thread is ending, so no pool can be popped on it any more.
        // SAFETY: the caller gave us its reference.
        unsafe { Raw::release(object) };
    }
}

/// Runs `f` in a new pool.
pub fn with_pool<T>(f: impl FnOnce() -> T) -> T {
    struct Pool(usize);
    impl Drop for Pool {
        fn drop(&mut self) {
            pop(self.0);
        }
    }
    let _pool = Pool(push());
    f()
}
