//! Message sending: finds the method in the receiver's class and jumps to it, with unchanged arguments.
//!
//! Each class has a cache, indexed by the middle bits of the selector's address. An entry is written once, address first and selector last,
//! and read in the opposite order, which x86-64 preserves; a reader that finds its selector therefore finds its method. Methods without an
//! entry are looked up each time.
//!
//! A message to nil returns zero. Uses the System V calling convention of x86-64, which macOS uses as well.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::class::Class;
use crate::object::{Id, Raw};
use crate::selector::Selector;
use crate::watch::fatal;

/// Number of cache entries, a power of two.
const PLACES: usize = 512;
/// Position of the index in a selector's address. Entries have 16 bytes, as have selectors.
const MASK: usize = (PLACES - 1) * 16;

#[repr(C)]
struct Place {
    selector: AtomicUsize,
    imp: AtomicPtr<c_void>,
}

/// The method cache of a class.
#[repr(C)]
pub(crate) struct Cache([Place; PLACES]);

/// The cache of a class without lookups.
pub(crate) static EMPTY: Cache = Cache::new();

/// Whether a method was ever looked up in a class.
pub(crate) static ANY: AtomicBool = AtomicBool::new(false);

impl Cache {
    const fn new() -> Self {
        Self(
            [const { Place { selector: AtomicUsize::new(0), imp: AtomicPtr::new(std::ptr::null_mut()) } };
                PLACES],
        )
    }

    fn note(class: &Class, selector: Selector, imp: *const c_void) {
        ANY.store(true, Ordering::Release);
        let mut cache = class.cache.load(Ordering::Acquire);
        if std::ptr::eq(cache, &raw const EMPTY) {
            let new = Box::into_raw(Box::new(Self::new()));
            let swapped = class.cache.compare_exchange(cache, new, Ordering::AcqRel, Ordering::Acquire);
            cache = match swapped {
                Ok(_) => new,
                Err(other) => {
                    // SAFETY: made above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    other
                }
            };
            if std::ptr::eq(cache, &raw const EMPTY) {
                return;
            }
        }
        let address = selector.name().as_ptr().addr();
        // SAFETY: caches are never freed.
        let place = unsafe { &(*cache).0[(address & MASK) / 16] };
        let free = place.imp.compare_exchange(
            std::ptr::null_mut(),
            imp.cast_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if free.is_ok() {
            place.selector.store(address, Ordering::Release);
        }
    }
}

fn find(class: &Class, selector: Selector) -> *const c_void {
    match class.find(selector) {
        Some(method) => method.imp,
        None => fatal(format_args!(
            "{}[{} {selector}]: unrecognized selector",
            if class.is_meta() { '+' } else { '-' },
            class.name().to_string_lossy()
        )),
    }
}

/// Looks up the implementation for a message that is not cached.
///
/// # Safety
/// `receiver` is an object or a class.
unsafe extern "C" fn look_up(receiver: Id, selector: Selector) -> *const c_void {
    // SAFETY: the caller's promise.
    let class = unsafe { Raw::class(receiver) };
    if let Some(former) = Raw::freed(receiver, class) {
        fatal(format_args!("`{selector}` was sent to a freed object of class {former}"));
    }
    let imp = find(class, selector);
    Cache::note(class, selector, imp);
    imp
}

/// `struct objc_super`.
#[repr(C)]
struct Super {
    receiver: Id,
    above: *const Class,
}

/// Looks up the implementation for a message to the superclass.
///
/// # Safety
/// `to` is valid and names a class.
unsafe extern "C" fn look_up_above(to: *const Super, selector: Selector) -> *const c_void {
    // SAFETY: the caller's promise.
    find(unsafe { &*(*to).above }, selector)
}

/// Slow path: saves all argument registers, looks up the method, restores them, jumps.
macro_rules! ask {
    ($object:literal, $selector:literal, $then:literal) => {
        concat!(
            "push rbp\nmov rbp, rsp\nsub rsp, 0xc0\n",
            "mov [rsp], rdi\nmov [rsp+0x08], rsi\nmov [rsp+0x10], rdx\nmov [rsp+0x18], rcx\n",
            "mov [rsp+0x20], r8\nmov [rsp+0x28], r9\nmov [rsp+0x30], rax\n",
            "movaps [rsp+0x40], xmm0\nmovaps [rsp+0x50], xmm1\nmovaps [rsp+0x60], xmm2\nmovaps [rsp+0x70], xmm3\n",
            "movaps [rsp+0x80], xmm4\nmovaps [rsp+0x90], xmm5\nmovaps [rsp+0xa0], xmm6\nmovaps [rsp+0xb0], xmm7\n",
            "mov r10, ", $object, "\nmov rsi, ", $selector, "\nmov rdi, r10\n",
            "call {find}\nmov r11, rax\n",
            "mov rdi, [rsp]\nmov rsi, [rsp+0x08]\nmov rdx, [rsp+0x10]\nmov rcx, [rsp+0x18]\n",
            "mov r8, [rsp+0x20]\nmov r9, [rsp+0x28]\nmov rax, [rsp+0x30]\n",
            "movaps xmm0, [rsp+0x40]\nmovaps xmm1, [rsp+0x50]\nmovaps xmm2, [rsp+0x60]\nmovaps xmm3, [rsp+0x70]\n",
            "movaps xmm4, [rsp+0x80]\nmovaps xmm5, [rsp+0x90]\nmovaps xmm6, [rsp+0xa0]\nmovaps xmm7, [rsp+0xb0]\n",
            "leave\n", $then, "\njmp r11",
        )
    };
}

/// Sends a message whose result, if any, is in registers.
///
/// # Safety
/// The registers hold the method's arguments.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSend() {
    std::arch::naked_asm!(
        "test rdi, rdi",
        "je 3f",
        "mov r10, [rdi]",
        "mov r11, rsi",
        "and r11d, {mask}",
        "add r11, [r10 + {cache}]",
        "cmp rsi, [r11]",
        "jne 2f",
        "jmp [r11 + 8]",
        "2:",
        ask!("rdi", "rsi", ""),
        "3:",
        "xor eax, eax",
        "xor edx, edx",
        "xorps xmm0, xmm0",
        "xorps xmm1, xmm1",
        "ret",
        mask = const MASK,
        cache = const std::mem::offset_of!(Class, cache),
        find = sym look_up,
    )
}

