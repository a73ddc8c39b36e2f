//! Names that a function or type refers to and does not define, so that a macro can ask for their definitions.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use crate::types::Scalar;

/// Types, functions and modules that kernels may name without a definition: Rust's and those of the prelude.
const KNOWN: &[&str] = &[
    "Constant",
    "Vec2",
    "Vec3",
    "Vec4",
    "AtomicU32",
    "AtomicI32",
    "AtomicU64",
    "AtomicI64",
    "AtomicBool",
    "AtomicUsize",
    "Ordering",
    "Self",
    "f64",
    "i128",
    "u128",
    "str",
    "char",
    "String",
    "Vec",
    "Box",
    "Option",
    "Result",
    "Some",
    "None",
    "Ok",
    "Err",
    "mem_flags",
    "Rc",
    "Arc",
    "RefCell",
    "Cell",
    "Mutex",
    "HashMap",
    "std",
    "core",
    "Default",
    "From",
    "Into",
    "Iterator",
    "Clone",
    "Copy",
];

struct Names {
    paths: Vec<syn::Path>,
    seen: BTreeSet<String>,
    own: BTreeSet<String>,
}

/// The paths of functions, constants, structs and enums that the item names and does not define.
pub fn free_names(item: &syn::Item) -> Vec<syn::Path> {
    let mut defined = Defined::default();
    defined.visit_item(item);
    let mut names = Names { paths: Vec::new(), seen: BTreeSet::new(), own: defined.0 };
    names.visit_item(item);
    names.paths
}

/// Names that the item binds: items, generic parameters, variables.
#[derive(Default)]
struct Defined(BTreeSet<String>);

impl<'a> Visit<'a> for Defined {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let name = match item {
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            _ => None,
        };
        self.0.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_generic_param(&mut self, parameter: &'a syn::GenericParam) {
        match parameter {
            syn::GenericParam::Type(parameter) => self.0.insert(parameter.ident.to_string()),
            syn::GenericParam::Const(parameter) => self.0.insert(parameter.ident.to_string()),
            syn::GenericParam::Lifetime(_) => false,
        };
    }

    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        let name = pattern.ident.to_string();
        // `match x { LIMIT => … }` names a constant.
        if !is_constant(&name) {
            self.0.insert(name);
        }
        visit::visit_pat_ident(self, pattern);
    }
}

/// Whether a name is written as constants are.
pub(crate) fn is_constant(name: &str) -> bool {
    name.chars().any(char::is_uppercase) && !name.chars().any(char::is_lowercase)
}

/// Whether a name is of a function or type that needs no definition.
pub(crate) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || Scalar::named(name).is_some() || crate::builtins::is_function(name)
}

impl Names {
    fn add(&mut self, path: &syn::Path) {
        let Some(first) = path.segments.first().map(|segment| segment.ident.to_string()) else { return };
        let Some(last) = path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let alone = path.segments.len() == 1 && path.leading_colon.is_none();
        if ["std", "core"].contains(&first.as_str()) || is_known(&last) || alone && self.own.contains(&last) {
            return;
        }
        if self.own.contains(&first) && !alone {
            return;
        }
        if self.seen.insert(last) {
            let mut path = path.clone();
            for segment in &mut path.segments {
                segment.arguments = syn::PathArguments::None;
            }
            self.paths.push(path);
        }
    }
}

/// The path without its last segment.
fn parent(path: &syn::Path) -> syn::Path {
    let mut parent = path.clone();
    parent.segments.pop();
    if let Some(last) = parent.segments.pop() {
        parent.segments.push(last.into_value());
    }
    parent
}

/// Whether a name is written as types are.
fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.chars().any(char::is_lowercase)
}

impl<'a> Visit<'a> for Names {
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_item_use(&mut self, _: &'a syn::ItemUse) {}

    fn visit_trait_bound(&mut self, _: &'a syn::TraitBound) {}

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        // What `printf!` prints; other macros are not translated.
        if let Some(print) = crate::print::parse(call) {
            print.values.iter().for_each(|value| self.visit_expr(&value.expr));
        }
    }

    fn visit_type_path(&mut self, ty: &'a syn::TypePath) {
        self.add(&ty.path);
        visit::visit_type_path(self, ty);
    }

    fn visit_expr_struct(&mut self, expr: &'a syn::ExprStruct) {
        self.add(&expr.path);
        visit::visit_expr_struct(self, expr);
    }

    fn visit_expr_path(&mut self, expr: &'a syn::ExprPath) {
        self.path(&expr.path);
        visit::visit_expr_path(self, expr);
    }

    fn visit_pat(&mut self, pattern: &'a syn::Pat) {
        match pattern {
            syn::Pat::Path(pattern) => self.path(&pattern.path),
            syn::Pat::Ident(pattern) if is_constant(&pattern.ident.to_string()) => {
                self.add(&pattern.ident.clone().into());
            }
            _ => {}
        }
        visit::visit_pat(self, pattern);
    }
}

impl Names {
    /// A path in an expression: of a function, a constant, or a variant or associated item of a type.
    fn path(&mut self, path: &syn::Path) {
        let count = path.segments.len();
        if count > 1 {
            let before = path.segments[count - 2].ident.to_string();
            if Scalar::named(&before).is_some() || before == "mem_flags" || before == "consts" {
                return;
            }
            if is_type(&before) {
                return self.add(&parent(path));
            }
        }
        self.add(path);
    }
}
