//! [`Items`]: what a kernel refers to by name, which its translation needs: functions, constants, structs and enums.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned;

use crate::error::{Error, Result, fail};

/// The items that a kernel may use, by name.
#[derive(Clone, Default)]
pub struct Items {
    /// Helper functions.
    pub functions: BTreeMap<String, syn::ItemFn>,
    /// Constants.
    pub constants: BTreeMap<String, syn::ItemConst>,
    /// Structs.
    pub structs: BTreeMap<String, syn::ItemStruct>,
    /// Enums.
    pub enums: BTreeMap<String, syn::ItemEnum>,
}

impl Items {
    /// Adds an item. `known` items may be added again if they are the same.
    ///
    /// # Errors
    /// If the item is of another kind, or another item has its name.
    pub fn add(&mut self, item: &syn::Item) -> Result<()> {
        fn insert<T: Clone + PartialEq>(
            map: &mut BTreeMap<String, T>,
            name: &syn::Ident,
            item: &T,
        ) -> Result<()> {
            match map.insert(name.to_string(), item.clone()) {
                Some(other) if other != *item => {
                    fail(name.span(), format!("a kernel uses two items that are named `{name}`: rename one"))
                }
                _ => Ok(()),
            }
        }
        match item {
            syn::Item::Fn(function) => insert(&mut self.functions, &function.sig.ident, function),
            // An assertion, which rustc evaluates.
            syn::Item::Const(constant) if constant.ident == "_" => Ok(()),
            syn::Item::Const(constant) => insert(&mut self.constants, &constant.ident, constant),
            syn::Item::Struct(item) => insert(&mut self.structs, &item.ident, item),
            syn::Item::Enum(item) => insert(&mut self.enums, &item.ident, item),
            syn::Item::Use(_) => Ok(()),
            other => fail(
                other.span(),
                "kernels use functions, constants, structs and enums; move this item out of the kernel",
            ),
        }
    }

    /// Adds the items that are defined in a function's body.
    pub(crate) fn add_nested(&mut self, block: &syn::Block) -> Result<()> {
        for statement in &block.stmts {
            if let syn::Stmt::Item(item) = statement {
                self.add(item)?;
                if let syn::Item::Fn(function) = item {
                    self.add_nested(&function.block)?;
                }
            }
        }
        Ok(())
    }

    /// The fields of a struct, by name.
    pub(crate) fn fields(&self, name: &str, span: Span) -> Result<Vec<(String, syn::Type, Span)>> {
        let Some(item) = self.structs.get(name) else {
            return fail(span, format!("unknown struct `{name}`: derive `elinvar::KernelType` for it"));
        };
        if let Some(parameter) = item.generics.params.first() {
            return fail(
                parameter.span(),
                "a struct with parameters has no layout in MSL: write one for each type",
            );
        }
        match &item.fields {
            syn::Fields::Named(fields) => Ok(fields
                .named
                .iter()
                .filter_map(|field| Some((field.ident.as_ref()?.to_string(), field.ty.clone(), field.span())))
                .collect()),
            other => fail(
                if other.is_empty() { item.ident.span() } else { other.span() },
                "a struct of a kernel has named fields: write `struct S { a: f32 }`",
            ),
        }
    }

    /// The variants of an enum with their values.
    pub(crate) fn variants(&self, name: &str, span: Span) -> Result<Vec<(String, Option<syn::Expr>)>> {
        let Some(item) = self.enums.get(name) else {
            return fail(span, format!("unknown enum `{name}`: derive `elinvar::KernelType` for it"));
        };
        item.variants
            .iter()
            .map(|variant| match &variant.fields {
                syn::Fields::Unit => Ok((
                    variant.ident.to_string(),
                    variant.discriminant.as_ref().map(|(_, value)| value.clone()),
                )),
                fields => Err(Error::new(
                    fields.span(),
                    "an enum of a kernel has no fields: use a struct with a number for the kind",
                )),
            })
            .collect()
    }
}
