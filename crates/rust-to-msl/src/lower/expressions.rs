//! Expressions.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;

use super::Lower;
use super::loops::{ends, unit};
use crate::error::{Result, fail};
use crate::hir::{Binary, Block, Expr, Kind, Statement, Unary};
use crate::types::{Space, Ty};

impl Lower<'_> {
    pub(super) fn expr(&mut self, expr: &syn::Expr) -> Result<Expr> {
        let span = expr.span();
        match expr {
            syn::Expr::Lit(literal) => self.literal(&literal.lit, false),
            syn::Expr::Path(path) => self.path(&path.path),
            syn::Expr::Paren(paren) => self.expr(&paren.expr),
            syn::Expr::Group(group) => self.expr(&group.expr),
            syn::Expr::Unary(unary) => self.unary(unary),
            syn::Expr::Binary(binary) => self.binary(binary),
            syn::Expr::Assign(assign) => self.assign(assign),
            syn::Expr::Cast(cast) => {
                let (value, ty) = (self.expr(&cast.expr)?, self.ty(&cast.ty)?);
                Ok(Self::expr_of(ty, span, Kind::Cast(Box::new(value))))
            }
            syn::Expr::Index(index) => self.index(index),
            syn::Expr::Field(field) => self.field(field),
            syn::Expr::Call(call) => self.call(call),
            syn::Expr::MethodCall(call) => self.method_call(call),
            syn::Expr::Block(block) => match &block.label {
                Some(label) => self.labeled(block, label),
                None => {
                    let lowered = self.block(&block.block)?;
                    Ok(self.block_expr(lowered, span))
                }
            },
            syn::Expr::If(branch) => self.if_expr(branch),
            syn::Expr::Match(matched) => self.match_expr(matched),
            syn::Expr::Loop(body) => self.forever(body),
            syn::Expr::While(body) => self.while_loop(body),
            syn::Expr::ForLoop(body) => self.for_loop(body),
            syn::Expr::Break(jump) => self.break_expr(jump),
            syn::Expr::Continue(jump) => self.continue_expr(jump),
            syn::Expr::Return(jump) => self.return_expr(jump),
            syn::Expr::Tuple(tuple) if tuple.elems.is_empty() => {
                Ok(Self::expr_of(Ty::Unit, span, Kind::Block(Block::default())))
            }
            syn::Expr::Tuple(tuple) => {
                let fields: Vec<Expr> =
                    tuple.elems.iter().map(|field| self.expr(field)).collect::<Result<_>>()?;
                let ty = Ty::Tuple(fields.iter().map(|field| field.ty.clone()).collect());
                Ok(Self::expr_of(ty, span, Kind::Tuple(fields)))
            }
            syn::Expr::Array(array) => {
                let element = self.table.any();
                let mut elements = Vec::new();
                for value in &array.elems {
                    let value = self.expr(value)?;
                    self.same(&value.ty, &element, value.span);
                    elements.push(value);
                }
                let ty = Ty::Array(Box::new(element), elements.len().to_string());
                Ok(Self::expr_of(ty, span, Kind::Array(elements)))
            }
            syn::Expr::Repeat(repeat) => {
                let (value, length) = (self.expr(&repeat.expr)?, self.length(&repeat.len)?);
                let ty = Ty::Array(Box::new(value.ty.clone()), length.clone());
                Ok(Self::expr_of(ty, span, Kind::Repeat(Box::new(value), length)))
            }
            syn::Expr::Struct(value) => self.struct_expr(value),
            // rustc evaluates assertions of constants.
            syn::Expr::Const(block) if is_assertion(&block.block) => {
                Ok(Self::expr_of(Ty::Unit, span, Kind::Block(Block::default())))
            }
            syn::Expr::Reference(reference) => {
                let value = self.expr(&reference.expr)?;
                // `Constant` is a slice.
                if matches!(&value.kind, Kind::Local(local) if self.locals[*local].space == Space::Constant) {
                    return Ok(value);
                }
                let inner = Box::new(value.ty.clone());
                let ty = Ty::Ref { mutable: reference.mutability.is_some(), inner };
                Ok(Self::expr_of(ty, span, Kind::Borrow(Box::new(value))))
            }
            syn::Expr::Closure(_) => {
                fail(span, "name this closure, as in `let f = |x| …;`, and call it by the name")
            }
            syn::Expr::Range(_) => fail(
                span,
                "a range is what a `for` goes over; kernels have no parts of slices: add the start to the index",
            ),
            syn::Expr::Macro(call) => match self.expr_macro(&call.mac)? {
                Some(expr) => Ok(expr),
                None => Ok(Self::expr_of(Ty::Unit, span, Kind::Block(Block::default()))),
            },
            syn::Expr::Try(_) => {
                fail(span, "kernels have no `Option` and `Result`, and so no `?`: use `if` and `return`")
            }
            syn::Expr::Let(_) => {
                fail(span, "kernels have no patterns that can fail: use a condition, or `match` on a number")
            }
            syn::Expr::Unsafe(_) => fail(span, "kernels are safe code: remove `unsafe`"),
            syn::Expr::Async(_) | syn::Expr::Await(_) => {
                fail(span, "kernels are not `async`: a thread waits at a barrier")
            }
            other => fail(
                span,
                format!("`{}` is not translated to MSL", shortened(&other.to_token_stream().to_string())),
            ),
        }
    }

    /// A block as an expression.
    fn block_expr(&mut self, block: Block, span: Span) -> Expr {
        let ty = match &block.tail {
            Some(tail) => tail.ty.clone(),
            None if ends(&block) => Ty::Never,
            None => Ty::Unit,
        };
        Self::expr_of(ty, span, Kind::Block(block))
    }

    fn unary(&mut self, unary: &syn::ExprUnary) -> Result<Expr> {
        let span = unary.span();
        if let (syn::UnOp::Neg(_), syn::Expr::Lit(literal)) = (&unary.op, unary.expr.as_ref()) {
            return self.literal(&literal.lit, true).map(|expr| Expr { span, ..expr });
        }
        let value = self.expr(&unary.expr)?;
        let ty = value.ty.clone();
        match unary.op {
            syn::UnOp::Neg(_) => Ok(Self::expr_of(ty, span, Kind::Unary(Unary::Neg, Box::new(value)))),
            syn::UnOp::Not(_) => Ok(Self::expr_of(ty, span, Kind::Unary(Unary::Not, Box::new(value)))),
            syn::UnOp::Deref(_) => match self.table.shallow(&ty) {
                Ty::Ref { inner, .. } => Ok(Self::expr_of(*inner, span, Kind::Deref(Box::new(value)))),
                other => self.unknown(span, &other, "only references are dereferenced in kernels"),
            },
            _ => fail(span, "this operator is not translated to MSL"),
        }
    }

    fn binary(&mut self, binary: &syn::ExprBinary) -> Result<Expr> {
        let span = binary.span();
        let Some((operator, assigns)) = operator(&binary.op) else {
            return fail(span, "this operator is not translated to MSL");
        };
        let (left, right) = (self.expr(&binary.left)?, self.expr(&binary.right)?);
        let ty = self.operands(operator, &left, &right, span);
        let (left, right) = (Box::new(left), Box::new(right));
        if assigns {
            return Ok(Self::expr_of(Ty::Unit, span, Kind::AssignBinary(operator, left, right)));
        }
        Ok(Self::expr_of(ty, span, Kind::Binary(operator, left, right)))
    }

    /// Relates the types of operands, and returns that of the result.
    pub(super) fn operands(&mut self, operator: Binary, left: &Expr, right: &Expr, span: Span) -> Ty {
        let (l, r) = (self.table.shallow(&left.ty), self.table.shallow(&right.ty));
        match operator {
            Binary::LogicalAnd | Binary::LogicalOr => {
                self.same(&l, &Ty::BOOL, left.span);
                self.same(&r, &Ty::BOOL, right.span);
                Ty::BOOL
            }
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual => {
                self.same(&r, &l, right.span);
                Ty::BOOL
            }
            Binary::Shl | Binary::Shr => l,
            _ => match (&l, &r) {
                (Ty::Vector(..), Ty::Vector(..)) => {
                    self.same(&r, &l, span);
                    l
                }
                (Ty::Vector(_, lane), _) => {
                    self.same(&r, lane, right.span);
                    l
                }
                (_, Ty::Vector(_, lane)) => {
                    self.same(&l, lane, left.span);
                    r
                }
                _ => {
                    self.same(&r, &l, right.span);
                    l
                }
            },
        }
    }

    fn assign(&mut self, assign: &syn::ExprAssign) -> Result<Expr> {
        let span = assign.span();
        if matches!(assign.left.as_ref(), syn::Expr::Infer(_)) {
            return self.expr(&assign.right);
        }
        if let syn::Expr::Tuple(tuple) = assign.left.as_ref() {
            return self.assign_tuple(tuple, &assign.right, span);
        }
        let value = self.expr(&assign.right)?;
        let place = self.expr(&assign.left)?;
        self.same(&value.ty, &place.ty, value.span);
        Ok(Self::expr_of(Ty::Unit, span, Kind::Assign(Box::new(place), Box::new(value))))
    }

    /// `(a, b) = (b, a)`.
    fn assign_tuple(&mut self, places: &syn::ExprTuple, value: &syn::Expr, span: Span) -> Result<Expr> {
        let value = self.expr(value)?;
        let fields: Vec<Ty> = places.elems.iter().map(|_| self.table.any()).collect();
        let whole = Ty::Tuple(fields.clone());
        self.same(&value.ty, &whole, value.span);
        let index = self.temporary("tuple", whole.clone());
        let mut block = Block { statements: vec![Statement::Let(index, Some(value), span)], tail: None };
        for (at, (place, ty)) in places.elems.iter().zip(fields).enumerate() {
            if matches!(place, syn::Expr::Infer(_)) {
                continue;
            }
            let place = self.expr(place)?;
            self.same(&ty, &place.ty, place.span);
            let whole = Self::expr_of(whole.clone(), span, Kind::Local(index));
            let field = Self::expr_of(ty, span, Kind::Field(Box::new(whole), format!("_{at}")));
            let kind = Kind::Assign(Box::new(place), Box::new(field));
            block.statements.push(Statement::Expr(Self::expr_of(Ty::Unit, span, kind)));
        }
        Ok(Self::expr_of(Ty::Unit, span, Kind::Block(block)))
    }

    fn index(&mut self, index: &syn::ExprIndex) -> Result<Expr> {
        let span = index.span();
        if let syn::Expr::Range(range) = index.index.as_ref() {
            return fail(
                range.span(),
                "kernels have no parts of slices: pass the slice and the start, and add it to the index",
            );
        }
        let (base, at) = (self.expr(&index.expr)?, self.expr(&index.index)?);
        let element = match self.table.resolve(&base.ty).peeled() {
            Ty::Array(element, _) | Ty::Slice(element) => element.as_ref().clone(),
            // rustc checks the index.
            Ty::Vector(_, lane) => lane.as_ref().clone(),
            other => {
                let message = format!("`{other}` has no elements: index a slice, an array or a vector");
                return self.unknown(base.span, other, message);
            }
        };
        self.same(&at.ty, &Ty::USIZE, at.span);
        Ok(Self::expr_of(element, span, Kind::Index(Box::new(base), Box::new(at))))
    }

    fn field(&mut self, field: &syn::ExprField) -> Result<Expr> {
        let span = field.span();
        let base = self.expr(&field.base)?;
        let name = field.member.to_token_stream().to_string();
        let ty = match self.table.resolve(&base.ty).peeled() {
            Ty::Vector(lanes, lane) => match ["x", "y", "z", "w"].iter().position(|one| *one == name) {
                Some(at) if at < usize::from(*lanes) => lane.as_ref().clone(),
                _ => {
                    return fail(
                        span,
                        format!(
                            "a `Vec{lanes}` has no `{name}`: lanes are x, y, z, w; swizzles are methods, `v.xy()`"
                        ),
                    );
                }
            },
            Ty::Tuple(fields) => match name.parse::<usize>().ok().and_then(|at| fields.get(at)) {
                Some(ty) => {
                    let ty = ty.clone();
                    let kind = Kind::Field(Box::new(base), format!("_{name}"));
                    return Ok(Self::expr_of(ty, span, kind));
                }
                None => return fail(span, format!("the tuple has no field `{name}`")),
            },
            Ty::Struct(of) => {
                let fields = self.items.fields(of, span)?;
                match fields.into_iter().find(|(field, ..)| *field == name) {
                    Some((_, ty, _)) => self.ty(&ty)?,
                    None => return fail(span, format!("`{of}` has no field `{name}`")),
                }
            }
            other => return self.unknown(span, other, format!("`{other}` has no field `{name}`")),
        };
        Ok(Self::expr_of(ty, span, Kind::Field(Box::new(base), field_name(&name))))
    }

    fn struct_expr(&mut self, value: &syn::ExprStruct) -> Result<Expr> {
        let span = value.span();
        let name = value.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if let Some(rest) = &value.rest {
            return fail(rest.span(), "kernels write all fields of a struct");
        }
        let mut lowered = Vec::new();
        let fields = self.items.fields(&name, span)?;
        for given in &value.fields {
            let member = given.member.to_token_stream().to_string();
            let value = self.expr(&given.expr)?;
            let Some((_, ty, _)) = fields.iter().find(|(field, ..)| *field == member) else {
                return fail(given.span(), format!("`{name}` has no field `{member}`"));
            };
            let ty = self.ty(ty)?;
            self.same(&value.ty, &ty, value.span);
            lowered.push((field_name(&member), value));
        }
        Ok(Self::expr_of(Ty::Struct(name.clone()), span, Kind::Struct(name, lowered)))
    }

    fn if_expr(&mut self, branch: &syn::ExprIf) -> Result<Expr> {
        let span = branch.span();
        if let syn::Expr::Let(condition) = branch.cond.as_ref() {
            return fail(
                condition.span(),
                "kernels have no patterns that can fail: use a condition, or `match` on a number",
            );
        }
        let condition = self.expr(&branch.cond)?;
        self.same(&condition.ty, &Ty::BOOL, condition.span);
        let then = self.block(&branch.then_branch)?;
        let Some((_, otherwise)) = &branch.else_branch else {
            return Ok(Self::expr_of(Ty::Unit, span, Kind::If(Box::new(condition), unit(then), None)));
        };
        let otherwise = self.expr(otherwise)?;
        let ty = match &then.tail {
            Some(tail) => tail.ty.clone(),
            None if ends(&then) => Ty::Never,
            None => Ty::Unit,
        };
        self.same(&otherwise.ty, &ty, otherwise.span);
        let ty = if self.table.shallow(&ty) == Ty::Never { otherwise.ty.clone() } else { ty };
        Ok(Self::expr_of(ty, span, Kind::If(Box::new(condition), then, Some(Box::new(otherwise)))))
    }

    fn match_expr(&mut self, matched: &syn::ExprMatch) -> Result<Expr> {
        let span = matched.span();
        let value = self.expr(&matched.expr)?;
        let ty = self.table.any();
        let local = self.temporary("matched", value.ty.clone());
        let scrutinee = Self::expr_of(value.ty.clone(), value.span, Kind::Local(local));
        let arms = self.arms(&scrutinee, &matched.arms, &ty)?;
        let all_end = arms.iter().all(|arm| self.table.shallow(&arm.body.ty) == Ty::Never);
        let ty = if all_end { Ty::Never } else { ty };
        let found = Self::expr_of(ty.clone(), span, Kind::Match(Box::new(scrutinee), arms));
        let statements = vec![Statement::Let(local, Some(value), span)];
        Ok(Self::expr_of(ty, span, Kind::Block(Block { statements, tail: Some(Box::new(found)) })))
    }

    fn return_expr(&mut self, jump: &syn::ExprReturn) -> Result<Expr> {
        if self.inlining > 0 {
            return fail(
                jump.span(),
                "a closure of a kernel is inlined and does not `return`: make its value the last expression",
            );
        }
        let result = self.result.clone();
        let value = match &jump.expr {
            Some(value) => {
                let value = self.expr(value)?;
                self.same(&value.ty, &result, value.span);
                Some(Box::new(value))
            }
            None => None,
        };
        Ok(Self::expr_of(Ty::Never, jump.span(), Kind::Return(value)))
    }
}

