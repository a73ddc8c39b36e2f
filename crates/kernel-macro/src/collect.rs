//! Collects the items that a kernel uses, by asking the macro of each.
//!
//! The state of a collection is groups of tokens: `{ purpose } { item } { paths to ask } { items so far }`. A macro of an item appends
//! a group with its items and calls `__collect!` again, which asks the next path or ends.

use elinvar_rust_to_msl::{Items, Math, free_names};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;

/// An error at a span.
pub fn error(span: Span, message: &str) -> TokenStream {
    quote_spanned!(span=> ::core::compile_error! { #message })
}

/// `#[kernel]`.
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let math = match math(arguments) {
        Ok(math) => math,
        Err(failure) => return failure.to_compile_error(),
    };
    match syn::parse2::<syn::ItemFn>(item.clone()) {
        Ok(function) => {
            let (names, mode) = (free_names(&syn::Item::Fn(function)), format_ident!("{}", math.name()));
            next(&quote!(kernel #mode), &item, &names, &TokenStream::new())
        }
        Err(failure) => {
            let span = item.into_iter().next().map_or_else(Span::call_site, |token| token.span());
            let function = failure.to_string();
            error(span, &format!("`#[elinvar::kernel]` is an attribute of functions: {function}"))
        }
    }
}

/// The math mode of `math = "fast"`; safe without it.
fn math(arguments: TokenStream) -> syn::Result<Math> {
    let Some(first) = arguments.clone().into_iter().next() else { return Ok(Math::Safe) };
    let allowed = "`#[elinvar::kernel]` takes `math = \"safe\"`, `\"relaxed\"` or `\"fast\"`";
    let refused = |_| syn::Error::new(first.span(), allowed);
    let given: syn::MetaNameValue = syn::parse2(arguments).map_err(refused)?;
    match &given.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(mode), .. }) if given.path.is_ident("math") => {
            Math::named(&mode.value()).ok_or_else(|| syn::Error::new(mode.span(), allowed))
        }
        other => Err(syn::Error::new(other.span(), allowed)),
    }
}

/// `#[device]`.
pub fn device(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(first) = arguments.into_iter().next() {
        return error(first.span(), "`#[elinvar::device]` takes no arguments");
    }
    let parsed = match syn::parse2::<syn::Item>(item.clone()) {
        Ok(parsed) => parsed,
        Err(failure) => return failure.to_compile_error(),
    };
    match &parsed {
        syn::Item::Fn(_) | syn::Item::Const(_) => {}
        other => {
            let message = "`#[elinvar::device]` is an attribute of functions and constants: derive `elinvar::KernelType` for structs and enums";
            return error(other.span(), message);
        }
    }
    let rest = publish(&parsed);
    // Kernels have no iterators, which clippy would prefer.
    let allowed = matches!(parsed, syn::Item::Fn(_)).then(|| {
        quote!(#[allow(clippy::needless_range_loop, clippy::manual_memcpy, clippy::manual_swap, clippy::too_many_arguments)])
    });
    quote!(#allowed #item #rest)
}

/// Defines the macro of an item, after the items that it uses are collected.
pub fn publish(item: &syn::Item) -> TokenStream {
    let names = free_names(item);
    next(&quote!(device), &item.to_token_stream(), &names, &TokenStream::new())
}

struct State {
    purpose: TokenStream,
    item: TokenStream,
    paths: Vec<syn::Path>,
    items: TokenStream,
}

impl Parse for State {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let group = |input: ParseStream<'_>| -> syn::Result<TokenStream> {
            let content;
            syn::braced!(content in input);
            content.parse()
        };
        let (purpose, item, paths, mut items) = (group(input)?, group(input)?, group(input)?, group(input)?);
        items.extend(group(input)?);
        let paths = syn::parse::Parser::parse2(
            syn::punctuated::Punctuated::<syn::Path, syn::Token![,]>::parse_terminated,
            paths,
        )?;
        Ok(Self { purpose, item, paths: paths.into_iter().collect(), items })
    }
}