/// Sends a message whose result is in memory, at the address in the first argument.
///
/// # Safety
/// As [`objc_msgSend`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSend_stret() {
    std::arch::naked_asm!(
        "test rsi, rsi",
        "je 3f",
        "mov r10, [rsi]",
        "mov r11, rdx",
        "and r11d, {mask}",
        "add r11, [r10 + {cache}]",
        "cmp rdx, [r11]",
        "jne 2f",
        "jmp [r11 + 8]",
        "2:",
        ask!("rsi", "rdx", ""),
        "3:",
        "mov rax, rdi",
        "ret",
        mask = const MASK,
        cache = const std::mem::offset_of!(Class, cache),
        find = sym look_up,
    )
}

/// Sends a message to the superclass; the receiver is in a structure.
///
/// # Safety
/// As [`objc_msgSend`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSendSuper() {
    std::arch::naked_asm!(ask!("rdi", "rsi", "mov rdi, [rdi]"), find = sym look_up_above)
}

/// As [`objc_msgSendSuper`], with the result in memory.
///
/// # Safety
/// As [`objc_msgSend`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSendSuper_stret() {
    std::arch::naked_asm!(ask!("rsi", "rdx", "mov rsi, [rsi]"), find = sym look_up_above)
}

/// No method here returns in an x87 register (`long double`).
///
/// # Safety
/// As [`objc_msgSend`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSend_fpret() {
    std::arch::naked_asm!("jmp {send}", send = sym objc_msgSend)
}
