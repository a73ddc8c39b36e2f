//! Message sending: find the method of the receiver's class and go there, with the arguments as they are.
//!
//! Each class has a cache of as many places as the middle bits of a selector's address can say. A place is written
//! once, address first, selector last, and read in the other order, which this processor keeps; so a reader
//! that finds its selector finds its method. What has no place is looked up each time.
//!
//! A message to nil returns zero. x86-64 with the System V convention, which is that of macOS as well.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::class::Class;
use crate::object::{Id, Raw};
use crate::selector::Selector;
use crate::watch::fatal;

/// Places of a cache, a power of two.
const PLACES: usize = 512;
/// Where the places' number is in a selector's address; a place has 16 bytes, as has the step between selectors.
const MASK: usize = (PLACES - 1) * 16;

#[repr(C)]
struct Place {
    selector: AtomicUsize,
    imp: AtomicPtr<c_void>,
}

/// The methods that a class was asked for.
#[repr(C)]
pub(crate) struct Cache([Place; PLACES]);

/// The cache of a class that was asked for nothing.
pub(crate) static EMPTY: Cache = Cache::new();

/// Whether a class was ever asked for anything.
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

/// The code for a message that the caches have not.
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

/// The code for a message to the class above.
///
/// # Safety
/// `to` is valid and names a class.
unsafe extern "C" fn look_up_above(to: *const Super, selector: Selector) -> *const c_void {
    // SAFETY: the caller's promise.
    find(unsafe { &*(*to).above }, selector)
}

/// The slow way: keep all registers that can hold arguments, ask, restore, go.
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

/// Send a message whose result, if any, is in registers.
///
/// # Safety
/// The registers hold what the method takes.
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

/// Send a message whose result goes to memory, the address of which comes first.
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

/// Send a message to the class above; the receiver is in a structure.
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

/// Results in the x87 register, `long double`, are not used by any method here.
///
/// # Safety
/// As [`objc_msgSend`].
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn objc_msgSend_fpret() {
    std::arch::naked_asm!("jmp {send}", send = sym objc_msgSend)
}