/// A field's name in MSL.
pub(crate) fn field_name(rust: &str) -> String {
    let plain = rust.strip_prefix("r#").unwrap_or(rust);
    if crate::reserved::is_keyword(plain) { format!("{plain}_") } else { plain.to_owned() }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 40 {
        text.to_owned()
    } else {
        text.chars().take(40).chain("…".chars()).collect()
    }
}

fn operator(op: &syn::BinOp) -> Option<(Binary, bool)> {
    use syn::BinOp;
    Some(match op {
        BinOp::Add(_) => (Binary::Add, false),
        BinOp::Sub(_) => (Binary::Sub, false),
        BinOp::Mul(_) => (Binary::Mul, false),
        BinOp::Div(_) => (Binary::Div, false),
        BinOp::Rem(_) => (Binary::Rem, false),
        BinOp::BitAnd(_) => (Binary::And, false),
        BinOp::BitOr(_) => (Binary::Or, false),
        BinOp::BitXor(_) => (Binary::Xor, false),
        BinOp::Shl(_) => (Binary::Shl, false),
        BinOp::Shr(_) => (Binary::Shr, false),
        BinOp::AddAssign(_) => (Binary::Add, true),
        BinOp::SubAssign(_) => (Binary::Sub, true),
        BinOp::MulAssign(_) => (Binary::Mul, true),
        BinOp::DivAssign(_) => (Binary::Div, true),
        BinOp::RemAssign(_) => (Binary::Rem, true),
        BinOp::BitAndAssign(_) => (Binary::And, true),
        BinOp::BitOrAssign(_) => (Binary::Or, true),
        BinOp::BitXorAssign(_) => (Binary::Xor, true),
        BinOp::ShlAssign(_) => (Binary::Shl, true),
        BinOp::ShrAssign(_) => (Binary::Shr, true),
        BinOp::Eq(_) => (Binary::Equal, false),
        BinOp::Ne(_) => (Binary::NotEqual, false),
        BinOp::Lt(_) => (Binary::Less, false),
        BinOp::Le(_) => (Binary::LessEqual, false),
        BinOp::Gt(_) => (Binary::Greater, false),
        BinOp::Ge(_) => (Binary::GreaterEqual, false),
        BinOp::And(_) => (Binary::LogicalAnd, false),
        BinOp::Or(_) => (Binary::LogicalOr, false),
        _ => return None,
    })
}

/// Whether a block only has assertions.
fn is_assertion(block: &syn::Block) -> bool {
    block.stmts.iter().all(|statement| match statement {
        syn::Stmt::Macro(statement) => is_assert(&statement.mac),
        syn::Stmt::Expr(syn::Expr::Macro(expr), _) => is_assert(&expr.mac),
        _ => false,
    })
}

fn is_assert(call: &syn::Macro) -> bool {
    call.path.segments.last().is_some_and(|segment| segment.ident == "assert")
}
