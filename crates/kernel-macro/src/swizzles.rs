//! Swizzles of vectors, as methods: Rust's fields cannot overlap.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// All of two to four lanes.
pub fn all() -> TokenStream {
    let lanes = ["x", "y", "z", "w"];
    let mut out = TokenStream::new();
    for from in 2..=4 {
        let of = format_ident!("Vec{from}");
        let mut methods = TokenStream::new();
        for to in 2..=4u32 {
            let result = format_ident!("Vec{to}");
            for choice in 0..usize::pow(from, to) {
                let chosen: Vec<_> = (0..to).map(|at| lanes[choice / usize::pow(from, at) % from]).collect();
                let name = format_ident!("{}", chosen.concat());
                let fields = chosen.iter().map(|lane| format_ident!("{lane}"));
                let doc = format!("The lanes {}.", chosen.join(", "));
                methods.extend(quote! {
                    #[doc = #doc]
                    pub fn #name(self) -> #result<T> {
                        #result::new(#(self.#fields),*)
                    }
                });
            }
        }
        out.extend(quote!(impl<T: Lane> #of<T> { #methods }));
    }
    out
}
