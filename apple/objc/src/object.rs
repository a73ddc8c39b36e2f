//! Objects in memory: header, class pointer, instance variables; and reference counts.
//!
//! Objects of the stand-in's own classes hold a Rust value in the header, set once at initialization. The memory of a freed object is kept for
//! a while, with a class that responds to nothing, so that uses after free are detected.

use std::alloc::Layout;
use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

use crate::class::Class;
use crate::selector::Selector;
use crate::watch::fatal;

/// What an Objective-C object pointer points to.
#[repr(C)]
pub struct Raw {
    isa: AtomicPtr<Class>,
}

/// An object, or nil.
pub type Id = *mut Raw;

/// Contents of an object of the stand-in's classes.
pub(crate) type Payload = Box<dyn Any + Send + Sync>;

#[repr(C, align(16))]
struct Header {
    count: AtomicUsize,
    /// The former class of a freed object.
    former: AtomicPtr<Class>,
    payload: UnsafeCell<Option<Payload>>,
    bytes: usize,
}

const HEADER: usize = size_of::<Header>();

/// Number of freed objects that are kept.
const KEPT: usize = 1 << 15;

static FREED: LazyLock<Mutex<VecDeque<usize>>> = LazyLock::new(Mutex::default);
static FREED_CLASS: LazyLock<&'static Class> =
    LazyLock::new(|| Class::create(c"(freed)", None).expect("no other has this name"));

impl Raw {
    fn header(object: Id) -> *mut Header {
        object.wrapping_byte_sub(HEADER).cast()
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(HEADER + bytes, align_of::<Header>()).expect("instances are small")
    }

    /// Allocates an object with a reference count of 1 and no contents.
    pub(crate) fn allocate(class: &'static Class) -> Id {
        let bytes = class.instance_size();
        // SAFETY: the header has a size.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        assert!(!start.is_null(), "no memory for an object");
        let header = Header {
            count: AtomicUsize::new(1),
            former: AtomicPtr::default(),
            payload: UnsafeCell::new(None),
            bytes,
        };
        // SAFETY: the memory is for a header and an object behind it, and nobody else has it.
        let object = unsafe {
            start.cast::<Header>().write(header);
            start.add(HEADER).cast::<Self>()
        };
        let isa = AtomicPtr::new(std::ptr::from_ref(class).cast_mut());
        // SAFETY: as above.
        unsafe { object.write(Self { isa }) };
        class.live.fetch_add(1, Ordering::Relaxed);
        object
    }

    /// # Safety
    /// `object` is an object or a class.
    pub(crate) unsafe fn class(object: Id) -> &'static Class {
        // SAFETY: the caller's promise; classes stay.
        unsafe { &*(*object).isa.load(Ordering::Acquire) }
    }

    /// The former class of an object, if its class says that it was freed.
    pub(crate) fn freed(object: Id, class: &Class) -> Option<String> {
        if !std::ptr::eq(class, *FREED_CLASS) {
            return None;
        }
        // SAFETY: the memory of freed objects is kept as long as they have this class.
        let former = unsafe { &*(*Self::header(object)).former.load(Ordering::Acquire) };
        Some(former.name().to_string_lossy().into_owned())
    }

    /// Sets the contents, which must not be set yet.
    ///
    /// # Safety
    /// `object` is one of the stand-in's, and not shared yet.
    pub(crate) unsafe fn fill(object: Id, payload: Payload) {
        // SAFETY: the caller's promise.
        let slot = unsafe { &mut *(*Self::header(object)).payload.get() };
        if slot.replace(payload).is_some() {
            fatal(format_args!("an object was initialized twice"));
        }
    }

    /// The contents.
    ///
    /// # Safety
    /// `object` is an object, not a class, and lives for `'a`; its contents are not set concurrently.
    pub(crate) unsafe fn payload<'a>(object: Id) -> Option<&'a (dyn Any + Send + Sync)> {
        // SAFETY: the caller's promise.
        unsafe { (*(*Self::header(object)).payload.get()).as_deref() }
    }

    /// # Safety
    /// `object` is nil, an object or a class.
    pub(crate) unsafe fn retain(object: Id) -> Id {
        // SAFETY: the caller's promise.
        if let Some(class) = unsafe { Self::counted(object) } {
            if let Some(former) = Self::freed(object, class) {
                fatal(format_args!("a freed object of class {former} was retained"));
            }
            // SAFETY: an object has a header.
            unsafe { (*Self::header(object)).count.fetch_add(1, Ordering::Relaxed) };
        }
        object
    }

    /// # Safety
    /// `object` is nil, an object or a class, and the caller owns a reference to it.
    pub(crate) unsafe fn release(object: Id) {
        // SAFETY: the caller's promise.
        let Some(class) = (unsafe { Self::counted(object) }) else { return };
        if let Some(former) = Self::freed(object, class) {
            fatal(format_args!("an object of class {former} was released more often than retained"));
        }
        // SAFETY: an object has a header.
        if unsafe { (*Self::header(object)).count.fetch_sub(1, Ordering::Release) } != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // A class of the program frees its variables, and calls this through its superclass.
        let dealloc = Selector::of(c"dealloc");
        match class.find(dealloc) {
            Some(method) => {
                // SAFETY: `dealloc` takes nothing and returns nothing.
                let free: unsafe extern "C" fn(Id, Selector) = unsafe { std::mem::transmute(method.imp) };
                // SAFETY: the last reference has gone.
                unsafe { free(object, dealloc) };
            }
            // SAFETY: as above.
            None => unsafe { Self::free(object) },
        }
    }

    /// The reference count.
    ///
    /// # Safety
    /// `object` is an object or a class.
    pub(crate) unsafe fn count(object: Id) -> usize {
        // SAFETY: the caller's promise; an object has a header.
        unsafe {
            Self::counted(object)
                .map_or(usize::MAX, |_| (*Self::header(object)).count.load(Ordering::Relaxed))
        }
    }

    /// The class, if `object` is neither nil nor a class; those are not counted.
    unsafe fn counted(object: Id) -> Option<&'static Class> {
        if object.is_null() {
            return None;
        }
        // SAFETY: the caller of the caller promises an object or a class.
        let class = unsafe { Self::class(object) };
        (!class.is_meta()).then_some(class)
    }

    /// Drops the contents of an object, and keeps its memory for a while.
    ///
    /// # Safety
    /// There are no references to it.
    pub(crate) unsafe fn free(object: Id) {
        // SAFETY: the caller's promise.
        let class = unsafe { Self::class(object) };
        let header = Self::header(object);
        // SAFETY: as above.
        let payload = unsafe { (*(*header).payload.get()).take() };
        class.live.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe {
            (*header).former.store(std::ptr::from_ref(class).cast_mut(), Ordering::Release);
            (*object).isa.store(std::ptr::from_ref(*FREED_CLASS).cast_mut(), Ordering::Release);
        }
        drop(payload);
        let mut freed = FREED.lock();
        freed.push_back(object.addr());
        if freed.len() > KEPT
            && let Some(oldest) = freed.pop_front()
        {
            drop(freed);
            let oldest = object.with_addr(oldest);
            let header = Self::header(oldest);
            // SAFETY: it was allocated with this layout, and nothing knows of it any more.
            unsafe { std::alloc::dealloc(header.cast(), Self::layout((*header).bytes)) };
        }
    }
}
