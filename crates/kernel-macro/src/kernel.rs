//! What `#[kernel]` expands to: a unit struct with the MSL, the launcher, and the function for the host.

use elinvar_rust_to_msl::{
    Items, Math, Parameter, Role, Translation, constant_element, is_parameter_attribute, translate,
};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};

use crate::collect::error;

/// The struct with its methods; with errors, one that the rest of the crate can use.
pub fn expand(function: &syn::ItemFn, math: Math, items: &Items) -> TokenStream {
    match translate(function, items) {
        Ok(mut translation) => {
            translation.math = math;
            launcher(function, &translation)
        }
        Err(errors) => {
            let errors: TokenStream = errors.iter().map(|one| error(one.span, &one.message)).collect();
            let (name, visibility) = (&function.sig.ident, &function.vis);
            quote! {
                #errors
                #[allow(non_camel_case_types)]
                #visibility struct #name;
            }
        }
    }
}

/// Names and types of what a launch and a run on the host take, by parameter.
struct Argument {
    name: syn::Ident,
    launch: TokenStream,
    bind: TokenStream,
    host: TokenStream,
}

/// The type within a reference.
fn referred(ty: &syn::Type) -> &syn::Type {
    match ty {
        syn::Type::Reference(reference) => &reference.elem,
        syn::Type::Paren(paren) => referred(&paren.elem),
        syn::Type::Group(group) => referred(&group.elem),
        other => other,
    }
}

/// The type of a slice's or array's elements.
fn element(ty: &syn::Type) -> &syn::Type {
    match referred(ty) {
        syn::Type::Slice(slice) => element(&slice.elem),
        syn::Type::Array(array) => element(&array.elem),
        other => other,
    }
}

