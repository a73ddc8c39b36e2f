//! Types as Rust writes them.

use quote::ToTokens;
use syn::spanned::Spanned;

use super::{Lower, Meaning};
use crate::error::{Result, fail};
use crate::types::{Scalar, Ty};

impl Lower<'_> {
    /// The type, or an error with what to write instead.
    pub(crate) fn ty(&mut self, ty: &syn::Type) -> Result<Ty> {
        let span = ty.span();
        match ty {
            syn::Type::Path(path) if path.qself.is_none() => self.path_type(&path.path),
            syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Ty::Unit),
            syn::Type::Tuple(tuple) => {
                tuple.elems.iter().map(|ty| self.ty(ty)).collect::<Result<_>>().map(Ty::Tuple)
            }
            syn::Type::Array(array) => {
                let element = self.ty(&array.elem)?;
                let length = self.length(&array.len)?;
                Ok(Ty::Array(Box::new(element), length))
            }
            syn::Type::Slice(slice) => Ok(Ty::Slice(Box::new(self.ty(&slice.elem)?))),
            syn::Type::Reference(reference) => {
                if let syn::Type::TraitObject(object) = reference.elem.as_ref() {
                    return fail(
                        object.span(),
                        "devices have no trait objects: use a generic function, or `match` on a number",
                    );
                }
                let inner = Box::new(self.ty(&reference.elem)?);
                Ok(Ty::Ref { mutable: reference.mutability.is_some(), inner })
            }
            syn::Type::Paren(paren) => self.ty(&paren.elem),
            syn::Type::Group(group) => self.ty(&group.elem),
            syn::Type::Infer(_) => Ok(self.table.any()),
            syn::Type::Never(_) => Ok(Ty::Never),
            syn::Type::Ptr(_) => fail(span, "kernels have no raw pointers: use a slice and an index"),
            syn::Type::BareFn(_) => {
                fail(span, "kernels have no function pointers: use a closure, or `match` on a number")
            }
            syn::Type::TraitObject(_) => {
                fail(span, "devices have no trait objects: use a generic function, or `match` on a number")
            }
            syn::Type::ImplTrait(_) => fail(
                span,
                "a parameter of a kernel's function has a type or a type parameter, not `impl Trait`",
            ),
            other => fail(span, format!("`{}` is not a type that kernels use", other.to_token_stream())),
        }
    }

    fn path_type(&mut self, path: &syn::Path) -> Result<Ty> {
        let span = path.span();
        let Some(last) = path.segments.last() else { return fail(span, "a type is missing") };
        let name = last.ident.to_string();
        if path.segments.len() == 1
            && let Some(ty) = self.generics.get(&name)
        {
            return Ok(ty.clone());
        }
        if let Some(scalar) = Scalar::named(&name) {
            return Ok(Ty::Scalar(scalar));
        }
        match name.as_str() {
            "Vec2" | "Vec3" | "Vec4" => {
                let lanes = name.as_bytes()[3] - b'0';
                let lane = match &last.arguments {
                    syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
                        Some(syn::GenericArgument::Type(ty)) => self.ty(ty)?,
                        _ => return fail(span, format!("write the lanes' type: `{name}<f32>`")),
                    },
                    _ => self.table.any(),
                };
                Ok(Ty::Vector(lanes, Box::new(lane)))
            }
            "AtomicU32" => Ok(Ty::Atomic(Scalar::U32)),
            "AtomicI32" => Ok(Ty::Atomic(Scalar::I32)),
            "AtomicU64" | "AtomicI64" | "AtomicUsize" | "AtomicBool" | "AtomicU8" | "AtomicU16"
            | "AtomicI8" | "AtomicI16" | "AtomicIsize" => {
                fail(span, format!("Metal has no `{name}`: use `AtomicU32` or `AtomicI32`"))
            }
            "f64" => fail(span, "Metal has no `f64`: use `f32`"),
            "i128" | "u128" => fail(span, format!("Metal has no `{name}`: use two `u64`")),
            "char" | "str" | "String" => fail(
                span,
                format!("kernels have no text (`{name}`): pass numbers, such as the bytes as `&[u8]`"),
            ),
            "Vec" | "Box" | "Rc" | "Arc" | "HashMap" | "VecDeque" | "BTreeMap" => fail(
                span,
                format!(
                    "kernels do not allocate (`{name}`): use an array, a `#[threadgroup]` array, or a slice argument"
                ),
            ),
            "Option" | "Result" => fail(
                span,
                format!(
                    "kernels have no `{name}`: return the value and a `bool`, or a number that means none"
                ),
            ),
            "Cell" | "RefCell" | "Mutex" | "RwLock" => {
                fail(span, format!("kernels have no `{name}`: share memory through atomics and barriers"))
            }
            _ if self.items.structs.contains_key(&name) => Ok(Ty::Struct(name)),
            _ if self.items.enums.contains_key(&name) => Ok(Ty::Enum(name)),
            _ => fail(span, format!("`{name}` is not known in kernels: derive `elinvar::KernelType` for it")),
        }
    }

    /// The length of an array, as MSL.
    pub(crate) fn length(&mut self, expr: &syn::Expr) -> Result<String> {
        let constant =
            "the length of an array is a number, a constant or a const parameter, or computed from those";
        match expr {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => {
                Ok(int.base10_digits().to_owned())
            }
            syn::Expr::Path(path) => match path.path.segments.last() {
                Some(segment) => {
                    let name = segment.ident.to_string();
                    match self.find(&name) {
                        Some(Meaning::Constant(msl, _)) => Ok(msl.clone()),
                        _ if self.items.constants.contains_key(&name) => Ok(name),
                        _ => fail(expr.span(), constant),
                    }
                }
                None => fail(expr.span(), constant),
            },
            syn::Expr::Binary(binary) => {
                let (left, right) = (self.length(&binary.left)?, self.length(&binary.right)?);
                let operator = binary.op.to_token_stream();
                Ok(format!("({left} {operator} {right})"))
            }
            syn::Expr::Paren(paren) => self.length(&paren.expr),
            syn::Expr::Group(group) => self.length(&group.expr),
            syn::Expr::Block(block) => match block.block.stmts.as_slice() {
                [syn::Stmt::Expr(expr, None)] => self.length(expr),
                _ => fail(expr.span(), constant),
            },
            syn::Expr::Infer(_) => Ok(String::new()),
            _ => fail(expr.span(), constant),
        }
    }
}
