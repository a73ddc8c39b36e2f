//! A program's thread-local variables.
//!
//! A variable has a descriptor of three words: a function, a key and an offset. The function is called with the descriptor's address in `rdi`,
//! returns the variable's address in `rax`, and preserves all other registers. This implementation finds the thread's block, which is allocated
//! on first use, and adds the offset. Blocks are freed only at the end of the process.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::ops::Range;
use std::sync::OnceLock;

/// Maximum alignment of a variable.
const ALIGN: usize = 64;

/// Location of the initial contents of thread-local variables.
static CONTENT: OnceLock<Range<u64>> = OnceLock::new();

thread_local! {
    static BLOCK: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
}

/// Initial contents, by mapped addresses.
pub fn set(content: Range<u64>) {
    CONTENT.get_or_init(|| content);
}

#[allow(unsafe_code)] // the function's calling convention is its own
mod function {
    std::arch::global_asm!(
        ".globl elinvar_thread_local",
        ".p2align 4",
        "elinvar_thread_local:",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "sub rsp, 264",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "movups [rsp + 128], xmm8",
        "movups [rsp + 144], xmm9",
        "movups [rsp + 160], xmm10",
        "movups [rsp + 176], xmm11",
        "movups [rsp + 192], xmm12",
        "movups [rsp + 208], xmm13",
        "movups [rsp + 224], xmm14",
        "movups [rsp + 240], xmm15",
        "call {address}",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "movups xmm8, [rsp + 128]",
        "movups xmm9, [rsp + 144]",
        "movups xmm10, [rsp + 160]",
        "movups xmm11, [rsp + 176]",
        "movups xmm12, [rsp + 192]",
        "movups xmm13, [rsp + 208]",
        "movups xmm14, [rsp + 224]",
        "movups xmm15, [rsp + 240]",
        "add rsp, 264",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "ret",
        address = sym super::address,
    );

    unsafe extern "C" {
        /// The function of all descriptors.
        pub fn elinvar_thread_local();
    }
}

pub use function::elinvar_thread_local;

/// The address of a variable of this thread.
///
/// # Safety
/// `descriptor` is one of the program's.
#[allow(unsafe_code)] // reads what the program has laid out
unsafe extern "C" fn address(descriptor: *const [usize; 3]) -> *mut u8 {
    // SAFETY: the caller's promise.
    let offset = unsafe { (*descriptor)[2] };
    let block = BLOCK.with(|block| {
        if block.get().is_null() {
            block.set(make());
        }
        block.get()
    });
    block.wrapping_add(offset)
}

#[allow(unsafe_code)] // copies what the program has laid out
fn make() -> *mut u8 {
    let content = CONTENT.get().cloned().unwrap_or(0..0);
    let len = (content.end - content.start) as usize;
    // At the same offset from an aligned address as the initial contents, so that variables have the same alignment.
    let shift = content.start as usize % ALIGN;
    let layout = Layout::from_size_align(len + shift + ALIGN, ALIGN).unwrap_or(Layout::new::<u64>());
    // SAFETY: the layout's size is not zero.
    let block = unsafe { std::alloc::alloc_zeroed(layout) };
    if block.is_null() {
        handle_alloc_error(layout);
    }
    let block = block.wrapping_add(shift);
    // SAFETY: the content is mapped and stays, and the block has room for it.
    unsafe { block.copy_from_nonoverlapping(content.start as *const u8, len) };
    block
}