fn is(ty: &syn::Type, name: &str) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn argument(parameter: &Parameter, name: &syn::Ident) -> Option<Argument> {
    let ty = &parameter.ty;
    let length = parameter.length;
    let name = name.clone();
    Some(match &parameter.role {
        Role::Buffer { atomic: true, .. } => {
            let of = element(ty);
            let number = if is(of, "AtomicI32") { quote!(i32) } else { quote!(u32) };
            Argument {
                launch: quote!(impl ::elinvar::kernel::WriteArg<Element = #number>),
                bind: quote!(bound.write(#name, #length)?;),
                host: quote!(&[#of]),
                name,
            }
        }
        Role::Buffer { mutable: false, .. } => {
            let of = element(ty);
            Argument {
                launch: quote!(impl ::elinvar::kernel::ReadArg<Element = #of>),
                bind: quote!(bound.read(#name, #length)?;),
                host: quote!(&[#of]),
                name,
            }
        }
        Role::Buffer { mutable: true, .. } => {
            let of = element(ty);
            Argument {
                launch: quote!(impl ::elinvar::kernel::WriteArg<Element = #of>),
                bind: quote!(bound.write(#name, #length)?;),
                host: quote!(&mut [#of]),
                name,
            }
        }
        Role::ConstantBuffer => {
            let of = constant_element(ty).unwrap_or(ty);
            Argument {
                launch: quote!(impl ::elinvar::kernel::ReadArg<Element = #of>),
                bind: quote!(bound.read(#name, #length)?;),
                host: quote!(&[#of]),
                name,
            }
        }
        Role::Value if is(ty, "bool") => {
            Argument { launch: quote!(#ty), bind: quote!(bound.flag(#name);), host: quote!(#ty), name }
        }
        Role::Value => {
            Argument { launch: quote!(#ty), bind: quote!(bound.value(#name);), host: quote!(#ty), name }
        }
        Role::Constant => {
            let text = parameter.name.clone();
            Argument {
                launch: quote!(#ty),
                bind: quote!(bound.constant(#text, #name);),
                host: quote!(#ty),
                name,
            }
        }
        Role::Threadgroup { dynamic: true, .. } => {
            let of = element(ty);
            let of = if is(of, "AtomicU32") || is(of, "AtomicI32") { quote!(u32) } else { quote!(#of) };
            Argument {
                launch: quote!(usize),
                bind: quote!(bound.threadgroup::<#of>(#name, #length)?;),
                host: quote!(usize),
                name,
            }
        }
        Role::Threadgroup { dynamic: false, .. } | Role::Position(_) => return None,
    })
}

fn launcher(function: &syn::ItemFn, translation: &Translation) -> TokenStream {
    let (name, visibility) = (&function.sig.ident, &function.vis);
    let names: Vec<syn::Ident> = (0..translation.parameters.len())
        .map(|at| match translation.parameters[at].name.as_str() {
            "unused" => format_ident!("unused_{at}"),
            given => format_ident!("{given}", span = Span::mixed_site()),
        })
        .collect();
    let arguments: Vec<Argument> = translation
        .parameters
        .iter()
        .zip(&names)
        .filter_map(|(parameter, name)| argument(parameter, name))
        .collect();
    let given: Vec<&syn::Ident> = arguments.iter().map(|argument| &argument.name).collect();
    let launch_types: Vec<&TokenStream> = arguments.iter().map(|argument| &argument.launch).collect();
    let binds: Vec<&TokenStream> = arguments.iter().map(|argument| &argument.bind).collect();
    let host_types: Vec<&TokenStream> = arguments.iter().map(|argument| &argument.host).collect();
    let docs = function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
    let text = translation.text();
    let file = function.sig.ident.span().unwrap().file();
    let lines = translation.text_with_lines(&file);
    let kernel_name = translation.name.clone();
    let (generics, _, clause) = function.sig.generics.split_for_impl();
    let turbofish = turbofish(function);
    let types = translation.type_parameters.iter().map(|name| {
        let ty = format_ident!("{name}");
        quote!((#name, <#ty as ::elinvar::kernel::Number>::MSL.into()))
    });
    let constants = translation.const_parameters.iter().map(|(name, ty)| {
        let value = format_ident!("{name}");
        quote!((#name, #ty, ::std::string::ToString::to_string(&#value)))
    });
    let documentation = format!("The kernel in Metal Shading Language:\n\n```text\n{text}```");
    let math = format_ident!("{}", format!("{:?}", translation.math));
    let host = host(function, translation, &names, &given, &host_types);
    let launch_doc = format!(
        "Launches the kernel with checks of each access. The arguments are a tuple of: {}.",
        list(&translation.parameters)
    );
    quote! {
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, Default)]
        #visibility struct #name;

        #[allow(clippy::all, clippy::pedantic, dead_code)]
        impl #name {
            #[doc = #documentation]
            pub const MSL: &'static str = #text;

            #[doc = "The kernel with its arguments, for launches without checks, for command buffers and for preparation.\n\n\
                # Errors\n`InvalidArgument` for a buffer whose length is above `u32::MAX` elements."]
            pub fn bind #generics (
                self,
                (#(#given,)*): (#(#launch_types,)*),
            ) -> ::elinvar::Result<::elinvar::kernel::BoundKernel> #clause {
                let types: ::std::vec::Vec<(&'static str, &'static str)> = ::std::vec![#(#types),*];
                let constants: ::std::vec::Vec<(&'static str, &'static str, ::std::string::String)> =
                    ::std::vec![#(#constants),*];
                let mut bound =
                    ::elinvar::kernel::BoundKernel::new(#kernel_name, #lines, ::elinvar::MathMode::#math, &types, &constants);
                #(#binds)*
                ::core::result::Result::Ok(bound)
            }

            #[doc = #launch_doc]
            #[doc = "\n\n# Errors\nAs `elinvar::CheckedKernel::launch`, and those of the kernel's compilation at the first launch."]
            pub fn launch #generics (
                self,
                stream: &::elinvar::Stream,
                grid: ::elinvar::Grid,
                (#(#given,)*): (#(#launch_types,)*),
            ) -> ::elinvar::Result<::elinvar::Completion> #clause {
                self.bind #turbofish ((#(#given,)*))?.launch(stream, grid)
            }

            #host
        }
    }
}

/// The function's type and const parameters as arguments.
fn turbofish(function: &syn::ItemFn) -> TokenStream {
    let parameters = function.sig.generics.params.iter().filter_map(|parameter| match parameter {
        syn::GenericParam::Type(parameter) => Some(parameter.ident.clone()),
        syn::GenericParam::Const(parameter) => Some(parameter.ident.clone()),
        syn::GenericParam::Lifetime(_) => None,
    });
    let parameters: Vec<_> = parameters.collect();
    if parameters.is_empty() { TokenStream::new() } else { quote!(::<#(#parameters),*>) }
}

fn list(parameters: &[Parameter]) -> String {
    let names: Vec<String> = parameters
        .iter()
        .filter(|parameter| {
            !matches!(parameter.role, Role::Position(_) | Role::Threadgroup { dynamic: false, .. })
        })
        .map(|parameter| match parameter.role {
            Role::Threadgroup { .. } => format!("the length of `{}`", parameter.name),
            _ => format!("`{}`", parameter.name),
        })
        .collect();
    names.join(", ")
}

/// The user's function, and a method that runs it for each thread of a grid.
fn host(
    function: &syn::ItemFn,
    translation: &Translation,
    names: &[syn::Ident],
    given: &[&syn::Ident],
    host_types: &[&TokenStream],
) -> TokenStream {
    let (generics, _, clause) = function.sig.generics.split_for_impl();
    let threadgroup = translation.parameters.iter().any(|one| matches!(one.role, Role::Threadgroup { .. }));
    let together = translation.collective || threadgroup;
    let mut inputs = function.sig.inputs.clone();
    for input in &mut inputs {
        if let syn::FnArg::Typed(typed) = input {
            typed.attrs.retain(|attribute| !is_parameter_attribute(attribute));
        }
    }
    let turbofish = turbofish(function);
    let attributes: Vec<_> =
        function.attrs.iter().filter(|attribute| !attribute.path().is_ident("doc")).collect();
    let body = &function.block;
    let host_doc = "Runs the function on the host for each thread of the grid, as an oracle. It panics where Rust does: at an index out of \
                    bounds, and with overflow checks at an overflow.";
    if !together {
        let calls = translation.parameters.iter().zip(names).map(|(parameter, name)| match &parameter.role {
            Role::Position(attribute) => position(attribute, parameter),
            Role::Buffer { mutable: true, .. } => quote!(&mut *#name),
            Role::ConstantBuffer => quote!(::elinvar::kernel::Constant::new(#name)),
            _ => quote!(#name),
        });
        let call_doc = "The function itself, for one thread.";
        return quote! {
            #[doc = #call_doc]
            #(#attributes)*
            pub fn call #generics (#inputs) #clause #body

            #[doc = #host_doc]
            pub fn host #generics (
                self,
                grid: ::elinvar::Grid,
                (#(#given,)*): (#(#host_types,)*),
            ) #clause {
                let (threads, group) = grid.host_sizes();
                ::elinvar::kernel::host::run(threads, group, |thread| Self::call #turbofish (#(#calls),*));
            }
        };
    }
    // The threads of a threadgroup run in turns: what they write is `Shared`.
    let mut shared = Vec::new();
    for (parameter, input) in translation.parameters.iter().zip(&mut inputs) {
        let is_shared = matches!(
            parameter.role,
            Role::Buffer { mutable: true, .. } | Role::Threadgroup { atomic: false, .. }
        );
        let syn::FnArg::Typed(typed) = input else { continue };
        if is_shared {
            let inner = referred(&typed.ty).clone();
            *typed.ty = syn::parse_quote_spanned!(typed.ty.span()=> ::elinvar::kernel::Shared<'_, #inner>);
            if let syn::Pat::Ident(ident) = typed.pat.as_mut() {
                ident.mutability.get_or_insert(syn::Token![mut](Span::mixed_site()));
                shared.push(ident.ident.clone());
            }
        }
    }
    let mut block = body.as_ref().clone();
    Reborrow { shared: &shared }.visit_block_mut(&mut block);
    let mut memories = Vec::new();
    let mut views = Vec::new();
    let mut fields = Vec::new();
    let mut calls = Vec::new();
    let mut wraps = Vec::new();
    for (index, (parameter, name)) in translation.parameters.iter().zip(names).enumerate() {
        let field = format_ident!("memory_{index}");
        let of = element(&parameter.ty);
        match &parameter.role {
            Role::Position(attribute) => calls.push(position(attribute, parameter)),
            Role::ConstantBuffer => calls.push(quote!(::elinvar::kernel::Constant::new(#name))),
            Role::Buffer { mutable: true, .. } => {
                wraps.push(quote!(let #name = ::elinvar::kernel::Shared::new(#name);));
                calls.push(quote!(#name));
            }
            Role::Threadgroup { dynamic, atomic } => {
                let inner = referred(&parameter.ty);
                memories.push(match (dynamic, atomic) {
                    (false, false) => {
                        quote!(::std::boxed::Box::new(<#inner as ::elinvar::kernel::bytemuck::Zeroable>::zeroed()))
                    }
                    (false, true) => quote! {
                        ::std::boxed::Box::<#inner>::new(::core::array::from_fn(|_| ::core::default::Default::default()))
                    },
                    (true, false) => quote! {
                        (0..#name).map(|_| <#of as ::elinvar::kernel::bytemuck::Zeroable>::zeroed()).collect::<::std::boxed::Box<[#of]>>()
                    },
                    (true, true) => quote! {
                        (0..#name).map(|_| ::core::default::Default::default()).collect::<::std::boxed::Box<[#of]>>()
                    },
                });
                if *atomic {
                    views.push(quote!(#field));
                    calls.push(quote!(&#field[..]));
                } else {
                    views.push(quote!(#field));
                    calls.push(quote!(#field.shared()));
                }
                let last = memories.len() - 1;
                if !*atomic {
                    let memory = memories[last].clone();
                    memories[last] = quote!(::elinvar::kernel::Owned::new(#memory));
                }
                fields.push(field);
            }
            _ => calls.push(quote!(#name)),
        }
    }
    // An atomic array is passed as a reference to the array.
    for (parameter, call) in translation.parameters.iter().zip(&mut calls) {
        if let Role::Threadgroup { dynamic: false, atomic: true } = parameter.role {
            let text = call.to_string();
            let field =
                format_ident!("{}", text.trim_start_matches("& ").split(' ').next().unwrap_or_default());
            *call = quote!(&**#field);
        }
    }
    let _ = views;
    let run = quote! {
        ::elinvar::kernel::host::run_groups(
            threads,
            group,
            || (#(#memories,)*),
            |thread, (#(#fields,)*)| Self::thread #turbofish (#(#calls),*),
        );
    };
    quote! {
        #(#attributes)*
        fn thread #generics (#inputs) #clause #block

        #[doc = #host_doc]
        #[doc = "Threads of a threadgroup run in turns, each until it waits for others."]
        pub fn host #generics (
            self,
            grid: ::elinvar::Grid,
            (#(#given,)*): (#(#host_types,)*),
        ) #clause {
            let (threads, group) = grid.host_sizes();
            #(#wraps)*
            #run
        }
    }
}

fn position(attribute: &str, parameter: &Parameter) -> TokenStream {
    let (field, ty) = (format_ident!("{attribute}"), &parameter.ty);
    quote!(<#ty as ::elinvar::kernel::Position>::from_sizes(thread.#field))
}

/// Makes `f(y)` of shared memory `f(&mut *y)`.
struct Reborrow<'a> {
    shared: &'a [syn::Ident],
}

impl VisitMut for Reborrow<'_> {
    fn visit_expr_call_mut(&mut self, call: &mut syn::ExprCall) {
        visit_mut::visit_expr_call_mut(self, call);
        for argument in &mut call.args {
            if let syn::Expr::Path(path) = argument
                && path.path.get_ident().is_some_and(|name| self.shared.contains(name))
            {
                *argument = syn::parse_quote_spanned!(path.span()=> &mut *#path);
            }
        }
    }
}
