//! Blocks: closures in Clang's layout, copied from the stack to the heap and reference-counted there; and [`Block`], a block that Rust code
//! retains and calls.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::object::{Id, Raw};
use crate::value::{Argument, Encoded};

/// `struct Block_layout`.
#[repr(C)]
struct BlockRaw {
    isa: *const c_void,
    flags: AtomicI32,
    reserved: i32,
    invoke: *const c_void,
    descriptor: *const Descriptor,
}

#[repr(C)]
struct Descriptor {
    reserved: usize,
    size: usize,
    /// Present if the flags say so.
    copy: Option<unsafe extern "C-unwind" fn(*mut c_void, *const c_void)>,
    dispose: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
}

const HAS_COPY_DISPOSE: i32 = 1 << 25;
const NEEDS_FREE: i32 = 1 << 24;
const IS_GLOBAL: i32 = 1 << 28;
/// The reference count is in the lower half of the flags, above bit 0.
const ONE: i32 = 2;
const COUNT: i32 = 0xfffe;

/// Number of blocks on the heap.
pub(crate) static LIVE: AtomicUsize = AtomicUsize::new(0);

macro_rules! block_classes {
    ($($name:ident),*) => {
        $(
            /// The class of some blocks; only its address is used.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)] // the name that Clang gives it
            pub static $name: [usize; 32] = [0; 32];
        )*
    };
}
block_classes!(_NSConcreteStackBlock, _NSConcreteGlobalBlock, _NSConcreteMallocBlock);

fn layout(block: *const BlockRaw) -> Layout {
    // SAFETY: blocks have a descriptor.
    let size = unsafe { (*(*block).descriptor).size };
    Layout::from_size_align(size, 16).expect("blocks are small")
}

/// Copies a block to the heap, or retains one that is there.
///
/// # Safety
/// `block` is a block or null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Block_copy(block: *const c_void) -> *mut c_void {
    let from = block.cast::<BlockRaw>();
    if from.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let (flags, invoke, descriptor) = unsafe { (&(*from).flags, (*from).invoke, (*from).descriptor) };
    let old = flags.load(Ordering::Relaxed);
    if old & IS_GLOBAL != 0 {
        return block.cast_mut();
    }
    if old & NEEDS_FREE != 0 {
        flags.fetch_add(ONE, Ordering::Relaxed);
        return block.cast_mut();
    }
    let layout = layout(from);
    // SAFETY: a block has a size; what is copied is as long.
    let to = unsafe {
        let to = std::alloc::alloc(layout);
        assert!(!to.is_null(), "no memory for a block");
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to, layout.size());
        to.cast::<BlockRaw>()
    };
    let head = BlockRaw {
        isa: (&raw const _NSConcreteMallocBlock).cast(),
        flags: AtomicI32::new((old & !0xffff) | NEEDS_FREE | ONE),
        reserved: 0,
        invoke,
        descriptor,
    };
    // SAFETY: nobody else has the copy; its captures follow the head.
    unsafe { to.write(head) };
    LIVE.fetch_add(1, Ordering::Relaxed);
    if old & HAS_COPY_DISPOSE != 0 {
        // SAFETY: the flag says that it is there; it takes the copy and the original.
        if let Some(copy) = unsafe { (*descriptor).copy } {
            // SAFETY: as above.
            unsafe { copy(to.cast(), block) };
        }
    }
    to.cast()
}

/// Releases a block; the last release frees it.
///
/// # Safety
/// `block` is a block that the caller has copied, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Block_release(block: *const c_void) {
    let block = block.cast::<BlockRaw>().cast_mut();
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let flags = unsafe { &(*block).flags };
    let old = flags.load(Ordering::Relaxed);
    if old & IS_GLOBAL != 0 || old & NEEDS_FREE == 0 {
        return;
    }
    if flags.fetch_sub(ONE, Ordering::AcqRel) & COUNT != ONE {
        return;
    }
    if old & HAS_COPY_DISPOSE != 0 {
        // SAFETY: the flag says that it is there, and nobody has the block any more.
        if let Some(dispose) = unsafe { (*(*block).descriptor).dispose } {
            // SAFETY: as above.
            unsafe { dispose(block.cast()) };
        }
    }
    LIVE.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: it was allocated so by the copy.
    unsafe { std::alloc::dealloc(block.cast(), layout(block)) };
}

/// Retains an object that a block captures.
///
/// # Safety
/// `object` is an object or nil.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Block_object_assign(to: *mut Id, object: Id, _flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { *to = Raw::retain(object) };
}

/// Releases an object that a block captured.
///
/// # Safety
/// As [`_Block_object_assign`], of which this is the inverse.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Block_object_dispose(object: Id, _flags: c_int) {
    // SAFETY: the caller's promise.
    unsafe { Raw::release(object) };
}

/// A block that takes `A`, a tuple of C values, and returns nothing.
pub struct Block<A> {
    raw: *const BlockRaw,
    args: PhantomData<fn(A)>,
}

// SAFETY: blocks that are handed to frameworks that call from threads of their own have to be sendable; who makes one
// promises it.
unsafe impl<A> Send for Block<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Block<A> {}

impl<A> Drop for Block<A> {
    fn drop(&mut self) {
        // SAFETY: copied when it was made.
        unsafe { _Block_release(self.raw.cast()) };
    }
}

/// How a block is passed.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct BlockPointer(*const c_void);

// SAFETY: a pointer.
unsafe impl Encoded for BlockPointer {
    const ENCODING: &'static str = "@?";
}

impl<A> Argument for Option<Block<A>> {
    type Raw = BlockPointer;

    unsafe fn from_raw(raw: BlockPointer) -> Self {
        // SAFETY: the caller passes a block or null.
        let raw = unsafe { _Block_copy(raw.0) }.cast_const().cast();
        (!<*const BlockRaw>::is_null(raw)).then_some(Block { raw, args: PhantomData })
    }
}

macro_rules! call {
    ($($name:ident: $type:ident),*) => {
        impl<$($type: Copy),*> Block<($($type,)*)> {
            /// Call it.
            pub fn call(&self, $($name: $type),*) {
                // SAFETY: who passed the block promised that it takes these values.
                unsafe {
                    let invoke: unsafe extern "C-unwind" fn(*const BlockRaw, $($type),*) =
                        std::mem::transmute((*self.raw).invoke);
                    invoke(self.raw, $($name),*);
                }
            }
        }
    };
}
call!(a: A);
call!(a: A, b: B);
call!(a: A, b: B, c: C);
call!(a: A, b: B, c: C, d: D);
impl Block<()> {
    /// Call it.
    pub fn call(&self) {
        // SAFETY: who passed the block promised that it takes nothing.
        unsafe {
            let invoke: unsafe extern "C-unwind" fn(*const BlockRaw) =
                std::mem::transmute((*self.raw).invoke);
            invoke(self.raw);
        }
    }
}
