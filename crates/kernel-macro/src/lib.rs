//! `#[elinvar::kernel]`, `#[elinvar::device]` and `#[derive(elinvar::KernelType)]`.
//!
//! A macro sees its own item only. So each item that kernels may use also defines a macro of the same name, which passes the item's tokens,
//! and those of the items that it uses, to a macro that asks for them ([`collect`]). Names resolve as Rust's do: `use` imports both.

mod collect;
mod kernel;
mod kernel_type;
mod swizzles;

use proc_macro::TokenStream;

/// Translates a function to Metal Shading Language, and defines a launcher of its name. See the page "Kernels in Rust" of the documentation.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    collect::kernel(arguments.into(), item.into()).into()
}

/// Makes a function or a constant known to kernels. The item stays as it is.
#[proc_macro_attribute]
pub fn device(arguments: TokenStream, item: TokenStream) -> TokenStream {
    collect::device(arguments.into(), item.into()).into()
}

/// Makes a `#[repr(C)]` struct of numbers, vectors and arrays, or an enum without fields, known to kernels.
#[proc_macro_derive(KernelType)]
pub fn kernel_type(item: TokenStream) -> TokenStream {
    kernel_type::derive(item.into()).into()
}

#[doc(hidden)]
#[proc_macro]
pub fn __collect(state: TokenStream) -> TokenStream {
    collect::collect(state.into()).into()
}

#[doc(hidden)]
#[proc_macro]
pub fn swizzles(_: TokenStream) -> TokenStream {
    swizzles::all().into()
}