/// `__collect!`.
pub fn collect(state: TokenStream) -> TokenStream {
    match syn::parse2::<State>(state) {
        Ok(state) => next(&state.purpose, &state.item, &state.paths, &state.items),
        Err(failure) => failure.to_compile_error(),
    }
}

/// Asks for the first path, or ends.
fn next(purpose: &TokenStream, item: &TokenStream, paths: &[syn::Path], items: &TokenStream) -> TokenStream {
    if let [path, rest @ ..] = paths {
        return quote! { #path! { ::elinvar::__collect, { #purpose } { #item } { #(#rest),* } { #items } } };
    }
    let collected = match parse_items(items) {
        Ok(collected) => collected,
        Err(failure) => return failure,
    };
    let purpose = purpose.to_string();
    if let Some(math) = purpose.strip_prefix("kernel ").and_then(Math::named) {
        return match syn::parse2::<syn::ItemFn>(item.clone()) {
            Ok(function) => crate::kernel::expand(&function, math, &collected),
            Err(failure) => failure.to_compile_error(),
        };
    }
    match syn::parse2::<syn::Item>(item.clone()) {
        Ok(item) => define(&item, items, &collected),
        Err(failure) => failure.to_compile_error(),
    }
}

fn parse_items(items: &TokenStream) -> Result<Items, TokenStream> {
    let file: syn::File = syn::parse2(items.clone()).map_err(|failure| failure.to_compile_error())?;
    let mut collected = Items::default();
    for item in &file.items {
        collected.add(item).map_err(|failure| error(failure.span, &failure.message))?;
    }
    Ok(collected)
}

/// Defines the macro that passes the item on.
fn define(item: &syn::Item, items: &TokenStream, collected: &Items) -> TokenStream {
    let (name, visibility) = match item {
        syn::Item::Fn(item) => (&item.sig.ident, &item.vis),
        syn::Item::Const(item) => (&item.ident, &item.vis),
        syn::Item::Struct(item) => (&item.ident, &item.vis),
        syn::Item::Enum(item) => (&item.ident, &item.vis),
        other => return error(other.span(), "kernels use functions, constants, structs and enums"),
    };
    let mut errors = TokenStream::new();
    if let syn::Item::Fn(function) = item {
        for failure in elinvar_rust_to_msl::check(function, collected).err().into_iter().flatten() {
            errors.extend(error(failure.span, &failure.message));
        }
    }
    // The macro has a name of its own, since exported ones share the root of the crate.
    let place = name.span().unwrap();
    let hidden =
        format_ident!("__elinvar_{name}_{}_{}", place.line(), place.column(), span = Span::call_site());
    let own = without_attributes(item);
    let own = quote!(#own #items);
    let (export, visibility) = match visibility {
        syn::Visibility::Public(_) => (quote!(#[macro_export]), quote!(pub)),
        _ => (TokenStream::new(), quote!(pub(crate))),
    };
    let dollar: TokenStream = "$callback:path, $($state:tt)*".parse().unwrap_or_default();
    let call: TokenStream = "$callback!".parse().unwrap_or_default();
    let state: TokenStream = "$($state)*".parse().unwrap_or_default();
    quote! {
        #[doc(hidden)]
        #export
        #[allow(unused_macros, unused_macro_rules)]
        macro_rules! #hidden {
            (#dollar) => { #call { #state { #own } } };
        }
        #[doc(hidden)]
        #[allow(unused_imports)]
        #visibility use #hidden as #name;
        #errors
    }
}

/// The item without attributes, which mean nothing to a kernel.
fn without_attributes(item: &syn::Item) -> TokenStream {
    struct Strip;
    impl syn::visit_mut::VisitMut for Strip {
        fn visit_attributes_mut(&mut self, attributes: &mut Vec<syn::Attribute>) {
            attributes.clear();
        }
    }
    let mut item = item.clone();
    syn::visit_mut::VisitMut::visit_item_mut(&mut Strip, &mut item);
    // A `$` in a macro's definition would be one of its variables.
    item.to_token_stream()
        .into_iter()
        .filter(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == '$'))
        .collect()
}
