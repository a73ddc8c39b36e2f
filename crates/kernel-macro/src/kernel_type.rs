//! `#[derive(KernelType)]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use crate::collect::{error, publish};

/// The implementation of the traits, and the item's macro.
pub fn derive(item: TokenStream) -> TokenStream {
    let parsed = match syn::parse2::<syn::Item>(item) {
        Ok(parsed) => parsed,
        Err(failure) => return failure.to_compile_error(),
    };
    match &parsed {
        syn::Item::Struct(item) => structure(item, &parsed),
        syn::Item::Enum(item) => enumeration(item, &parsed),
        other => error(other.span(), "kernels know structs and enums"),
    }
}

fn repr(attributes: &[syn::Attribute]) -> Vec<String> {
    let words =
        attributes.iter().filter(|attribute| attribute.path().is_ident("repr")).flat_map(|attribute| {
            attribute
                .meta
                .to_token_stream()
                .to_string()
                .replace(['(', ')', ',', '#', '[', ']'], " ")
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
    words.collect()
}

fn structure(item: &syn::ItemStruct, whole: &syn::Item) -> TokenStream {
    let name = &item.ident;
    if let Some(parameter) = item.generics.params.first() {
        return error(
            parameter.span(),
            "a struct with parameters has no layout in MSL: write one for each type",
        );
    }
    if !repr(&item.attrs).iter().any(|word| word == "C") {
        return error(name.span(), "a struct of kernels has the layout of C: add `#[repr(C)]`");
    }
    let syn::Fields::Named(fields) = &item.fields else {
        return error(name.span(), "a struct of kernels has named fields: write `struct S { a: f32 }`");
    };
    let types: Vec<&syn::Type> = fields.named.iter().map(|field| &field.ty).collect();
    let asserts = types.iter().map(|ty| {
        quote_spanned! {ty.span()=>
            const _: fn() = || {
                fn is_a_kernel_type<T: ::elinvar::KernelType>() {}
                is_a_kernel_type::<#ty>();
            };
        }
    });
    let padding = format!("`{name}` has padding: order the fields by size, or add fields in its place");
    let publish = publish(whole);
    quote! {
        #(#asserts)*
        const _: () = ::core::assert!(
            ::core::mem::size_of::<#name>() == 0 #(+ ::core::mem::size_of::<#types>())*,
            #padding
        );
        // SAFETY: `repr(C)` with fields that are plain data (`KernelType`), and no padding, as asserted above.
        #[allow(unsafe_code)]
        unsafe impl ::elinvar::kernel::bytemuck::Zeroable for #name {}
        // SAFETY: as above; the struct is `Copy`, which `Pod` requires.
        #[allow(unsafe_code)]
        unsafe impl ::elinvar::kernel::bytemuck::Pod for #name {}
        impl ::elinvar::KernelType for #name {}
        #publish
    }
}

fn enumeration(item: &syn::ItemEnum, whole: &syn::Item) -> TokenStream {
    for variant in &item.variants {
        if !matches!(variant.fields, syn::Fields::Unit) {
            let message = "an enum of kernels has no fields: use a struct with a number for the kind";
            return error(variant.fields.span(), message);
        }
    }
    if !repr(&item.attrs).iter().any(|word| word == "u32") {
        return error(item.ident.span(), "an enum of kernels is a `u32`: add `#[repr(u32)]`");
    }
    publish(whole)
}
